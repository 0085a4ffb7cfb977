"""run.lock: held (fcntl) by rank 0 while its run lives; it names the holder, blank once let go.

Where the file system has no locks, a run.lock with a holder is taken over only after nobody has
touched it for SILENT seconds, or if the holder was a process of this host and has ended. Its age is
the difference of two times that the file server gave, so that no clock of a node matters; and since
the server's may be set, too, a holder that looks silent is waited for, whether it touches run.lock.
Locks that are there may reach one host alone: a holder of another host that has just touched it is
waited for, too.
"""

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from esac_mpi.host import batch_system
from esac_mpi.host.run_directory import LOCK
from esac_mpi.record.errors import Refused

BEAT = 30.0  # time between two touches by the holder [s]
# time without a touch after which a holder counts as dead where there are no locks [s]
SILENT = 600.0
PATIENCE = 180.0  # for which a batch job waits for the end of the run before it [s]
SHORT = 0.5  # for which others do [s]
# held by another process; any other error of lockf: no locks here
BUSY = (errno.EACCES, errno.EAGAIN)

logger = logging.getLogger(__name__)


def take(path: Path, create: bool, name: str = LOCK) -> int:
    """Lock run.lock, or another; return its descriptor. Raises Refused, naming the holder.

    A batch job waits for a run's lock: ranks of the job before may outlive their launcher by
    seconds.
    """
    descriptor = os.open(path / name, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
    try:
        if _locked(path / name, descriptor, patience() if name == LOCK else SHORT) and name == LOCK:
            _refuse_life_elsewhere(path / name, descriptor)
        _refuse_moved(path / name, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def patience() -> float:
    """Return how long take() waits for a run's lock [s]."""
    return PATIENCE if batch_system.job(os.environ) else SHORT


def ask(path: Path, patience: float = 0.0) -> None:
    """Raise Refused, naming the holder, where take() would after so long [s]; OSError unopened.

    Nothing is written, and where there are no locks nothing is waited for.
    """
    descriptor = os.open(path / LOCK, os.O_RDWR)
    try:
        waits = _waits(path, descriptor, patience if _has_locks(descriptor) else 0.0, lambda: "")
        while not is_free(path):
            next(waits)
    finally:
        os.close(descriptor)


def release(descriptor: int, token: bytes) -> None:
    """Blank and unlock a run.lock that still holds the token; leave one that another run took."""
    with suppress(OSError):  # of a directory that has vanished
        if os.pread(descriptor, 1000, 0) == token:
            # keeps its place on a disk that may be full at the next start
            os.pwrite(descriptor, b" " * (len(token) - 1), 0)
    os.close(descriptor)


def is_free(path: Path, name: str = LOCK) -> bool:
    """Whether nobody holds a directory's lock that another process may hold; False where unknown.

    Where there are no locks, this host's clock decides: a reader writes nothing to ask for the file
    server's.
    """
    try:
        with open(path / name, "rb") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                host, pid, _ = holder = _holder(file.fileno())
                silent = time.time() - os.fstat(file.fileno()).st_mtime > SILENT
                return error.errno not in BUSY and (not any(holder) or _dead(host, pid) or silent)
    except OSError:
        return False
    return True


def _locked(file: Path, descriptor: int, patience: float) -> bool:
    """Lock run.lock; return whether the file system has locks. Raises Refused after so long [s]."""
    waits = _waits(file.parent, descriptor, patience, lambda: _silence(file.parent, descriptor))
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in BUSY:
                _judge(file, descriptor, error)
                return False
        next(waits)


def _has_locks(descriptor: int) -> bool:
    """Whether the file system of a run.lock has locks, this one or another's."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
    except OSError as error:
        return error.errno in BUSY
    return True


def _waits(path: Path, descriptor: int, patience: float, more: Callable[[], str]) -> Iterator[None]:
    """Wait at each step, and say so once if it lasts. Raises Refused after `patience` [s]."""
    # a reader that asks whether the run lives holds it for an instant
    end = time.monotonic() + patience
    pause = SHORT / 10
    while True:
        if time.monotonic() >= end:
            raise _refusal(path, _holder(descriptor), more())
        if pause < SHORT <= 2 * pause and patience > SHORT:
            told = (
                "%s: in use by another run (host %s, pid %s), which may be ending: waits for up to "
                "%.0f s"
            )
            logger.warning(told, path, *_holder(descriptor)[:2], patience)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
        yield


def _refuse_life_elsewhere(file: Path, descriptor: int) -> None:
    """Refuse a free run.lock whose holder lives on another host: locks may reach one host alone."""
    host, pid, since = _holder(descriptor)
    if not host or host == socket.gethostname():
        return
    if _server_time(file.parent) - os.fstat(descriptor).st_mtime >= 2 * BEAT:
        return
    if _is_touched(file, f"it was touched from {host} just now, although its lock was to be had"):
        raise _refusal(
            file.parent, (host, pid, since), ", and touches it; locks do not reach every host here"
        )
    _locked(file, descriptor, 0.0)  # looking at the file has dropped the lock


def _refuse_moved(file: Path, descriptor: int) -> None:
    """Refuse a run.lock whose directory another start has moved aside meanwhile."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.stat(file), os.fstat(descriptor)):
            return
    raise Refused(
        f"{file.parent}: another run has just begun here; start again, or choose another --run-dir"
    )


def _judge(file: Path, descriptor: int, reason: OSError) -> None:
    """Warn that there are no locks; refuse a run.lock whose holder may be alive."""
    path = file.parent
    told = "%s: no locks on this file system (%s); %s is touched as a sign of life instead"
    logger.warning(told, path, reason.strerror, file.name)
    host, pid, since = _holder(descriptor)
    if not host:
        return
    age = _server_time(path) - os.fstat(descriptor).st_mtime
    dead = _dead(host, pid)
    if (
        age >= SILENT
        and not dead
        and _is_touched(file, "its holder looks silent, by a clock that may have been set")
    ):
        age = 0.0
    if age < SILENT and not dead:
        wait = f"; without one for {SILENT / 60:.0f} minutes it counts as dead"
        raise _refusal(
            path, (host, pid, since), f", last sign of life {max(age, 0):.0f} s ago{wait}"
        )
    logger.warning(
        "%s: taken over from host %s, pid %s: last sign of life %.0f s ago", path, host, pid, age
    )


def _refusal(path: Path, holder: tuple[str, str, str], age: str) -> Refused:
    host, pid, since = (entry or "?" for entry in holder)
    return Refused(
        f"{path}: in use by another run: host {host}, pid {pid}, since {since}{age}. Wait for its "
        f"end, stop it (on {host}: kill {pid}), or choose another --run-dir"
    )


def _silence(path: Path, descriptor: int) -> str:
    """Say that a holder has been silent for long: a file server may keep a dead host's locks."""
    try:
        silent = _server_time(path) - os.fstat(descriptor).st_mtime
    except OSError:  # a full disk, a directory that was moved aside
        return ""
    return (
        f", silent for {silent / 60:.0f} minutes: if that host is down, remove {path / LOCK}"
        if silent > SILENT
        else ""
    )


def _holder(descriptor: int) -> tuple[str, str, str]:
    """Return (host, pid, since) of the content, empty where nobody holds it."""
    host, pid, since, *_ = [
        *os.pread(descriptor, 1000, 0).decode(errors="replace").split(),
        "",
        "",
        "",
    ]
    return host, pid, since


def _dead(host: str, pid: str) -> bool:
    """Whether the holder was a process of this host and has ended."""
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _is_touched(file: Path, why: str) -> bool:
    """Whether run.lock's holder shows life in time. A lock of ours on it is dropped."""
    logger.warning("%s: %s: looks again in %.0f s", file, why, 1.5 * BEAT)
    before = file.stat().st_mtime_ns
    time.sleep(1.5 * BEAT)
    with file.open("rb") as stream:  # opened anew: a network file system looks at the server then
        return os.fstat(stream.fileno()).st_mtime_ns != before


def _server_time(path: Path) -> float:
    """Ask the file server for its time, by a file made for it [s]."""
    probe = path / f"{LOCK}.tmp.{os.getpid()}"
    probe.unlink(missing_ok=True)
    os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()
