"""How long runs take to a number of steps, and who waits: as measured, and computed for other numbers of ranks.

Measured, waiting is what the ranks' time has beside what is recorded (activities.py). Computed, it is what R ranks have less
of than R times one rank's speed, 1 - T(1) / (R T(R)) with T the computed clock: the same for all algorithms whose work is the
same on any number of ranks. Where results are told as they come in (AES-RL's order = arrival) it is not, and none is told.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from esac_mpi.analysis.activities import activities
from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.clock.recorded_tasks import individuals_and_turns
from esac_mpi.analysis.curves import position
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.record import RunFiles

SEED = frozenset({"seed"})  # runs on several ranks may be of one seed: they are lines of their own


@dataclass(frozen=True)
class Line:
    """Runs of the same thing on the same number of ranks."""

    task: str
    label: str
    ranks: int
    minutes: float  # measured
    waiting: float  # share of the ranks' time
    computed: dict[int, tuple[float, float]]  # ranks: (minutes, waiting)
    costs: tuple[
        float, float
    ]  # of an update of an individual [steps], of the critic's [updates of an individual]; nan
    seeds: int


def lines(runs: list[RunFiles], ranks: list[int], steps: int = 0) -> Iterator[Line]:
    """Yield a line for all runs of a task, label and number of ranks, to so many nominal steps; 0: as far as all of a task are.

    Raises Unusable.
    """
    for task, labels in grouped(runs, SEED).items():
        reached = min(reach(run) for found in labels.values() for run in found)
        if steps > reached:
            raise Unusable(f"{task}: a run has {reached:,.0f} nominal steps, not {steps:,}")
        for label, found in labels.items():
            for count in sorted({int(busy(run).ranks[-1]) for run in found}):
                same = [run for run in found if int(busy(run).ranks[-1]) == count]
                yield line(task, label, count, same, ranks, steps or int(reached))


def line(
    task: str, label: str, count: int, runs: list[RunFiles], ranks: list[int], steps: int
) -> Line:
    """Return the mean over runs on a number of ranks."""
    ends = [
        int(np.searchsorted(position(run, "nominal_steps"), steps)) for run in runs
    ]  # generation that reaches it
    minutes = [
        float(run.columns["timing/wall_seconds"][end]) / 60
        for run, end in zip(runs, ends, strict=True)
    ]
    at: dict[int, tuple[float, float]] = {}
    alike = all(
        run.config.own.follows is None for run in runs
    )  # whether the work is the same on any number of ranks
    for r in ranks:
        lasted = np.array(
            [
                [computed(run, Machine(m))[end] / 60 for m in (1, r)]
                for run, end in zip(runs, ends, strict=True)
            ]
        )
        at[r] = (
            float(lasted[:, 1].mean()),
            float(np.mean(1 - lasted[:, 0] / (r * lasted[:, 1]))) if alike else np.nan,
        )
    shares = [idle(run, end) for run, end in zip(runs, ends, strict=True)]
    known = np.array([costs(run) for run in runs])
    mean = (float(known[:, 0].mean()), float(known[:, 1].mean()))
    return Line(
        task, label, count, float(np.mean(minutes)), float(np.mean(shares)), at, mean, len(runs)
    )


def reach(run: RunFiles) -> float:
    """Return a run's nominal steps. Raises Unusable for one without a generation."""
    steps = position(run, "nominal_steps")
    if not steps.size:
        raise Unusable(f"{run.path}: no generation is published yet")
    return float(steps[-1])


def idle(run: RunFiles, end: int) -> float:
    """Return the measured idle share of a run's ranks up to a generation."""
    found = {name: values[: end + 1].sum() for name, values in activities(run).items()}
    return float(found["idle"] / sum(found.values()))


def costs(run: RunFiles) -> tuple[float, float]:
    """Return what updates cost by the times of a run's tasks: update_cost and critic_cost as they would be true; nan without."""
    if "timing/task_busy" not in run.columns:
        return np.nan, np.nan
    spent, updating, steps, updates = (
        run.columns[f"timing/task_{n}"] for n in ("busy", "updating", "steps", "updates")
    )
    individual, critic = individuals_and_turns(run)
    if not critic.any() or not updates[individual].any():
        return np.nan, np.nan
    step = (spent - updating)[individual].sum() / steps[individual].sum()
    update = updating[individual].sum() / updates[individual].sum()
    return float(update / step), float(spent[critic].sum() / updates[critic].sum() / update)


def text(found: list[Line], ranks: list[int], steps: int) -> str:
    """Return the lines as a Markdown table, with what it holds above."""
    if len({one.ranks for one in found}) > 1:
        note(
            "runs on several numbers of ranks: those on one have the cleanest times to compute from"
        )
    to = f"{steps:,} nominal steps" if steps else "the nominal steps that all runs of a task have"
    about = (
        f"Minutes to {to}, and in brackets the share of the ranks' time that is waited for; means over seeds. Measured as it "
        "was, with whatever else the machine did; computed from the recorded durations, on cores like those of the run; "
        "-: not told of an order of arrival, where other ranks get through other tasks. "
        "Costs: what an update of an individual took [steps], and one of the critic [updates of an individual], for "
        "update_cost and critic_cost."
    )
    head = [
        "task",
        "run",
        "measured",
        *(f"{r} rank{'s' * (r > 1)}, computed" for r in ranks),
        "costs",
    ]
    rows = [head, ["---"] * len(head)]
    for one in found:
        measured = (
            f"{number(one.minutes)} ({100 * one.waiting:.1f} %) on {one.ranks}, n={one.seeds}"
        )
        other = [
            f"{number(minutes)} ({share(waiting)})" for minutes, waiting in one.computed.values()
        ]
        own = f"{one.costs[0]:.3g}, {one.costs[1]:.2g}" if np.isfinite(one.costs[0]) else "-"
        rows.append([one.task, one.label, measured, *other, own])
    return "\n".join([about, "", *(f"| {' | '.join(row)} |" for row in rows)])


def share(waiting: float) -> str:
    """Return a share in per cent, - for none."""
    return "-" if np.isnan(waiting) else f"{100 * waiting:.1f} %"


def number(minutes: float) -> str:
    """Return minutes with three digits that count."""
    return f"{float(f'{minutes:.3g}'):,g}"
