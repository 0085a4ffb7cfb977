"""Many runs: which are shown, and which first; read anew whenever their files change."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from esac_mpi.analysis import measures
from esac_mpi.analysis.command import distinct, open_readable, try_open
from esac_mpi.record import RunFiles


def publication_time(run: RunFiles) -> float:
    """Look up when the newest row was published [s since 1970], 0 without one."""
    try:
        return run.columns.source.stat().st_mtime if run.columns.source else 0.0
    except OSError:
        return 0.0


def by_status(run: RunFiles) -> tuple[int, float]:
    """Make a key that sorts by status, and in one status by who has been silent the longest."""
    state = measures.STATES.index(run.state) if run.state in measures.STATES else -1
    return state, publication_time(run)


def by_task(run: RunFiles) -> tuple[str, str, int]:
    """Make a key that sorts by task, algorithm and seed."""
    return run.config.task.id, run.config.algorithm, run.config.seed


def choose_runs(
    runs: Mapping[Path, RunFiles | str],
    statuses: Collection[str] = (),
    key: Callable[[RunFiles], Any] = by_status,
) -> list[Path]:
    """Choose runs of these statuses, none = all, in the order of key.

    A text in place of a run is why it cannot be read; without statuses these come first.
    """
    unread = sorted(path for path, run in runs.items() if isinstance(run, str))
    found = [
        (key(run), str(path), path)
        for path, run in runs.items()
        if not isinstance(run, str) and (not statuses or run.state in statuses)
    ]
    return [*([] if statuses else unread), *(path for *_, path in sorted(found))]


class Followed:
    """Runs, read anew when their files change; code: 2 or 65 if a path was unreadable at first."""

    def __init__(self, paths: Iterable[Path]) -> None:
        # before they are read: what is published meanwhile is seen at the next look
        self._seen = {path: _stamp(path) for path in distinct(paths)}
        runs, self.code = open_readable(self._seen)
        self.runs: dict[Path, RunFiles | str] = {**runs}

    def poll(self, every: float) -> Iterator[bool]:
        """Look at the files every so many seconds; yield whether this is the last look."""
        over = False
        while not over:
            before = self.over
            self.refresh()
            over = before and self.over
            yield over
            time.sleep(0.0 if over else every)

    def refresh(self) -> None:
        """Read changed files; replace a run that has become unreadable by the reason."""
        for path in self.runs:
            if (stamp := _stamp(path)) == self._seen[path]:
                continue
            self._seen[path] = stamp
            runs, problems, _ = try_open([path])
            self.runs[path] = runs[path] if runs else str(problems[0])

    @property
    def over(self) -> bool:
        """Whether no process works at any of the runs."""
        return all(isinstance(run, str) or run.state in measures.OVER for run in self.runs.values())


def _stamp(path: Path) -> list[tuple[int, int]]:
    """Return (mtime, inode) of each file that is published."""
    found: list[tuple[int, int]] = []
    for name in ("status.json", "metrics.h5", "checkpoint.h5"):
        try:
            stat = (path / name).stat()
            found.append((stat.st_mtime_ns, stat.st_ino))
        except OSError:
            found.append((0, 0))
    return found
