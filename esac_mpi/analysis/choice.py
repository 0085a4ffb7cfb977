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
RECENT = 20  # generations that the time left is taken over


def published(run: RunFiles) -> float:
    """Return when a run last published rows [s since 1970]; 0 where it has not."""
    try:
        return run.columns.source.stat().st_mtime if run.columns.source else 0.0
    except OSError:
        return 0.0


def down(value: float | None) -> float:
    """Return a key that sorts from the greatest to the least, none at last."""
    return inf if value is None else -value


ORDERS: dict[str, Callable[[RunFiles], Any]] = {
    # of those in one state, who is silent the longest
    "need": lambda run: (STATES.index(s) if (s := run.state) in STATES else -1, published(run)),
    "task": lambda run: (run.config.task.id, run.config.algorithm, run.config.seed),
    "return": lambda run: down(measures.best_return(run)),
    "left": lambda run: inf if (left := measures.seconds_left(run, RECENT)) is None else left,
    "name": lambda run: "",
}


@dataclass(frozen=True)
class Choice:
    """Which of many runs are shown: statuses, tasks (patterns, none = all), an order of ORDERS."""

    statuses: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    order: str = "need"

    def of(self, runs: Mapping[Path, RunFiles | str]) -> list[Path]:
        """Return the shown runs' paths, first those of runs that a text says cannot be read."""
        unread = [path for path, run in runs.items() if isinstance(run, str)]
        found = [
            (ORDERS[self.order](run), str(path), path)
            for path, run in runs.items()
            if not isinstance(run, str) and self._takes(run)
        ]
        lost = [] if self.statuses or self.tasks else sorted(unread)
        return [*lost, *(path for *_, path in sorted(found))]

    def _takes(self, run: RunFiles) -> bool:
        task = run.config.task.id
        return (not self.statuses or run.state in self.statuses) and (
            not self.tasks or any(fnmatchcase(task, pattern) for pattern in self.tasks)
        )


def add_choice(line: argparse.ArgumentParser, order: str) -> None:
    """Let a command choose among many runs."""
    add = line.add_argument
    text = f"only runs of these: {', '.join(STATES)}"
    add("--status", nargs="+", choices=STATES, default=[], metavar="STATUS", help=text)
    text = "only runs of these tasks; * and ? match parts of names"
    add("--task", nargs="+", default=[], metavar="ID", help=text)
    text = f"need: what needs you first; return: the best; default: {order}"
    add("--sort", choices=tuple(ORDERS), help=text)


def choice_of(options: argparse.Namespace, order: str) -> Choice:
    """Return the choice of a command line."""
    return Choice(tuple(options.status), tuple(options.task), options.sort or order)
