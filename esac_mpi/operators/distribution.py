"""The distribution of CEM, CEM-RL and AES-RL: a mean and a variance for each parameter.

Sources: AES-RL (Lee et al. 2020), whose equations the lines name; CEM-RL (Pourchot and Sigaud
2019); importance mixing (Pourchot et al. 2018); the public code of all. Pure numpy, no randomness
of its own. Any rank makes any individual from mean, variance and the address of its epsilon. A
Gaussian may be that of a block of theta: operators are elementwise, sums over individuals have the
order in which these are given, and what is summed over parameters (`log_ratio`) the caller adds in
block order. Where we differ from the public code:

- Individuals whose fitness is not finite are no elites. Where that leaves fewer, they share the
  weights.
- The mean moves by weighted differences from the old one, so that the rounding of weights does not
  make it drift.
- Individuals that importance mixing keeps have their own fitness. There their places are shifted by
  the number of the trained, and they have one another's.
"""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np


class Gaussian(NamedTuple):
    """A normal distribution with a diagonal covariance, or a block of it."""

    mean: np.ndarray  # float32 [size]
    variance: np.ndarray  # float32 [size]


class Mixing(NamedTuple):
    """The members of a generation under importance mixing; both int64, ascending, n together."""

    kept: np.ndarray  # individuals of the old generation, with their fitness
    drawn: np.ndarray  # candidates, by the slot of their epsilon


def slot_and_sign(individual: int, n: int, mirrored: bool) -> tuple[int, int]:
    """Return slot and sign of the epsilon of one of n individuals, n even where `mirrored`.

    The second half mirrors the first, so CEM-RL, which trains the first half, trains one per pair.
    """
    if mirrored and individual >= n // 2:
        return individual - n // 2, -1
    return individual, 1


def sample(gaussian: Gaussian, epsilon: np.ndarray, sign: int = 1) -> np.ndarray:
    """Return the individual mean + sign * sqrt(variance) * epsilon, float32 [size]."""
    return gaussian.mean + np.float32(sign) * np.sqrt(gaussian.variance) * epsilon


def rank_weights(count: int, weights: Literal["log", "equal"]) -> np.ndarray:
    """Weigh the elites by lambda_i of Eq. (1), best first, float32 [count], adding up to 1.

    log: log((1 + K_e) / i), normalised; equal: 1 / K_e.
    """
    if weights == "equal":
        return np.full(count, 1 / count, np.float32)
    logs = np.log((1 + count) / np.arange(1, count + 1))
    return (logs / logs.sum()).astype(np.float32)


def damped(damp: float, tau: float, limit: float) -> float:
    """Draw the epsilon of Eq. (2) from the last generation's towards its limit."""
    return tau * damp + (1 - tau) * limit


def refit(
    gaussian: Gaussian,
    elites: Iterable[np.ndarray],
    weights: np.ndarray,
    damp: float,
    cov_extra_div: bool,
    step: float = 1.0,
) -> Gaussian:
    """Return the distribution after a generation: Eqs. (1) and (2).

    elites: blocks [size], best first (`evolution.select_winners`), of their `weights` [count]. The
    variance is that around the old mean. cov_extra_div: it is divided by the number of elites once
    more, as in the public code. step: share of the way to the elites' mean.
    """
    move, spread = np.zeros_like(gaussian.mean), np.zeros_like(gaussian.mean)
    for weight, elite in zip(weights, elites, strict=True):
        gap = elite - gaussian.mean
        move += weight * gap
        spread += weight * gap * gap
    if cov_extra_div:
        spread /= np.float32(weights.size)
    return Gaussian(gaussian.mean + np.float32(step) * move, spread + np.float32(damp))


def move(gaussian: Gaussian, individual: np.ndarray, p: float, n: float, floor: float) -> Gaussian:
    """Move the distribution by the arrival of one individual [size]: Eqs. (4) and (11).

    p: how far the mean moves to it, negative for away from it; n: of how many its weight in the
    variance is one, infinite where the variance stays as it is; floor: the least variance after a
    change.
    """
    mean, variance = gaussian
    if p:
        share = np.float32(p)
        mean = (1 - share) * mean + share * individual  # Eq. (4)
    if math.isinf(n):
        return Gaussian(mean, variance)
    spread = (individual - gaussian.mean) * (individual - mean)
    variance = variance + (spread - variance) / np.float32(n)  # Eq. (11)
    return Gaussian(mean, np.maximum(variance, np.float32(floor)))


def scale_variance(gaussian: Gaussian, factor: float, floor: float) -> Gaussian:
    """Scale the variance by `factor`, but not below `floor`; a factor of 1 changes nothing."""
    if factor == 1:
        return gaussian
    variance = np.maximum(np.float32(factor) * gaussian.variance, np.float32(floor))
    return gaussian._replace(variance=variance)


def log_ratio(individual: np.ndarray, new: Gaussian, old: Gaussian) -> float:
    """Compute the log of an individual's density under `new` over that under `old`, of a block."""
    return log_density(individual, new) - log_density(individual, old)


def log_density(individual: np.ndarray, gaussian: Gaussian) -> float:
    """Compute the log of an individual's density but for a constant, of a block, in float64."""
    mean, variance = (x.astype(np.float64) for x in gaussian)
    return -0.5 * float(np.sum(np.log(variance) + np.square(individual - mean) / variance))


def mix(n: int, old: np.ndarray, candidates: np.ndarray, random: np.random.Generator) -> Mixing:
    """Choose by importance mixing who of the old and of the candidates makes a generation of n.

    old: `log_ratio` [m] of the old individuals; candidates: that of as many candidates, drawn from
    the new distribution, slots 0, 1, ... In turn, until there are n, an old individual stays with
    probability min(1, new / old) and a candidate joins with max(0, 1 - old / new). Candidates of
    slots m, m + 1, ... fill what is left. A ratio of -inf or nan keeps an individual out.
    """
    luck = np.log(1 - random.random((len(old), 2)))
    stays, joins = luck[:, 0] < old, luck[:, 1] >= -candidates
    counted = np.cumsum(np.stack([stays, joins], axis=1))
    before = np.concatenate([[0], counted])[:-1].reshape(-1, 2)  # who are in before each
    kept = np.flatnonzero(stays & (before[:, 0] < n))
    drawn = np.flatnonzero(joins & (before[:, 1] < n))
    rest = n - len(kept) - len(drawn)
    return Mixing(kept, np.concatenate([drawn, np.arange(len(old), len(old) + rest)]))


def replace_one(chosen: Mixing, random: np.random.Generator) -> Mixing:
    """Replace one, by chance, with a new candidate where all old individuals would stay. Ours.

    Else the distribution would see the same individuals again, and less and less of its variance,
    until nobody ever plays.
    """
    kept, drawn = chosen
    if drawn.size or not kept.size:
        return chosen
    return Mixing(np.delete(kept, random.integers(kept.size)), np.array([kept.size]))
