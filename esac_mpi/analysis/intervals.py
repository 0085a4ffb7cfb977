"""Interquartile mean and its interval over seeds (Agarwal et al. 2021, arXiv:2108.13264).

Their rliable is archived. The interval is the percentile bootstrap: runs are drawn with replacement
within each stratum (a task), all strata are pooled, and the statistic of many such draws is cut at
(1 - level) / 2 on both sides. Few seeds know little about their own spread: the interval then is
too narrow. What it covers, of normally distributed seeds, was counted: see docs/how-to/analyse.md.
"""

from collections.abc import Callable, Sequence

import numpy as np

LEVEL = 0.95
DRAWS = 2000
BATCH = 2_000_000  # numbers in memory at a time

Statistic = Callable[[np.ndarray], np.ndarray]


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Average the middle half over the first axis: floor(n / 4) values are cut on each side."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the first axis."""
    return values.mean(axis=0)


def interval(
    strata: Sequence[np.ndarray],  # each [seeds, ...]
    statistic: Statistic = interquartile_mean,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap a pooled statistic in strata, (low, high). Raises ValueError for one seed."""
    return stratified(strata, lambda drawn: statistic(np.concatenate(drawn)), level, draws, seed)


def stratified(
    strata: Sequence[np.ndarray],  # each [seeds, ...]
    statistic: Callable[
        [list[np.ndarray]], np.ndarray
    ],  # of strata, each [seeds, draws, ...], to [draws, ...]
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of a statistic that is told a value's stratum. Raises ValueError, too."""
    if any(len(stratum) < 2 for stratum in strata):
        raise ValueError("an interval needs at least two seeds")
    random = np.random.default_rng(seed)
    chosen = [random.integers(len(stratum), size=(len(stratum), draws)) for stratum in strata]
    step = max(1, BATCH // sum(stratum.size for stratum in strata))
    found = []
    for first in range(0, draws, step):
        drawn = [
            stratum[picks[:, first : first + step]]
            for stratum, picks in zip(strata, chosen, strict=True)
        ]
        found.append(statistic(drawn))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
