"""Which of many runs are shown, by status, and which first: by task, or by what needs somebody."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from esac_mpi.record import RunFiles

STATES = ("failed", "dead", "requeue", "running", "pruned", "complete")  # what needs somebody first


def need(run: RunFiles) -> tuple[int, float]:
    """Make a key that sorts by status, and in one status by who has been silent the longest."""
    try:
        published = run.columns.source.stat().st_mtime if run.columns.source else 0.0
    except OSError:
        published = 0.0
    return STATES.index(run.state) if run.state in STATES else -1, published


def task(run: RunFiles) -> tuple[str, str, int]:
    """Make a key that sorts by task, algorithm and seed."""
    return run.config.task.id, run.config.algorithm, run.config.seed


def chosen(
    runs: Mapping[Path, RunFiles | str],
    statuses: Collection[str] = (),
    key: Callable[[RunFiles], Any] = need,
) -> list[Path]:
    """Choose runs of these statuses, none = all; first those that a text says cannot be read."""
    unread = sorted(path for path, run in runs.items() if isinstance(run, str))
    found = [
        (key(run), str(path), path)
        for path, run in runs.items()
        if not isinstance(run, str) and (not statuses or run.state in statuses)
    ]
    return [*([] if statuses else unread), *(path for *_, path in sorted(found))]
