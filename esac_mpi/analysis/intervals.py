"""Statistics over seeds and tasks, and their intervals (Agarwal et al. 2021, arXiv:2108.13264).

Their rliable is archived. A stratum is the runs of a task. The interval is the percentile
bootstrap: runs are drawn with replacement within each stratum, so that every draw has all tasks,
and the statistic of many such draws is cut at (1 - LEVEL) / 2 on both sides. Few seeds know little
about their own spread: the interval then is too narrow. What it covers, of normally distributed
seeds, was counted: see docs/how-to/analyse.md.

Every task counts the same. Where tasks have different numbers of runs, which that paper has not, a
run counts the more in the interquartile mean the fewer its task has: else that would tell apart
variants whose runs are of other tasks, and equally good.

The optimality gap of that paper, the mean of what is missing to 1, is 1 - mean here, where no score
is above 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
DRAWS = 2000
BATCH = 2_000_000  # numbers in memory at a time

Strata = Sequence[np.ndarray]  # of tasks, each [seeds, ...]; trailing axes may be draws
Statistic = Callable[[Strata], np.ndarray]


class Estimate(NamedTuple):
    """A statistic and its 95 % interval, nan where a stratum has one seed only."""

    value: float
    low: float
    high: float


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Average the middle half over the first axis: floor(n / 4) values are cut on each side."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def iqm(tasks: Strata) -> np.ndarray:
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


def median(tasks: Strata) -> np.ndarray:
    """Return the median of the tasks' means."""
    return np.median([task.mean(axis=0) for task in tasks], axis=0)


def mean(tasks: Strata) -> np.ndarray:
    """Return the mean of the tasks' means."""
    return np.mean([task.mean(axis=0) for task in tasks], axis=0)


def iqm_difference(both: Strata) -> np.ndarray:
    """Return the interquartile mean of the list's first half less that of its second half."""
    return iqm(both[: len(both) // 2]) - iqm(both[len(both) // 2 :])


def improvement(both: Strata) -> np.ndarray:
    """Compute how probably a run of the list's first half is ahead on a random task; ties half."""
    half = len(both) // 2
    pairs = zip(both[:half], both[half:], strict=True)
    return np.mean([chance(ours, theirs) for ours, theirs in pairs], axis=0)


def chance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the share of pairs where ours [seeds, ...] is above theirs; ties count half."""
    ahead = ours[:, None] - theirs[None]
    return ((ahead > 0) + 0.5 * (ahead == 0)).mean(axis=(0, 1))


def interval(
    strata: Strata, statistic: Statistic = iqm, draws: int = DRAWS
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap a statistic's interval, (low, high). Raises ValueError for one seed."""
    strata = [np.asarray(stratum) for stratum in strata]
    if not (strata and all(stratum.ndim for stratum in strata)):
        raise ValueError("expected a list of arrays, one for each task: interval([values])")
    if any(len(stratum) < 2 for stratum in strata):
        raise ValueError("an interval needs at least two seeds")
    random = np.random.default_rng(0)
    chosen = [random.integers(len(stratum), size=(len(stratum), draws)) for stratum in strata]
    step = max(1, BATCH // sum(stratum.size for stratum in strata))
    found = []
    for first in range(0, draws, step):
        drawn = [
            stratum[picks[:, first : first + step]]
            for stratum, picks in zip(strata, chosen, strict=True)
        ]
        found.append(statistic(drawn))
    low, high = np.quantile(np.concatenate(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def estimate(strata: Strata, statistic: Statistic) -> Estimate:
    """Return a statistic of strata, each [seeds], and its interval."""
    several = min(map(len, strata)) > 1
    low, high = interval(strata, statistic) if several else (np.nan, np.nan)
    return Estimate(float(statistic(strata)), float(low), float(high))
