"""Which of many runs are shown, and which first: by status and task, and by what needs somebody."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Any

from esac_mpi.analysis import measures
from esac_mpi.record import RunFiles

STATES = ("failed", "dead", "requeue", "running", "pruned", "complete")  # what needs somebody first
UNREAD = 2  # a run that cannot be read any more needs somebody before those after this many states
RECENT = 20  # generations that the time left is taken over


def published(run: RunFiles) -> float:
    """Return when a run last published rows [s since 1970]; 0 where it has not."""
    try:
        return run.columns.source.stat().st_mtime if run.columns.source else 0.0
    except OSError:
        return 0.0


def urgency(run: RunFiles) -> int:
    """Return the place of a run's state among those that need somebody."""
    return STATES.index(run.state) if run.state in STATES else UNREAD


def down(value: float | None) -> float:
    """Return a key that sorts from the greatest to the least, none at last."""
    return inf if value is None else -value


ORDERS: dict[str, Callable[[RunFiles], Any]] = {
    # of those in one state, who is silent the longest
    "need": lambda run: (urgency(run), published(run)),
    "task": lambda run: (run.config.task.id, run.config.algorithm, run.config.seed),
    "return": lambda run: down(measures.best_return(run)),
    "left": lambda run: inf if (left := measures.seconds_left(run, RECENT)) is None else left,
    "name": lambda run: "",
}


@dataclass(frozen=True)
class Choice:
    """What is shown of many runs: of these statuses and tasks (patterns, none = all), in an order of ORDERS."""

    statuses: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    order: str = "need"

    def of(self, runs: Mapping[Path, RunFiles | str]) -> list[Path]:
        """Return the paths of the runs that are shown; a text in place of one says why it cannot be read."""
        shown = [path for path, run in runs.items() if self._takes(run)]
        return sorted(shown, key=lambda path: (self._place(runs[path]), str(path)))

    def _takes(self, run: RunFiles | str) -> bool:
        if isinstance(run, str):
            return not (self.statuses or self.tasks)
        task = not self.tasks or any(
            fnmatchcase(run.config.task.id, pattern) for pattern in self.tasks
        )
        return task and (not self.statuses or run.state in self.statuses)

    def _place(self, run: RunFiles | str) -> tuple[int, Any]:
        if not isinstance(run, str):
            key = ORDERS[self.order](run)
            return (2 * key[0], key) if self.order == "need" else (0, key)
        return (2 * UNREAD - 1, ()) if self.order == "need" else (1, ())


def add_choice(line: argparse.ArgumentParser, order: str) -> None:
    """Let a command choose among many runs."""
    add = line.add_argument
    add("--status", nargs="+", choices=STATES, default=[], help="only runs of these")
    text = "only runs of these tasks; * and ? stand for parts of names"
    add("--task", nargs="+", default=[], metavar="ID", help=text)
    text = f"need: what needs you first; return: the best; default: {order}"
    add("--sort", choices=tuple(ORDERS), help=text)


def choice_of(options: argparse.Namespace, order: str) -> Choice:
    """Return what a command line chooses."""
    return Choice(tuple(options.status), tuple(options.task), options.sort or order)
