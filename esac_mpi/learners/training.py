"""Parts of every learner's phase: random numbers, starts of episodes, number of updates due."""

import math
from typing import NamedTuple

import numpy as np

from esac_mpi.config import exact
from esac_mpi.envs import Env, UnstablePhysics
from esac_mpi.operators.noise import Purpose, generator, integer

STARTS = 1000  # tries, one after the other, after which no start state can be made


class Streams(NamedTuple):
    """The random numbers of a phase."""

    exploration: np.random.Generator
    sampling: np.random.Generator
    update: np.random.Generator  # whatever noise an update has


def streams(seed: int, k: int) -> Streams:
    """Return the random numbers of a phase."""
    return Streams(*(generator(seed, Purpose.LEARNER, k, member) for member in range(3)))


def start_episode(
    env: Env, seed: int, k: int, returns: list[float]
) -> tuple[int, np.ndarray] | None:
    """Start the next episode of phase k; return its seed and first observation.

    None where the task cannot start there; nan, that episode's return, is then appended to
    `returns`, those of the phase's episodes so far. Raises UnstablePhysics if the last STARTS are
    all nan: no start state can be made.
    """
    address = integer(seed, Purpose.LEARNER_EPISODE, k, block=len(returns))
    try:
        return address, env.reset(address)
    except UnstablePhysics:
        returns.append(math.nan)
        if len(returns) >= STARTS and np.isnan(returns[-STARTS:]).all():
            raise
        return None


def count_due(rate: float, since: int, now: int) -> int:
    """Count updates due for training steps after `since`; no fraction is lost between phases."""
    return round(exact(rate) * now) - round(exact(rate) * since)
