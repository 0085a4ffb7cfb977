"""Generations of the ERL family: who is born ERL itself draws (erl_births), as of a population whose returns are in any order.

Parents are taken as by fitness, since what a child takes does not depend on whose it is. Memories are as full as members are old.
"""

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS, erl_births
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import Config, updated
from esac_mpi.config.genetic import imitations
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.selection import Births, Kind
from esac_mpi.training.forecast.learners import updates


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a population that is bred, beside which the learner's phase runs."""
    erl: Any = config.own
    options = getattr(config, ALGORITHMS[config.algorithm].DECLARES.learning.learner(config))
    episodes = erl.population_size * erl.fitness_episodes + 1  # the learner's own is the last
    steps, mine = episodes * pieces.length, erl.fitness_episodes * pieces.length
    for k in count(1):
        births = drawn(config, k)
        born = lasting(erl, births, pieces, min(erl.memory_size, round(k * mine)))
        one = Generation(
            members=pieces.lasting(episodes, k),
            expected=np.ones(episodes),
            offspring=born,
            offspring_expected=np.where(births.kind == Kind.CHILD, 1.0, erl_births.MUTATING),
            beside=updates(options, k * steps, steps) * pieces.updating,
            merges=True,
        )
        yield Made(one, steps, steps)


def drawn(config: Config, k: int) -> Births:
    """Return who is born in generation k, of members whose returns are in any order."""
    greedy = (
        updated(config, {"erl.parent_selection": "greedy"})
        if config.erl.crossover == "distillation"
        else config
    )
    fitness = (
        generator(config.seed, Purpose.SELECTION, k, 1)
        .permutation(config.erl.population_size)
        .astype(float)
    )
    params: Any = SimpleNamespace(config=greedy)
    return erl_births.decide(params, SimpleNamespace(), k, SimpleNamespace(fitness=fitness)).births  # type: ignore[arg-type]


def lasting(erl: Any, births: Births, pieces: Pieces, held: int) -> np.ndarray:
    """Return what each slot's next member takes [k] [s]; held: transitions in a member's memory."""
    imitated = (
        imitations(2 * min(held, erl.memory_size // 2), erl.distillation_batch)
        * erl.distillation_epochs
    )
    child = imitated * pieces.imitating if erl.crossover == "distillation" else pieces.crossing
    return (births.kind == Kind.CHILD) * child + births.mutated * pieces.mutating
