"""Operators of evolution strategies and of ESAC: pure numpy, no state, no randomness of their own.

Sources: OpenAI-ES (Salimans et al. 2017), ESAC (Suri et al.), Adam (Kingma and Ba 2015), the
one-fifth rule (Rechenberg 1973). Vectors over parameters may be blocks of theta: every operator on
them is elementwise.
"""

import math
import zlib
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
PHASE_EVERY = 5  # the public code of ESAC: generations between chances of a SAC phase
P_SAC_LAST = 0.1  # where its p_sac falls to, from 1
P_SAC_DECAY = 1200.0  # and how fast [generations]
FIFTH_RATE = 0.1  # by which log sigma grows where every member is better than theta_es
SIGMA_SPAN = 5.0  # the floor is sigma(1) / 5, the ceiling 5 sigma(1)
Real = TypeVar("Real", float, np.ndarray)


def shifted(returns: Real, length: Real, shift: float) -> Real:
    """Return the fitness: the return less `shift` for each step, means over the same episodes.

    Source: Mania, Guy and Recht 2018 (ARS): `shift` is the task's bonus for survival.
    """
    return returns - shift * length if shift else returns


def centered_ranks(fitness: np.ndarray) -> np.ndarray:
    """Return ranks of `fitness` [n] scaled to [-0.5, 0.5], float64 [n].

    Ties share their average rank, so equal returns give a zero gradient; not finite ranks last.
    """
    if fitness.size < 2:
        return np.zeros(fitness.size)
    _, inverse, counts = np.unique(or_least(fitness), return_inverse=True, return_counts=True)
    average = np.cumsum(counts) - (counts + 1) / 2  # of the 0-based ranks of each distinct value
    return average[inverse] / (fitness.size - 1) - 0.5


def shaped(shaping: str, fitness: np.ndarray, sign_return: np.ndarray) -> np.ndarray:
    """Shape returns and reward-sign sums [n] as config says: the F_i of line 11, float64 [n]."""
    if shaping == "sign":
        return worst_for_not_finite(sign_return)
    if shaping == "sign_ranks":
        return centered_ranks(sign_return)
    return standardised(fitness) if shaping == "standardised" else centered_ranks(fitness)


def standardised(fitness: np.ndarray) -> np.ndarray:
    """Standardise to (fitness - mean) / std, float64 [n], zeros if all are equal.

    Source: the blog of OpenAI-ES. A value that is not finite counts as the least that is.
    """
    finite = worst_for_not_finite(fitness)
    gap, std = finite - finite.mean(), finite.std()
    return gap / std if std and np.ptp(finite) else np.zeros(fitness.size)  # a mean may be rounded


def worst_for_not_finite(fitness: np.ndarray) -> np.ndarray:
    """Replace what is not finite in `fitness` [n] by the least that is; zeros if none is."""
    finite = np.isfinite(fitness)
    return np.where(finite, fitness, fitness[finite].min() if finite.any() else 0.0)


def or_least(values: np.ndarray) -> np.ndarray:
    """Replace what is not finite in `values` by -inf, so that it ranks last."""
    return np.where(np.isfinite(values), values, -np.inf)


def select_winners(fitness: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` best of `fitness` [n], best first; ties by index.

    Only what is finite wins: there may be fewer.
    """
    finite = np.flatnonzero(np.isfinite(fitness))
    return finite[np.argsort(-fitness[finite], kind="stable")[:count]]


def slot_weights(shaped: np.ndarray, pairs: bool) -> np.ndarray:
    """Return each slot's factor of its epsilon in sum_i F_i eps_i, float32 [slots].

    Members 2j and 2j+1 of a pair have +eps_j and -eps_j; without pairs a member is a slot.
    """
    return (shaped[0::2] - shaped[1::2] if pairs else shaped).astype(np.float32)


def slot_offsets(shaped: np.ndarray, pairs: bool) -> np.ndarray:
    """Sum F_i per slot, for parents' offsets in sum_i F_i (theta_i - theta_es), float32 [slots]."""
    return (shaped[0::2] + shaped[1::2] if pairs else shaped).astype(np.float32)


def clip_to_noise(squares: np.ndarray, d: int) -> np.ndarray:
    """Clip displacements of squared norms [n] to sqrt(d), epsilon's usual norm: factors [n]."""
    return np.sqrt(d / np.maximum(squares, d))


def adam_step(gradient: np.ndarray, m: np.ndarray, v: np.ndarray, t: int, lr: float) -> np.ndarray:
    """Take Adam's ascent step t = 1, 2, ...; update moments m, v in place. All float32 [size]."""
    beta1, beta2 = ADAM_BETAS
    m += np.float32(1 - beta1) * (gradient - m)
    v += np.float32(1 - beta2) * (gradient * gradient - v)
    scale = lr * np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return np.float32(scale) * m / (np.sqrt(v) + np.float32(ADAM_EPSILON * np.sqrt(1 - beta2**t)))


def surpasses(challenger: np.ndarray, holder: np.ndarray) -> bool:
    """Test whether a policy's returns exceed another's by more than chance.

    Both [m], m >= 2, are from the same start states; more than chance is over twice the standard
    error of the mean of their differences. A return that is not finite is the worst.
    """
    if not np.isfinite(challenger).all():
        return False
    if not np.isfinite(holder).all():
        return True
    difference = challenger - holder
    return bool(difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(difference.size))


def smooth_l1(x: float, y: float) -> float:
    """Return the Huber loss of two scalars. Eq. (4)."""
    gap = abs(x - y)
    return 0.5 * gap * gap if gap < 1 else gap - 0.5


def amt_step(
    returns: np.ndarray, n: int, sigma: float, lr_es: float, clip: float
) -> tuple[float, float]:
    """Return AMT's increase of sigma, clipped to [0, clip], and unclipped. Eqs. (5) and (6).

    R_max and R_avg are best and mean of the finite `returns` [members]; n: Algorithm 1, line 11.
    """
    finite = returns[np.isfinite(returns)]
    raw = lr_es / (n * sigma) * smooth_l1(float(finite.max()), float(finite.mean()))
    return min(max(raw, 0.0), clip), raw


def phases_by(generation: float) -> float:
    """Return how many SAC phases ESAC's public code begins by a generation: 142 by the 1,000th.

    As expected, and continuous: a fifth of the integral of p_sac over generations.
    """
    fallen = (1 - P_SAC_LAST) * P_SAC_DECAY * -math.expm1(-generation / P_SAC_DECAY)
    return (P_SAC_LAST * generation + fallen) / PHASE_EVERY


def success_share(members: np.ndarray, centre: np.ndarray) -> float:
    """Return the share of pairs (member, episode of theta_es) that the member wins; a tie is half.

    Noise alone gives one half, whatever its distribution. A return that is not finite is the worst.
    """
    worst = or_least(members)[:, None]
    return float((worst > centre).mean() + 0.5 * (worst == centre).mean())


def one_fifth(sigma: float, share: float) -> float:
    """Adapt sigma by the one-fifth rule: it grows where more than a fifth of members succeed."""
    return sigma * math.exp(FIFTH_RATE * (share - 0.2) / 0.8)


def adapt_sigma(sigma: float, first: float, members: np.ndarray, centre: np.ndarray) -> float:
    """Adapt sigma by the one-fifth rule, in its span; kept if theta_es has a return not finite.

    first: sigma(1). members, centre: returns of members around theta_es and of its own episodes.
    """
    if not np.isfinite(centre).all():
        return sigma
    adapted = one_fifth(sigma, success_share(members, centre))
    return min(max(adapted, first / SIGMA_SPAN), first * SIGMA_SPAN)


def exchanges(
    random: np.random.Generator, length: int, matrix: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows of a tensor to exchange, int64 [n], and in which of two directions, bool [n].

    n is uniform, below twice the rows of a matrix and below the length of a vector.
    """
    count = random.integers(2 * length if matrix else length)
    return random.integers(length, size=count), random.random(count) < 0.5


def exchanged_rows(random: np.random.Generator, shapes: Iterable[tuple[int, ...]]) -> np.ndarray:
    """Return which rows a child takes from its winner, bool [rows of all tensors]."""
    parts = []
    for length, *columns in shapes:
        taken = np.zeros(length, bool)
        rows, to_child = exchanges(random, length, bool(columns))
        taken[rows[to_child]] = True
        parts.append(taken)
    return np.concatenate(parts)


def pull(theta: np.ndarray, mean_winner: np.ndarray, strength: float) -> np.ndarray:
    """Return theta [size] moved by `strength` towards the mean of the winners [size]."""
    return theta + np.float32(strength) * (mean_winner - theta)


def mutated(parent: np.ndarray, epsilon: np.ndarray, sign: int, sigma: float) -> np.ndarray:
    """Return parent + sign * sigma * epsilon, float32 [size]. Algorithm 1, line 7."""
    return parent + np.float32(sign * sigma) * epsilon


def checksum(theta: np.ndarray) -> float:
    """Return a checksum of a block."""
    return float(zlib.crc32(theta.tobytes()))


def squares(x: np.ndarray) -> float:
    """Return the sum of squares of a block, summed in float64."""
    return inner(x, x)


def inner(x: np.ndarray, y: np.ndarray) -> float:
    """Return the inner product of two blocks, summed in float64."""
    return float(np.sum(np.multiply(x, y, dtype=np.float64)))
