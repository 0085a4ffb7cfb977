"""Generations of a learner alone, and the threads that it gains by."""

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import shared_episodes, updates_owed
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import NAMES, Config, table_of, value_of

# multiplications of a matrix product worth a thread: 2x128 in batches of 256 gain by two
# (performance.md)
SHARE = 128**3


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a learner alone, on rank 0; all ranks may play its episodes."""
    options: Any = config.own
    shared, name = shared_episodes(config), config.algorithm
    steps = shared * pieces.length or options.steps_per_generation
    playing = 0.0 if shared else steps * pieces.playing
    for k in count(1):
        seconds = updates_owed(config, name, k * steps, steps) * pieces.updating + playing
        yield Made(
            Generation(pieces.lasting(shared, k), np.ones(shared), phase=seconds), steps, steps
        )


def threads_that_gain(config: Config, cores: list[int], ranks: int) -> int:
    """Count the threads that make a learner faster without taking a core from another rank.

    cores: those that rank 0 may run on; ranks: of its node.
    """
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return 1
    tables = learning.learner(config), table_of(config.algorithm)
    names = [f"{table}.batch_size" for table in tables if f"{table}.batch_size" in NAMES]
    widest = max((a * b for a, b in pairwise(config.policy.hidden)), default=0)
    product = value_of(config, names[0]) * widest if names else 0
    return max(1, min(1 + len(cores) - ranks, product // SHARE))
