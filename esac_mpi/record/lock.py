"""run.lock: held (fcntl) by rank 0 while its run lives; it names the holder, blank once let go.

Whoever holds it touches it every BEAT. That decides where the lock does not: a file system may have
no locks, and locks may reach one host alone. Where the lock does not tell, a holder counts as dead
once it has been silent for SILENT, by this host's clock, or its process here has ended; should it
live, it stops at its next write (RunLock.guard).
"""

import errno
import fcntl
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from esac_mpi.host import batch_system
from esac_mpi.host.errors import Refused, Unsaved
from esac_mpi.host.run_directory import LOCK, regular
from esac_mpi.record.files import Image, replace

BEAT = 30.0  # time between two touches by the holder [s]
SILENT = 120.0  # time without a touch after which a holder counts as dead [s]
PATIENCE = 180.0  # for which a batch job waits for the end of the run before it [s]
SHORT = 0.5  # for which others do [s]: a reader that asks whether the run lives holds it shortly

logger = logging.getLogger(__name__)


class RunLock:
    """The lock of a run directory, from take() to close().

    token: what run.lock holds while this run has it. Nobody should open that file in this process:
    to close it drops the lock until the next beat. written: what was published so far [bytes].
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, path / LOCK
        now = datetime.now(UTC).isoformat()
        self.token = f"{socket.gethostname()} {os.getpid()} {now}\n".encode()
        self.written = 0
        self._lock = -1
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, create: bool, patience: float | None = None) -> None:
        """Take the lock, unless it is held already. Raises Refused, naming the holder; OSError.

        A batch job waits for a run's lock: ranks of the job before may outlive their launcher by
        seconds. patience: for how long instead [s].
        """
        if self._lock >= 0:
            return
        descriptor = os.open(self._file, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        try:
            wait(self._file, descriptor, patience)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._file), os.fstat(descriptor)):
                    self._lock = descriptor
                    return
            told = "another run has just begun here; start again, or choose another --run-dir"
            raise Refused(f"{self.path}: {told}")
        finally:
            if self._lock < 0:
                os.close(descriptor)

    def claim(self, patience: float | None = None) -> bool:
        """Make the directory, lock and sign it; return whether it was not held before."""
        before = self._lock >= 0
        self.path.mkdir(parents=True, exist_ok=True)
        self.take(create=True, patience=patience)
        os.pwrite(self._lock, self.token, 0)
        os.ftruncate(self._lock, len(self.token))
        return not before

    def let_go(self) -> None:
        """Blank and release a lock that is still this one's; it may be taken again."""
        if self._lock < 0:
            return
        with suppress(OSError):  # of a directory that has vanished
            if os.pread(self._lock, 1000, 0) == self.token:
                # keeps its place on a disk that may be full at the next start
                os.pwrite(self._lock, b" " * (len(self.token) - 1), 0)
        os.close(self._lock)
        self._lock = -1

    def close(self) -> None:
        """Release the lock for good; return when nothing touches it any more."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
        self.let_go()

    def beat(self) -> None:
        """Touch the lock, the sign of life; take it again if who read it here has dropped it."""
        with suppress(OSError, ValueError):  # where there are no locks; one that was let go
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):
            os.utime(self._lock)

    def keep_beating(self) -> None:
        """Touch the lock beside the work, until close()."""

        def beat_until_closed() -> None:
            while not self._closed.wait(BEAT):
                self.beat()

        self._beating = threading.Thread(target=beat_until_closed, name="heartbeat", daemon=True)
        self._beating.start()

    def guard(self) -> None:
        """Touch the lock. Raises Refused if another run took it; Unsaved."""
        try:
            ours = os.pread(self._lock, 1000, 0) == self.token
            with suppress(FileNotFoundError):
                ours &= os.path.samestat(os.stat(self._file), os.fstat(self._lock))
        except OSError as error:
            raise Unsaved(f"{self._file}: {error.strerror}") from error
        if not ours:
            told = "another run has taken this directory; this one stops without writing"
            raise Refused(f"{self.path}: {told}")
        self.beat()

    def store(self, name: str, made: Image, previous: bool = False) -> None:
        """Replace a file by an image; previous=True keeps *_prev. Raises Unsaved, Refused."""
        self.guard()
        file = self.path / name
        if file.parent != self.path:  # a segment's folder
            try:
                file.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise Unsaved(f"{file.parent}: {error.strerror}") from error
        self.written += replace(file, made.parts, previous)

    def delete_segments(self, folder: str, keep: set[str]) -> None:
        """Delete the segments of a folder but for those to keep, named from the run directory."""
        there: list[Path] = []
        with suppress(OSError):  # tried again at the next checkpoint, as what cannot be deleted
            there += (self.path / folder).glob("segment-*.h5")
        for file in there:
            if f"{folder}/{file.name}" not in keep:
                with suppress(OSError):
                    file.unlink()


def wait(file: Path, descriptor: int, patience: float | None = None) -> None:
    """Lock a file that nobody holds. Raises Refused, naming the holder, after `patience` [s]."""
    if patience is None:
        patience = PATIENCE if batch_system.job_name(os.environ) else SHORT
    end = time.monotonic() + patience
    pause = SHORT / 10
    while is_held(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= end:
            raise refusal(file, descriptor)
        if pause < SHORT <= 2 * pause and patience > SHORT:
            told = "%s: in use by another run (host %s, pid %s), which may be ending: waits for up "
            logger.warning(told + "to %.0f s", file.parent, *holder(descriptor)[:2], patience)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def is_held(descriptor: int, kind: int) -> bool:
    """Say whether another process holds a file; lock it if nobody does, where there are locks."""
    locked = True
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        locked = False  # the file system has none
    host, pid, _ = holder(descriptor)
    if host == socket.gethostname() and (locked or not Path(f"/proc/{pid}").exists()):
        return False
    return bool(host) and time.time() - os.fstat(descriptor).st_mtime <= SILENT


def ask(path: Path) -> None:
    """Raise Refused, naming the holder, where take() would; OSError. Nothing is written."""
    descriptor = os.open(path / LOCK, os.O_RDWR)
    try:
        wait(path / LOCK, descriptor)
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """Say whether nobody holds a directory that another process may hold; False where unknown.

    Nothing is waited for or written.
    """
    try:
        with open(path / LOCK, "rb", opener=regular) as file:
            return not is_held(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def holder(descriptor: int) -> tuple[str, str, str]:
    """Read (host, pid, since), empty where nobody holds it."""
    words = os.pread(descriptor, 1000, 0).decode(errors="replace").split()
    host, pid, since, *_ = [*words, "", "", ""]
    return host, pid, since


def refusal(file: Path, descriptor: int) -> Refused:
    """Make the error that names a holder, and how long it has been silent by this host's clock."""
    host, pid, since = (entry or "?" for entry in holder(descriptor))
    silent = time.time() - os.fstat(descriptor).st_mtime
    hint = f", silent for {silent / 60:.0f} minutes" if silent > 0 else ", by a clock that is ahead"
    hint += f": if that host is down, remove {file}"
    return Refused(
        f"{file.parent}: in use by another run: host {host}, pid {pid}, since {since}"
        f"{hint if abs(silent) > SILENT else ''}. Wait for its end, stop it "
        f"(on {host}: kill {pid}), or choose another --run-dir"
    )
