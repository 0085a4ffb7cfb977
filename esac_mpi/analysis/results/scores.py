"""Normalised scores: 0 is the return of uniform random actions, 1 the best of any run in time.

The return of a run is its last evaluation's at or before the limit. Where it has two policies, it
is that of the one which the evaluation before would have chosen: the better of both in the last one
is chosen by the same episodes that are reported, by which a variant with two policies gains over
one with one. standings.py has the better one.
1 is the greatest mean return of an evaluation at or before the limit, at any time, of any run in
the files, runs without a score and variants left out too. It is a noisy maximum: runs that are all
at a task's optimum stand a little below 1.
A run that goes on and has not come to the limit has no score yet. One that is done and ended before
it is scored as it ended.
"""

import dataclasses
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np

from esac_mpi.analysis.messages import DAMAGED, Unusable
from esac_mpi.analysis.results import traces
from esac_mpi.analysis.results.rows import Row, refuse_mixed, task_form
from esac_mpi.analysis.results.traces import WALL, Sections, Trace, Wall
from esac_mpi.host.invocation import call_of

FIELD = "better"
# {task: what is known of the returns of uniform random actions, "mean" of it}
Random = dict[str, dict[str, float]]


def random_returns(path: Path) -> dict[str, dict[str, float]]:
    """Return random actions' returns of a file: {task: {mean, error, ...}}. Raises Unusable."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return {
            task: {name: float(entry[name]) for name in ("mean", *entry)}
            for task, entry in found.items()
        }
    except OSError as error:
        raise Unusable(
            f"{path}: {error.strerror}; {call_of('experiment')} random TASK measures and writes it"
        ) from error
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise Unusable(
            f"{path}: expected a table with a mean for each task: {error}", DAMAGED
        ) from error


def merge_experiments(rows: Iterable[Row]) -> list[Row]:
    """Merge rows of several experiments into one. Raises Unusable for a run that is in two."""
    whence: dict[object, tuple[str, str]] = {}
    found = []
    for row in rows:
        one = dataclasses.replace(row, experiment="", budget="")
        if whence.setdefault(one.run, row.run[:2]) != row.run[:2]:
            raise Unusable(
                f"{one.name}: in two experiments or budgets, which cannot be aggregated;"
                " leave one of the files out"
            )
        found.append(one)
    refuse_mixed(found)
    return found


@dataclass(frozen=True)
class Task:
    """The returns of a task's runs."""

    title: str
    random: float
    best: float
    returns: dict[str, np.ndarray]  # {variant: [seeds]}, of every variant

    def scores(self, variant: str) -> np.ndarray:
        """Return the scores of a variant's runs [seeds]."""
        return (self.returns[variant] - self.random) / (self.best - self.random)


@dataclass(frozen=True)
class Study:
    """The scores of an experiment, and which runs have none or stand as they ended."""

    variants: list[str]
    tasks: list[Task] = field(default_factory=list)  # on which every variant has a score
    absent: dict[str, str] = field(default_factory=dict)  # {other task: why it is left out}
    unfinished: list[Trace] = field(default_factory=list)  # runs without a score yet
    short: list[Trace] = field(default_factory=list)  # done, but ended before the limit
    # by how much each variant's oldest evaluation is before the limit, or before its run's end [s]
    ages: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> set[int]:
        """How many seeds the variants have on the tasks."""
        return {len(returns) for task in self.tasks for returns in task.returns.values()}

    def scores(self, variant: str) -> list[np.ndarray]:
        """Return a variant's scores of every task, each [seeds]."""
        return [task.scores(variant) for task in self.tasks]


def score_study(sections: Sections, random: Random, wall: Wall, left_out: list[str]) -> Study:
    """Score an experiment; left_out: names of tasks and variants. Raises Unusable."""
    labels = list(dict.fromkeys(label for groups in sections.values() for label in groups))
    names = [*sections, *labels]
    if unknown := [name for name in left_out if name not in names]:
        told = f"no task or variant of these files; there are {'; '.join(names)}"
        raise Unusable(f"--leave-out '{unknown[0]}': {told}")
    found = Study([label for label in labels if label not in left_out])
    if not found.variants:
        raise Unusable("--leave-out names every variant: nothing is left to aggregate")
    for title, groups in sections.items():
        if title in left_out:
            found.absent[title] = "left out, as asked"
            continue
        own = {label: groups.get(label, []) for label in found.variants}
        there = [run for runs in own.values() for run in runs if run.has(FIELD)]
        limit = wall.limit(there, FIELD) if there else wall.seconds
        returns: dict[str, np.ndarray] = {}
        for label, runs in own.items():
            made = np.isfinite(traces.values(runs, WALL, limit, FIELD))
            scored = list(compress(runs, made))
            found.unfinished.extend(compress(runs, ~made))
            returns[label] = np.array([chosen_return(run, limit) for run in scored])
        zero, one = bounds(groups, random, limit)
        lacking = [label for label, seeds in returns.items() if not len(seeds)]
        if not one > zero:
            found.absent[title] = "no run is ahead of random actions yet"
        elif lacking:
            found.absent[title] = f"no run is that far of {', '.join(lacking)}"
        else:
            found.tasks.append(Task(title, zero, one, returns))
            found.short.extend(run for run in there if run.ended_before(limit))
            for label, runs in own.items():
                age = traces.greatest_age(runs, limit, FIELD)
                found.ages[label] = max(found.ages.get(label, 0.0), age)
    if not found.tasks:
        why = "; ".join(f"{title}: {why}" for title, why in found.absent.items())
        raise Unusable(f"nothing to aggregate yet: {why}")
    return found


def chosen_return(run: Trace, limit: float) -> float:
    """Return the return of the policy that led one evaluation earlier; both's mean without one."""
    made = [row for row in run.rows if row.better is not None and row.wall_seconds <= limit]
    # None is nan
    pair = np.array([[row.return_theta_es, row.return_learner] for row in made[-2:]], float)
    if np.isnan(pair[-1]).any() or len(pair) == 1:
        return float(np.nanmean(pair[-1]))
    return float(pair[-1, np.nanargmax(pair[0])])


def bounds(groups: dict[str, list[Trace]], random: Random, limit: float) -> tuple[float, float]:
    """Find the returns that are 0 and 1 on a task, -inf for 1 without any. Raises Unusable."""
    rows = [row for runs in groups.values() for run in runs for row in run.rows]
    ways = traces.forms(run for runs in groups.values() for run in runs)
    if len(ways) > 1:
        told = " and ".join(ways)
        raise Unusable(
            f"{rows[0].task}: runs in several forms of it have no scale in common: {told}"
        )
    task = task_form(rows[0].task, rows[0].changed)
    if task not in random:
        how = ", with that --horizon or --kwargs" * bool(rows[0].changed)
        command = f"{call_of('experiment')} random {rows[0].task}"
        raise Unusable(
            f"{task}: the return of random actions is not known; measure it{how}: {command}"
        )
    made = [row.better for row in rows if row.better is not None and row.wall_seconds <= limit]
    return random[task]["mean"], max(made, default=-np.inf)
