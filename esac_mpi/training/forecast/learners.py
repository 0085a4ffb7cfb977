"""Generations of a learner alone; what updates a learner owes for its steps; its threads."""

import math
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import PPO, SAC, Config

# multiplications of a matrix product worth a thread: 2x128 in batches of 256 gain by two
# (performance.md)
SHARE = 128**3


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a learner alone, on rank 0."""
    options: Any = config.own
    steps = options.steps_per_generation
    for k in count(1):
        seconds = updates(options, k * steps, steps) * pieces.updating + steps * pieces.playing
        yield Made(Generation(np.zeros(0), np.ones(0), phase=seconds), steps, steps)


def off_policy(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of TD3 or DDPG, whose episodes all ranks may play."""
    options: Any = config.own
    if options.episodes_on == "root":
        yield from generations(config, pieces)
    episodes = options.episodes_per_generation
    steps = episodes * pieces.length
    for k in count(1):
        seconds = updates(options, k * steps, steps) * pieces.updating
        one = Generation(pieces.lasting(episodes, k), np.ones(episodes), phase=seconds)
        yield Made(one, steps, steps)


def updates(options: Any, done: float, steps: float) -> float:
    """Count the updates for the last `steps` of `done` training steps; options: the learner's."""
    if isinstance(options, PPO):
        return options.epochs * math.ceil(steps / (options.batch_size or steps))
    # SAC learns from its random steps at once
    before = 0 if isinstance(options, SAC) else options.start_steps
    return float(np.clip(done - before, 0, steps)) * options.updates_per_step


def threads_that_gain(config: Config, cores: list[int], ranks: int) -> int:
    """Count the threads that make a learner faster without taking a core from another rank.

    cores: those that rank 0 may run on; ranks: of its node.
    """
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    settings = vars(config.own)
    if learning:
        settings = settings | vars(getattr(config, learning.learner(config), config.own))
    widest = max((a * b for a, b in pairwise(config.policy.hidden)), default=0)
    product = settings.get("batch_size", 0) * widest
    return max(1, min(1 + len(cores) - ranks, product // SHARE))
