"""Statistics over all tasks and seeds of an experiment, with their stratified bootstrap intervals (Agarwal et al. 2021,
arXiv:2108.13264): runs are drawn with replacement within each task, so that every draw has all tasks.

The optimality gap of that paper, the mean of what is missing to 1, is 1 - mean here, where no score is above 1.
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
    """Return the mean of the middle half of the runs of all tasks."""
    return interquartile_mean(np.concatenate(tasks))


def median(tasks: Tasks) -> np.ndarray:
    """Return the median of the tasks' means."""
    return np.median([task.mean(axis=0) for task in tasks], axis=0)


def mean(tasks: Tasks) -> np.ndarray:
    """Return the mean of the tasks' means."""
    return np.mean([task.mean(axis=0) for task in tasks], axis=0)


def ahead(both: Tasks) -> np.ndarray:
    """Return by how much the interquartile mean of the first half of the list is above that of the second."""
    return iqm(both[: len(both) // 2]) - iqm(both[len(both) // 2 :])


def improvement(both: Tasks) -> np.ndarray:
    """Return the probability of improvement: of a run of the first half of the list over one of the second, on a random task."""
    half = len(both) // 2
    return np.mean([chance(ours, theirs) for ours, theirs in zip(both[:half], both[half:], strict=True)], axis=0)


def chance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return how often one of ours [seeds, ...] is above one of theirs [seeds, ...], of all pairs; equal ones count half."""
    above, equal = ours[:, None] > theirs[None], ours[:, None] == theirs[None]
    return (above + 0.5 * equal).mean(axis=(0, 1))


def estimate(tasks: Tasks, statistic: Callable[[Tasks], np.ndarray]) -> Estimate:
    """Return a statistic of tasks, each [seeds], and its interval."""
    several = min(map(len, tasks)) > 1
    low, high = stratified(tasks, statistic) if several else (np.nan, np.nan)
    return Estimate(float(statistic(tasks)), float(low), float(high))
