"""The names of a run's files, and which directory holds a run; without HDF5."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CONFIG, LOCK = "config.toml", "run.lock"
CHECKPOINT, PREVIOUS, METRICS = "checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"


def is_run(path: Path) -> bool:
    """Whether a directory holds a run."""
    return any((path / name).is_file() for name in (LOCK, CHECKPOINT, PREVIOUS, METRICS))


def sees(path: Path, content: bytes, clock: Callable[[], float], patience: float = 5.0) -> bool:
    """Whether a file has this content, now or soon: a network file system may take a moment."""
    end = clock() + patience
    while clock() < end:
        with suppress(OSError):
            if path.read_bytes() == content:
                return True
        time.sleep(0.1)
    return False
