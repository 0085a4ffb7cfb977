"""The names of a run's files, and which directory holds a run. For those, too, who must not load HDF5."""

from pathlib import Path

CONFIG, LOCK = "config.toml", "run.lock"
CHECKPOINT, PREVIOUS, METRICS = "checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"


def is_run(path: Path) -> bool:
    """Return whether a directory holds a run."""
    return any((path / name).is_file() for name in (LOCK, CHECKPOINT, PREVIOUS, METRICS))
