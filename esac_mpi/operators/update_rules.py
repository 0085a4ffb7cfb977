"""What AES-RL makes of one arrival: the mean's move, its weight in the variance, who is trained.

Source: AES-RL (Lee et al. 2020), whose equations the lines name, and its public code. Numbers
alone; `distribution.move` does what they say. f_z is an individual's fitness, f_mean that of the
mean, larger is better. Where we differ:

- p_positive and p_negative, which the paper gives to (6), (8) and (10), weigh (9) too; (9) as
  printed has both 1.
- An individual or a mean so far below the baseline that the denominator of (9) or (10) is not
  positive: above the baseline the individual is all that counts, p = p_positive; at it or below it
  p = 0, as the paper says of (10).
- An individual from which the mean moves away, p < 0, leaves the variance under an adaptive n; (12)
  as printed has n = 1 there.
- An individual whose fitness is not finite changes nothing. A mean of which no finite return is
  known gives way: p = p_positive.
- The public code freezes the history of the 1/5 rule once it is full; here it slides
  (`aes_rl.success_frozen`).
"""

import math

import numpy as np

from esac_mpi.config import AESRL


def update(aes: AESRL, f_z: float, f_mean: float) -> tuple[float, float]:
    """Weigh what an individual of fitness f_z does to a distribution whose mean has f_mean.

    Returns p of Eq. (4), and n of Eq. (11), infinite where the variance stays as it is.
    """
    if not math.isfinite(f_z):
        return 0.0, math.inf
    p = update_ratio(aes, f_z, f_mean)
    return p, weight_of_past(aes, p)


def update_ratio(aes: AESRL, f_z: float, f_mean: float) -> float:
    """Compute p of Eq. (4), -1 to 1: 1 moves the mean to the individual, below 0 away from it."""
    if not math.isfinite(f_mean):
        return 1.0 if aes.mean_rule == "full_move" else aes.p_positive
    superior, x = f_mean < f_z, (f_z - f_mean) / aes.fitness_range
    if aes.mean_rule == "full_move":  # of the (1+1)-ES, Eq. (5)
        p = float(superior)
    elif aes.mean_rule == "linear":  # fixed range, Eqs. (6) and (7)
        p = _sign_factor(aes, superior) * _clipped(x)
    elif aes.mean_rule == "sigmoid":  # fixed range, Eqs. (7), (8); to inferiors if p_negative > 0
        decay = math.exp(-abs(x))
        p = (1 if x >= 0 else decay) / (1 + decay)
        if not aes.sigmoid_signless:
            p *= _sign_factor(aes, superior)
    elif aes.mean_rule == "absolute":  # absolute baseline, Eq. (9)
        p = _over_baseline(aes, f_z + aes.absolute_baseline, f_mean + aes.absolute_baseline)
    else:  # relative baseline, Eq. (10): f_rb = f_mean - f_b
        p = _over_baseline(aes, f_z - f_mean + aes.relative_baseline, aes.relative_baseline)
    return p or 0.0  # no negative zero


def _over_baseline(aes: AESRL, individual: float, mean: float) -> float:
    """Return p of an individual and a mean that are so far above a baseline."""
    if individual + mean <= 0:
        return aes.p_positive if individual > 0 else 0.0
    return _sign_factor(aes, individual >= 0) * _clipped(individual / (individual + mean))


def _sign_factor(aes: AESRL, superior: bool) -> float:
    """Return p_sg. Eq. (7)."""
    return aes.p_positive if superior else aes.p_negative


def _clipped(ratio: float) -> float:
    return min(max(ratio, -1.0), 1.0)


def weight_of_past(aes: AESRL, p: float) -> float:
    """Return n of Eq. (11): fixed, or by Eq. (12); infinite where the variance stays as it is."""
    if aes.variance_rule == "success" or (aes.variance_least_p and p < aes.variance_least_p):
        return math.inf
    if aes.variance_rule == "fixed":
        return aes.variance_n
    return max((1 - p) / p, 1.0) if p > 0 else math.inf  # Eq. (12)


def variance_factor(aes: AESRL, history: np.ndarray, success: bool) -> tuple[np.ndarray, float]:
    """Record an arrival in the history [window], oldest first; return it and the variance's factor.

    Rechenberg's 1/5 rule over a window, int64: 1 a success, 0 none, -1 nothing yet. The factor is 1
    for the arrivals that fill the history.
    """
    full = history[0] >= 0
    if not full or not aes.success_frozen:
        history = np.append(history[1:], int(success))
    if not full:
        return history, 1.0
    grows = history.mean() > aes.success_threshold
    return history, 1 / aes.success_factor if grows else aes.success_factor


def p_rl(n_rl: int, n_es: int, gain: float, desired: float) -> float:
    """Return the probability that gradients train the next individual. Eq. (3).

    n_rl, n_es: individuals so far that were trained and that were not, each counted from 1.
    """
    return min(max(-gain * (n_rl / (n_rl + n_es) - desired) + 0.5, 0.0), 1.0)


def settled_share(gain: float, desired: float) -> float:
    """Return the share of trained individuals at which p_rl is that share, where it settles."""
    return (gain * desired + 0.5) / (gain + 1)


def is_trained(
    n_rl: int, n_es: int, gain: float, desired: float, random: np.random.Generator
) -> bool:
    """Return whether gradients train the next individual, by chance."""
    return bool(random.random() < p_rl(n_rl, n_es, gain, desired))
