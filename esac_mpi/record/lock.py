"""run.lock: held (fcntl) by rank 0 while its run lives; it names the holder, blank once let go.

Whoever holds it touches it every BEAT. That decides where the lock does not: a file system may have
no locks, and locks may reach one host alone. A holder that is named, and not known to have ended,
is watched for WATCH, and refuses the start if it shows life; else its run.lock is taken over.
"""

import errno
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.host import batch_system
from esac_mpi.host.errors import Refused, Unsaved
from esac_mpi.host.run_directory import LOCK
from esac_mpi.record.files import Image, publish, store

BEAT = 30.0  # time between two touches by the holder [s]
WATCH = 1.5  # beats for which a holder is watched before it is taken over
SILENT = 120.0  # time without a touch after which readers, who do not wait, take it for dead [s]
PATIENCE = 180.0  # for which a batch job waits for the end of the run before it [s]
SHORT = 0.5  # for which others do [s]: a reader that asks whether the run lives holds it shortly
# held by another process; any other error of lockf: no locks here
BUSY = (errno.EACCES, errno.EAGAIN)

logger = logging.getLogger(__name__)


class Held:
    """A directory held from take() to close().

    token: what run.lock holds while this run has it. Nobody may open that file in this process: to
    close it would drop the lock. written: what was published so far [bytes].
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, path / LOCK
        now = datetime.now(UTC).isoformat()
        self.token = f"{socket.gethostname()} {os.getpid()} {now}\n".encode()
        self.written = 0
        self._lock = -1
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, create: bool) -> None:
        """Take the lock, unless it is held already. Raises Refused, naming the holder; OSError.

        A batch job waits for a run's lock: ranks of the job before may outlive their launcher by
        seconds.
        """
        if self._lock >= 0:
            return
        descriptor = os.open(self._file, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        try:
            if lives(self._file, descriptor, wait(self._file, descriptor, patience())):
                raise refusal(self._file, descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._file), os.fstat(descriptor)):
                    self._lock = descriptor
                    return
            told = "another run has just begun here; start again, or choose another --run-dir"
            raise Refused(f"{self.path}: {told}")
        finally:
            if self._lock < 0:
                os.close(descriptor)

    def claim(self) -> bool:
        """Make the directory, lock and sign it; return whether it was not held before."""
        before = self._lock >= 0
        self.path.mkdir(parents=True, exist_ok=True)
        self.take(create=True)
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
        """Touch the lock: the sign of life."""
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
            raise Refused(
                f"{self.path}: another run has taken this directory; this one stops without writing"
            )
        self.beat()

    def publish(
        self,
        name: str,
        arrays: Mapping[str, np.ndarray],
        attributes: Mapping[str, Any],
        previous: bool = False,
    ) -> None:
        """Replace an HDF5 file; previous=True keeps *_prev. Raises Unsaved, Refused."""
        self.guard()
        self.written += publish(self.path / name, arrays, attributes, previous)

    def store(self, name: str, made: Image) -> None:
        """Replace a file by an image. Raises Unsaved, Refused."""
        self.guard()
        file = self.path / name
        if file.parent != self.path:  # a segment's folder
            try:
                file.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise Unsaved(f"{file.parent}: {error.strerror}") from error
        self.written += store(file, made)

    def delete_segments(self, folder: str, keep: set[str]) -> None:
        """Delete the segments of a folder but for those to keep, named from the run directory."""
        there: list[Path] = []
        with suppress(OSError):  # tried again at the next checkpoint, as what cannot be deleted
            there += (self.path / folder).glob("segment-*.h5")
        for file in there:
            if f"{folder}/{file.name}" not in keep:
                with suppress(OSError):
                    file.unlink()


def patience() -> float:
    """Tell how long a start waits for a run's lock [s]."""
    return PATIENCE if batch_system.job(os.environ) else SHORT


def wait(file: Path, descriptor: int, patience: float) -> bool:
    """Lock a file; return whether its file system has locks. Raises Refused after so long [s]."""
    end = time.monotonic() + patience
    pause = SHORT / 10
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in BUSY:
                told = "%s: no locks on this file system (%s); %s is touched as a sign of life"
                logger.warning(told, file.parent, error.strerror, file.name)
                return False
        if time.monotonic() >= end:
            raise refusal(file, descriptor)
        if pause < SHORT <= 2 * pause and patience > SHORT:
            told = "%s: in use by another run (host %s, pid %s), which may be ending: waits for up "
            logger.warning(told + "to %.0f s", file.parent, *holder(descriptor)[:2], patience)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def ask(path: Path, patience: float = 0.0) -> None:
    """Raise Refused, naming the holder, where take() would; OSError. Nothing is written.

    patience: how long to wait for a lock that another process holds [s].
    """
    descriptor = os.open(path / LOCK, os.O_RDWR)
    try:
        if not wait(path / LOCK, descriptor, patience) and not is_free(path):
            raise refusal(path / LOCK, descriptor)
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """Say whether nobody holds a directory that another process may hold; False where unknown.

    Nothing is waited for or written: a holder elsewhere, whose lock may not reach this host, counts
    as dead once it has been silent for SILENT, by this host's clock.
    """
    try:
        with open(path / LOCK, "rb") as file:
            silent = time.time() - os.fstat(file.fileno()).st_mtime > SILENT
            free = ended(file.fileno())
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                free = free or holder(file.fileno())[0] == socket.gethostname()
            except OSError as error:
                if error.errno in BUSY:
                    return False
    except OSError:
        return False
    return free or silent


def holder(descriptor: int) -> tuple[str, str, str]:
    """Read (host, pid, since), empty where nobody holds it."""
    words = os.pread(descriptor, 1000, 0).decode(errors="replace").split()
    host, pid, since, *_ = [*words, "", "", ""]
    return host, pid, since


def ended(descriptor: int) -> bool:
    """Say whether there is no holder, or it was a process of this host that has ended."""
    host, pid, _ = holder(descriptor)
    if not host:
        return True
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def lives(file: Path, descriptor: int, locked: bool) -> bool:
    """Say whether the holder named in a file lives, although this process got the lock or none is.

    Where it is not known to have ended, it is watched. Raises Refused for a lock lost meanwhile.
    """
    host, pid, _ = holder(descriptor)
    if ended(descriptor) or (locked and host == socket.gethostname()):
        return False
    told = "%s: host %s, pid %s may live, where locks do not reach: looks for %.0f s"
    logger.warning(told, file, host, pid, WATCH * BEAT)
    before = file.stat().st_mtime_ns
    time.sleep(WATCH * BEAT)
    with file.open("rb") as stream:  # opened anew: a network file system looks at the server then
        if os.fstat(stream.fileno()).st_mtime_ns != before:
            return True
    logger.warning("%s: taken over from host %s, pid %s: no sign of life", file.parent, host, pid)
    if locked:
        wait(file, descriptor, 0.0)  # looking at the file has dropped the lock
    return False


def refusal(file: Path, descriptor: int) -> Refused:
    """Make the error that names a holder, and how long it has been silent by this host's clock."""
    host, pid, since = (entry or "?" for entry in holder(descriptor))
    silent = time.time() - os.fstat(descriptor).st_mtime
    hint = f", silent for {silent / 60:.0f} minutes: if that host is down, remove {file}"
    return Refused(
        f"{file.parent}: in use by another run: host {host}, pid {pid}, since {since}"
        f"{hint if silent > SILENT else ''}. Wait for its end, stop it (on {host}: kill {pid}), or "
        "choose another --run-dir"
    )
