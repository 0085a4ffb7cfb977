"""The names of a run's files, and which directory holds a run; without HDF5."""

import errno
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CONFIG, LOCK = "config.toml", "run.lock"
CHECKPOINT, PREVIOUS, METRICS = "checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"
POLICY, STATUS = "policy.h5", "status.json"
SHOWN = METRICS, CHECKPOINT, PREVIOUS  # that have a run's history, in the order of reading
FILES = {CONFIG, LOCK, CHECKPOINT, PREVIOUS, METRICS, POLICY, STATUS, "log.txt"}


def is_run(path: Path) -> bool:
    """Whether a directory holds a run."""
    return any((path / name).is_file() for name in (LOCK, *SHOWN))


def is_of_run(path: Path) -> bool:
    """Whether a path, or what it links to, is a file by which a run goes on or is read."""
    real = Path(os.path.realpath(path))
    with suppress(OSError):  # somebody else's folder: who writes there hears of it
        return real.name in FILES and is_run(real.parent)
    return False


def is_there(path: Path) -> bool:
    """Tell whether something stands at a path; on a file system that is away it counts."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return True


def regular(path: str, flags: int) -> int:
    """Open a file, as open()'s `opener`; what may have no end, as a pipe, is an OSError."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # open() says of a directory that it is
        raise OSError(errno.EINVAL, "a pipe or a device, not a file", path)
    return os.open(path, flags)


def moved_from(path: Path) -> Path:
    """Name the run that --fresh moved to this directory; the directory itself if it is none."""
    return Path(re.sub(r"\.old-\d+$", "", str(path)))


def holds(path: Path, content: bytes, clock: Callable[[], float], patience: float = 5.0) -> bool:
    """Whether a file has this content, now or soon: a network file system may take a moment."""
    end = clock() + patience
    while clock() < end:
        with suppress(OSError):
            if path.read_bytes() == content:
                return True
        time.sleep(0.1)
    return False
