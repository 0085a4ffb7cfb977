"""What AES-RL makes of one arrival: the mean's move, its weight in the variance, who is trained.

Source: AES-RL (Lee et al. 2020), whose equations the lines name, and its public code. Numbers
alone; `distribution.moved` does what they say. f_z is an individual's fitness, f_mean that of the
mean, larger is better. Where we differ:

- p_positive and p_negative, which the paper gives to (6), (8) and (10), weigh (9) too; (9) as
  printed has both 1.
- An individual or a mean so far below the baseline that the denominator of (9) or (10) is not
  positive: above the baseline the individual is all that counts, p = p_positive; at it or below it
  p = 0, as the paper says of (10).
- An individual whose fitness is not finite changes nothing. A mean of which no finite return is
  known gives way: p = p_positive.
- The public code freezes the history of the 1/5 rule once it is full; here it slides
  (`SuccessRule.frozen`).
"""

import math
from typing import Literal, NamedTuple

import numpy as np


class MeanRule(NamedTuple):
    """How the mean moves."""

    rule: Literal["full_move", "linear", "sigmoid", "absolute", "relative"]
    # r of linear and sigmoid, f_b of absolute and relative; positive but for absolute [return]
    scale: float = 1.0
    p_positive: float = 1.0  # p_sg of a superior individual
    p_negative: float = 0.0  # p_sg of an inferior one
    signless: bool = False  # sigmoid without p_sg, as in the public code


class VarianceRule(NamedTuple):
    """How the variance moves."""

    rule: Literal["fixed", "adaptive", "success"]  # success: by `variance_factor` alone
    n: float = 10.0  # of fixed [individuals]
    # a smaller p leaves the variance as it is, as in the public code; 0 = the paper
    least_p: float = 1e-3


class SuccessRule(NamedTuple):
    """Rechenberg's 1/5 rule over a window."""

    threshold: float = 0.2  # share of successes above which the variance grows
    factor: float = 0.99  # of the variance where it shrinks; it grows by the inverse
    frozen: bool = False  # a full history stays what it is, as in the public code


class Update(NamedTuple):
    """What an arrival does to the distribution."""

    p: float  # of Eq. (4)
    n: float  # of Eq. (11); infinite where the variance stays as it is


def update(mean_rule: MeanRule, variance_rule: VarianceRule, f_z: float, f_mean: float) -> Update:
    """Weigh what an individual of fitness f_z does to a distribution whose mean has f_mean."""
    if not math.isfinite(f_z):
        return Update(0.0, math.inf)
    p = update_ratio(mean_rule, f_z, f_mean)
    return Update(p, weight_of_past(variance_rule, p))


def update_ratio(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Compute p of Eq. (4), -1 to 1: 1 moves the mean to the individual, below 0 away from it."""
    if not math.isfinite(f_z):
        return 0.0
    if not math.isfinite(f_mean):
        return 1.0 if rule.rule == "full_move" else rule.p_positive
    return RATIOS[rule.rule](rule, f_z, f_mean) or 0.0  # no negative zero


def full_move(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Return p of the (1+1)-ES. Eq. (5)."""
    return 1.0 if f_mean < f_z else 0.0


def linear(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Return p of the fixed range, linear. Eqs. (6) and (7)."""
    return _sign_factor(rule, f_mean < f_z) * _clipped((f_z - f_mean) / rule.scale)


def sigmoid(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Compute p of the fixed range, sigmoid. Eqs. (7), (8); to inferiors too if p_negative > 0."""
    x = (f_z - f_mean) / rule.scale
    decay = math.exp(-abs(x))
    p = (1 if x >= 0 else decay) / (1 + decay)
    return p if rule.signless else _sign_factor(rule, f_mean < f_z) * p


def absolute(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Return p of the absolute baseline. Eq. (9)."""
    return _over_baseline(rule, f_z - rule.scale, f_mean - rule.scale)


def relative(rule: MeanRule, f_z: float, f_mean: float) -> float:
    """Return p of the relative baseline. Eq. (10): f_rb = f_mean - f_b."""
    return _over_baseline(rule, f_z - f_mean + rule.scale, rule.scale)


RATIOS = {
    "full_move": full_move,
    "linear": linear,
    "sigmoid": sigmoid,
    "absolute": absolute,
    "relative": relative,
}


def _over_baseline(rule: MeanRule, individual: float, mean: float) -> float:
    """Return p of an individual and a mean that are so far above a baseline."""
    if individual + mean <= 0:
        return rule.p_positive if individual > 0 else 0.0
    return _sign_factor(rule, individual >= 0) * _clipped(individual / (individual + mean))


def _sign_factor(rule: MeanRule, superior: bool) -> float:
    """Return p_sg. Eq. (7)."""
    return rule.p_positive if superior else rule.p_negative


def _clipped(ratio: float) -> float:
    return min(max(ratio, -1.0), 1.0)


def weight_of_past(rule: VarianceRule, p: float) -> float:
    """Return n of Eq. (11): fixed, or by Eq. (12); infinite where the variance stays as it is."""
    if rule.rule == "success" or (rule.least_p and p < rule.least_p):
        return math.inf
    if rule.rule == "fixed":
        return rule.n
    return max((1 - p) / p, 1.0) if p > 0 else math.inf  # Eq. (12)


def no_history(window: int) -> np.ndarray:
    """Make the 1/5 rule's empty history, int64 [window]: 1 success, 0 none, -1 nothing yet."""
    return np.full(window, -1)


def variance_factor(
    rule: SuccessRule, history: np.ndarray, success: bool
) -> tuple[np.ndarray, float]:
    """Record an arrival in the history [window], oldest first; return it and the variance's factor.

    That is 1 for the arrivals that fill the history.
    """
    full = history[0] >= 0
    if not full or not rule.frozen:
        history = np.append(history[1:], int(success))
    if not full:
        return history, 1.0
    return history, 1 / rule.factor if history.mean() > rule.threshold else rule.factor


def p_rl(n_rl: int, n_es: int, gain: float, desired: float) -> float:
    """Return the probability that gradients train the next individual. Eq. (3).

    n_rl, n_es: individuals so far that were trained and that were not, each counted from 1.
    """
    return min(max(-gain * (n_rl / (n_rl + n_es) - desired) + 0.5, 0.0), 1.0)


def settled(gain: float, desired: float) -> float:
    """Return the share of trained individuals at which p_rl is that share, where it settles."""
    return (gain * desired + 0.5) / (gain + 1)


def is_trained(
    n_rl: int, n_es: int, gain: float, desired: float, random: np.random.Generator
) -> bool:
    """Return whether gradients train the next individual, by chance."""
    return bool(random.random() < p_rl(n_rl, n_es, gain, desired))
