"""Generations of a learner alone, whose episodes the ranks may share; what updates a learner owes for its steps; its threads."""

import math
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import PPO, SAC, Config

SHARE = (
    128**3
)  # multiplications of a matrix product that are worth a thread: 2x128 in batches of 256 gain by two (performance.md)


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a learner alone."""
    options: Any = config.own
    shared = getattr(options, "episodes_on", "root") == "ranks"
    episodes = options.episodes_per_generation if shared else 0
    steps = episodes * pieces.length if shared else options.steps_per_generation
    for k in count(1):
        seconds = updates(options, k * steps, steps) * pieces.updating + steps * pieces.playing * (
            not shared
        )
        yield Made(
            Generation(pieces.lasting(episodes, k), np.ones(episodes), phase=seconds), steps, steps
        )


def updates(options: Any, done: float, steps: float) -> float:
    """Return the updates of a generation for the last `steps` of its `done` training steps; options: the learner's."""
    if isinstance(options, PPO):
        return options.epochs * math.ceil(steps / (options.batch_size or steps))
    before = (
        0 if isinstance(options, SAC) else options.start_steps
    )  # SAC learns from its random steps at once
    return float(np.clip(done - before, 0, steps)) * options.updates_per_step


def threads_that_gain(config: Config, cores: list[int], ranks: int) -> int:
    """Return how many threads a learner can have that make it faster, without taking a core from another rank.

    cores: those that rank 0 may run on; ranks: of its node.
    """
    learning, own = ALGORITHMS[config.algorithm].DECLARES.learning, config.own
    table = getattr(config, learning.learner(config), own) if learning else own
    batch = getattr(table, "batch_size", getattr(own, "batch_size", 0))
    product = batch * max((a * b for a, b in pairwise(config.policy.hidden)), default=0)
    return max(1, min(1 + len(cores) - ranks, product // SHARE))
