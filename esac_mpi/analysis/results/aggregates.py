"""Statistics over an experiment's tasks and seeds, with their stratified bootstrap intervals.

Runs are drawn with replacement within each task, so that every draw has all tasks (Agarwal et al.
2021, arXiv:2108.13264). Every task counts the same. Where tasks have different numbers of runs,
which that paper has not, a run counts the more in the interquartile mean the fewer its task has:
else that would tell apart variants whose runs are of other tasks, and equally good.

The optimality gap of that paper, the mean of what is missing to 1, is 1 - mean here, where no score
is above 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from esac_mpi.analysis.intervals import interquartile_mean, stratified

Tasks = Sequence[np.ndarray]  # scores, each [seeds, ...]; trailing axes are draws


class Estimate(NamedTuple):
    """A statistic and its 95 % interval, nan where a task has one seed only."""

    value: float
    low: float
    high: float


def iqm(tasks: Tasks) -> np.ndarray:
    """Return the mean of the middle half of the runs of all tasks, each task counting the same."""
    runs = np.concatenate(tasks)
    if len(set(map(len, tasks))) == 1:
        return interquartile_mean(runs)
    # [runs], together 1
    shares = np.concatenate([np.full(len(task), 1 / (len(task) * len(tasks))) for task in tasks])
    order = runs.argsort(axis=0)
    upto, cut = shares[order].cumsum(axis=0), len(runs) // 4 / len(runs)
    kept = upto.clip(cut, 1 - cut) - (upto - shares[order]).clip(cut, 1 - cut)
    return (kept * np.take_along_axis(runs, order, axis=0)).sum(axis=0) / kept.sum(axis=0)


def median(tasks: Tasks) -> np.ndarray:
    """Return the median of the tasks' means."""
    return np.median([task.mean(axis=0) for task in tasks], axis=0)


def mean(tasks: Tasks) -> np.ndarray:
    """Return the mean of the tasks' means."""
    return np.mean([task.mean(axis=0) for task in tasks], axis=0)


def ahead(both: Tasks) -> np.ndarray:
    """Return the interquartile mean of the list's first half less that of its second half."""
    return iqm(both[: len(both) // 2]) - iqm(both[len(both) // 2 :])


def improvement(both: Tasks) -> np.ndarray:
    """Compute how probably a run of the list's first half is ahead on a random task; ties half."""
    half = len(both) // 2
    pairs = zip(both[:half], both[half:], strict=True)
    return np.mean([chance(ours, theirs) for ours, theirs in pairs], axis=0)


def chance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the share of pairs where ours [seeds, ...] is above theirs; ties count half."""
    ahead = ours[:, None] - theirs[None]
    return ((ahead > 0) + 0.5 * (ahead == 0)).mean(axis=(0, 1))


def estimate(tasks: Tasks, statistic: Callable[[Tasks], np.ndarray]) -> Estimate:
    """Return a statistic of tasks, each [seeds], and its interval."""
    several = min(map(len, tasks)) > 1
    low, high = stratified(tasks, statistic) if several else (np.nan, np.nan)
    return Estimate(float(statistic(tasks)), float(low), float(high))
