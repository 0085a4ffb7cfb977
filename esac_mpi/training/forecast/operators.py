"""What ranks do beside playing, measured: individuals that learn, children and mutations, by the operators that a run has."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.config import AESRL, CEMRL, ERL, Config
from esac_mpi.operators import genetics
from esac_mpi.operators.genetics import Spread
from esac_mpi.operators.policy import Layout

BATCHES = 4  # of states that a measured child imitates
UPDATES = 50  # of a measured individual
STATES = 10_000  # random ones, that they learn from
MEASURING = 0.3  # repeated for this time [s]


def seconds(config: Config, layout: Layout) -> dict[str, float]:
    """Return the times of an algorithm's operators on this rank [s], as fields of Pieces; nothing for one that has none.

    Raises NotInstalled.
    """
    own, random = config.own, np.random.default_rng(0)
    theta, states = (
        layout.initial(config.seed, 0),
        random.standard_normal((STATES, layout.sizes[0]), dtype=np.float32),
    )
    if isinstance(own, CEMRL | AESRL):
        climbing = learners.make_operators("individuals", config, layout)
        critic = random.uniform(-0.1, 0.1, climbing.critic_size).astype(np.float32)
        lasted = usual(lambda: climbing.trained(theta, critic, states, UPDATES, random))
        return {"training": lasted / UPDATES}
    return of_births(config, own, layout, theta, states, random) if isinstance(own, ERL) else {}


def of_births(
    config: Config,
    erl: ERL,
    layout: Layout,
    theta: np.ndarray,
    states: np.ndarray,
    random: np.random.Generator,
) -> dict[str, float]:
    """Return the times of a child and of a mutation of theta [d], in states [n, o]."""
    spread = Spread(
        erl.mutated_fraction,
        erl.mutation_strength,
        erl.super_strength,
        erl.super_probability,
        erl.reset_probability,
    )
    found = {"crossing": usual(lambda: genetics.n_point(theta, theta, layout, random))}
    found["mutating"] = usual(lambda: genetics.gaussian(theta, layout, spread, random))
    if erl.crossover == "n_point" and erl.mutation == "gaussian":
        return found
    operators: Any = learners.make_operators("genetic", config, layout)
    critic = random.uniform(-0.1, 0.1, operators.critic_size).astype(np.float32)
    imitated = np.resize(states, (BATCHES * erl.distillation_batch, states.shape[1]))
    parents, steps = (theta, -theta), erl.distillation_epochs * BATCHES
    if erl.crossover == "distillation":
        found["imitating"] = (
            usual(lambda: operators.distilled(parents, theta, imitated, critic, random)) / steps
        )
    if erl.mutation == "proximal":
        found["mutating"] = usual(
            lambda: operators.proximal(
                theta, np.resize(states, (erl.mutation_batch, states.shape[1])), random
            )
        )
    return found


def usual(action: Callable[[], Any]) -> float:
    """Return the median time of a call, of those made for some time after a first one [s]."""
    action()
    marks = [time.perf_counter()]
    while len(marks) < 2 or marks[-1] < marks[0] + MEASURING:
        action()
        marks.append(time.perf_counter())
    return float(np.median(np.diff(marks)))
