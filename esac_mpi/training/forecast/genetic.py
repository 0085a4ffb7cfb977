"""Generations of the ERL family: who is born ERL itself draws (erl_births), of random returns.

Parents are taken as by fitness, since what a child takes does not depend on whose it is. Memories
are as full as members are old.
"""

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS, erl_births
from esac_mpi.algorithms.declaration import updates_owed
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import Config, amend, imitations
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.selection import Births, Kind


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a population that is bred, beside which the learner's phase runs."""
    erl = config.erl
    learner = ALGORITHMS[config.algorithm].DECLARES.learning.learner(config)
    episodes = erl.population_size * erl.fitness_episodes + 1  # the learner's own is the last
    steps = episodes * pieces.length
    for k in count(1):
        births = draw(config, k)
        held = min(erl.memory_size, round(k * erl.fitness_episodes * pieces.length))
        one = Generation(
            members=pieces.lasting(episodes, k),
            expected=np.ones(episodes),
            offspring=lasting(erl, births, pieces, held),
            offspring_expected=np.where(births.kind == Kind.CHILD, 1.0, erl_births.MUTATING),
            beside=updates_owed(config, learner, k * steps, steps) * pieces.updating,
            merges=True,
        )
        yield Made(one, steps, steps)


def draw(config: Config, k: int) -> Births:
    """Draw who is born in generation k, of members whose returns are in any order."""
    erl = config.erl
    if erl.crossover == "distillation":
        config = amend(config, {"erl.parent_selection": "greedy"})
    order = generator(config.seed, Purpose.SELECTION, k, 1).permutation(erl.population_size)
    params: Any = SimpleNamespace(config=config)
    state: Any = SimpleNamespace()
    return erl_births.decide(params, state, k, order.astype(float)).births


def lasting(erl: Any, births: Births, pieces: Pieces, held: int) -> np.ndarray:
    """Tell what each slot's next member takes [k] [s]; held: transitions in a member's memory."""
    child = pieces.crossing
    if erl.crossover == "distillation":
        steps = imitations(2 * min(held, erl.memory_size // 2), erl.distillation_batch)
        child = steps * erl.distillation_epochs * pieces.imitating
    return (births.kind == Kind.CHILD) * child + births.mutated * pieces.mutating
