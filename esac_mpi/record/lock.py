"""run.lock: held (fcntl) by rank 0 as long as its run lives; its content names the holder."""

import errno
import fcntl
import logging
import os
import time
from pathlib import Path

from esac_mpi.record.errors import Refused

LOCK = "run.lock"

logger = logging.getLogger(__name__)


def take(path: Path, create: bool) -> int:
    """Return the descriptor of the locked run.lock, its content untouched. Raises Refused, naming the holder."""
    descriptor = os.open(path / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
    for attempt in range(5):  # a reader that asks whether the run lives holds the lock for an instant
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                logger.warning("%s: no locks on this file system (%s); start no second run here", path, error.strerror)
                return descriptor
        time.sleep(0.05 * attempt)
    host, pid, since = [*os.pread(descriptor, 1000, 0).decode(errors="replace").split(), "?", "?", "?"][:3]
    os.close(descriptor)
    raise Refused(
        f"{path}: in use by another run: host {host}, pid {pid}, since {since}. Wait for its end, "
        f"stop it (on {host}: kill {pid}), or choose another --run-dir"
    )


def is_free(path: Path) -> bool:
    """Return whether certainly nobody holds the lock of a directory that another process may be running in."""
    try:
        with open(path / LOCK, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
