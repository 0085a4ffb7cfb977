"""What an experiment will cost in core-hours: the forecast of --check, from speeds measured once (configs/experiments/speeds.toml).

Episodes are taken to last to the horizon. A network is small (2x32, batch 128) or large (2x512, batch 256; of `erl` 2x128,
batch 128), which is taken from 128 units on. Mutations are left out: one takes a hundredth of a distilled child.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import Config, updated
from esac_mpi.host.invocation import called
from esac_mpi.studies.experiments.design import FOLDER
from esac_mpi.studies.experiments.plan import Planned
from esac_mpi.training.forecast import work
from esac_mpi.training.forecast.outlook import outlook

SPEEDS = FOLDER / "speeds.toml"
LARGE = 128  # units of a layer from which a network counts as large
# of a run that a clock ends
SOME = {"budget.generations": 1000, "budget.env_steps": 0, "budget.nominal_steps": 0}


@dataclass(frozen=True)
class Speeds:
    """How long things take on one core."""

    about: str  # machine, date and command
    horizon: dict[str, int]  # of a task [steps]
    step: dict[str, dict[str, float]]  # task: size: [us]
    update: dict[str, dict[str, float]]  # learner: size: [ms]
    imitation: dict[str, float] = field(default_factory=dict)  # size: [ms]


class Cost(NamedTuple):
    """What a run takes."""

    work: float  # of all ranks [s]
    seconds: float  # on its own ranks
    ranks: int


def speeds(path: Path = SPEEDS) -> Speeds:
    """Read the measured speeds. Raises Unusable."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = f"{called('experiment')} speeds measures and writes it"
        raise Unusable(f"{path}: {error.strerror}; {remedy}") from error
    tasks: dict[str, Any] = table["step"]
    about = f"{table['machine']}, {table['date']}, {table['command']}"
    horizon = {name: task["horizon"] for name, task in tasks.items()}
    return Speeds(about, horizon, tasks, table["update"], table.get("imitation", {}))


def pieces(config: Config, known: Speeds) -> Pieces:
    """Convert the speeds to the pieces of a run's work. Raises Unusable where one was not measured."""
    size = "large" if max(config.policy.hidden, default=0) >= LARGE else "small"
    declares = ALGORITHMS[config.algorithm].DECLARES
    learner = declares.learning.learner(config) if declares.learning else ""
    task, operators = config.task.id, declares.operators(config)
    there = {
        task: task in known.step,
        learner: not learner or learner in known.update,
        "imitation": operators != "genetic" or bool(known.imitation),
        "individuals": operators != "individuals" or operators in known.update,
    }
    if missing := [name for name, measured in there.items() if not measured]:
        raise Unusable(f"no speed of {missing[0]} in {SPEEDS}: {called('experiment')} speeds")
    horizon = min(known.horizon[task], config.task.horizon or known.horizon[task])
    step = known.step[task][size] * 1e-6
    return Pieces(
        np.array([horizon * step]),
        np.array([horizon]),
        horizon,
        playing=step,
        updating=known.update[learner][size] * 1e-3 if learner else 0.0,
        training=known.update[operators][size] * 1e-3 if operators == "individuals" else 0.0,
        imitating=known.imitation[size] * 1e-3 if operators == "genetic" else 0.0,
    )


def cost(planned: Planned, cores: int, known: Speeds) -> Cost:
    """Forecast a run in a job of at most `cores` ranks, or of its own number. Raises Unusable."""
    ranks = ranks_of(planned, cores)
    if planned.seconds:
        return Cost(planned.seconds, planned.seconds, ranks)
    clock = planned.clock
    config = updated(planned.config, SOME) if clock else planned.config
    on = clock.ranks if clock else ranks
    try:
        found = outlook(config, pieces(config, known), Cluster(on, on))
    except work.Unforeseen as error:
        raise Unusable(str(error)) from error
    if clock:  # which is computed from a run on one core
        seconds = clock.seconds * found.work / found.seconds
        return Cost(seconds, seconds, ranks)
    return Cost(found.work, found.seconds, ranks)


def ranks_of(planned: Planned, cores: int) -> int:
    """Choose the ranks of a run's job: its own number; else `cores` where they share episodes."""
    return planned.ranks or (cores if work.is_shared(planned.config) else 1)


def total(runs: Iterable[Planned], cores: int, known: Speeds) -> str:
    """Say what runs cost; those that differ in their seed alone are forecast once."""
    found: dict[str, Cost] = {}
    each = []
    for run in runs:
        alike = replace(run, seed=0, line=[], run_dir=Path())
        alike = replace(alike, config=replace(run.config, seed=0, run_dir=""))
        if repr(alike) not in found:
            found[repr(alike)] = cost(alike, cores, known)
        each.append(found[repr(alike)])
    said = f"{len(each)} runs, about {figure(sum(c.work for c in each))} core-hours of work"
    most = max(c.ranks for c in each)
    if most == 1:
        return said
    reserved = figure(sum(c.ranks * c.seconds for c in each))
    longest = figure(max(c.seconds for c in each))
    jobs = f"as jobs of up to {most} ranks about {reserved} core-hours reserved"
    return f"{said}; {jobs}, the longest run {longest} h"


def figure(seconds: float) -> str:
    """Format a time in hours with two significant digits, none below a hundredth."""
    hours = seconds / 3600
    return "0.01" if hours < 0.01 else f"{float(f'{hours:.2g}'):,.10g}"
