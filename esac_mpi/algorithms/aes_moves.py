"""Move AES-RL's distribution by an arrival, on rank 0: by return, or rank among the newest."""

import numpy as np

from esac_mpi.algorithms.aes_state import State
from esac_mpi.algorithms.aes_work import Result
from esac_mpi.config import AESRL, exact
from esac_mpi.operators import distribution, update_rules
from esac_mpi.operators.distribution import Gaussian
from esac_mpi.operators.evolution import select_winners, shifted


def move(aes: AESRL, state: State, result: Result) -> float:
    """Move the distribution by an individual, not before `start_steps`; return the mean's move."""
    moves = state.counters.nominal_steps >= aes.start_steps
    if aes.mean_rule == "rank_oldest":
        return move_by_rank(aes, state, result, moves)
    return move_by_return(aes, state, result, moves)


def move_by_return(aes: AESRL, state: State, result: Result, moves: bool) -> float:
    """Move the distribution by one arrival alone: Eqs. (4) to (12)."""
    fitness = shifted(result.episodic_return, result.length, aes.shift)
    of_mean = shifted(state.mean_return, state.length_of_mean, aes.shift)
    p, n = update_rules.update(aes, fitness, of_mean)
    if not moves:
        return 0.0
    new = distribution.move(
        Gaussian(state.mean, state.variance), result.theta, p, n, aes.variance_floor
    )
    if aes.variance_rule == "success" and np.isfinite(fitness):
        succeeded = not fitness <= of_mean  # a mean whose return is not finite gives way
        state.successes, factor = update_rules.variance_factor(aes, state.successes, succeeded)
        new = distribution.scale_variance(new, factor, aes.variance_floor)
    state.mean[:], state.variance[:] = new
    return p


def move_by_rank(aes: AESRL, state: State, result: Result, moves: bool) -> float:
    """Replace the oldest individual, move to the best: Eqs. (1), (2); not before places are full.

    Rank-based oldest: arrival number a = 0, 1, ... goes to place a mod size, where the oldest was.
    The step is 1 / size, and so is the exponent of tau.
    """
    size, place = len(state.ring), state.told % len(state.ring)
    state.ring[place] = result.theta
    state.ring_fitness[place] = shifted(result.episodic_return, result.length, aes.shift)
    count = max(1, round(exact(aes.elite_fraction) * size))
    best = select_winners(state.ring_fitness, count)
    full = state.told + 1 >= size
    if not (moves and full and best.size):
        return 0.0
    weights = distribution.rank_weights(best.size, aes.elite_weights)
    state.damp = distribution.damped(state.damp, aes.damp_tau ** (1 / size), aes.damp_limit)
    old = Gaussian(state.mean, state.variance)
    new = distribution.refit(
        old, state.ring[best], weights, state.damp, aes.cov_extra_div, 1 / size
    )
    state.mean[:], state.variance[:] = new
    return float(weights[best == place].sum()) / size
