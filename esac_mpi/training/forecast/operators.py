"""What ranks do beside playing, measured: individuals that learn, children and mutations."""

import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout

BATCHES = 4  # of states that a measured child imitates
UPDATES = 50  # of a measured individual
STATES = 10_000  # random ones, that they learn from
MEASURING = 0.3  # repeated for this time [s]


def seconds(config: Config, layout: Layout) -> dict[str, float]:
    """Measure an algorithm's operators on this rank [s], as fields of Pieces."""
    declares, random = ALGORITHMS[config.algorithm].DECLARES, np.random.default_rng(0)
    theta = layout.initial(config.seed, 0)
    states = random.standard_normal((STATES, layout.sizes[0]), dtype=np.float32)
    if declares.operators(config) == "individuals":
        climbing = learners.make_operators("individuals", config, layout)
        critic = random.uniform(-0.1, 0.1, climbing.critic_size).astype(np.float32)
        lasted = median_of_calls(lambda: climbing.trained(theta, critic, states, UPDATES, random))
        return {"training": lasted / UPDATES}
    if not declares.offspring(config):
        return {}
    erl = config.erl
    found = {
        "crossing": median_of_calls(lambda: genetics.n_point(theta, theta, layout, random)),
        "mutating": median_of_calls(lambda: genetics.gaussian(theta, layout, erl, random)),
    }
    if erl.crossover == "n_point" and erl.mutation == "gaussian":
        return found
    made: Any = learners.make_operators("offspring", config, layout)
    if erl.crossover == "distillation":
        critic = random.uniform(-0.1, 0.1, made.critic_size).astype(np.float32)
        imitated = np.resize(states, (BATCHES * erl.distillation_batch, states.shape[1]))
        parents = theta, -theta
        lasted = median_of_calls(lambda: made.distilled(parents, theta, imitated, critic, random))
        found["imitating"] = lasted / (erl.distillation_epochs * BATCHES)
    if erl.mutation == "proximal":
        seen = np.resize(states, (erl.mutation_batch, states.shape[1]))
        found["mutating"] = median_of_calls(lambda: made.proximal(theta, seen, random))
    return found


def median_of_calls(action: Callable[[], Any], at_least: float = MEASURING) -> float:
    """Return the median time of a call, of those made for some time after a first one [s]."""
    action()
    marks = [time.perf_counter()]
    while len(marks) < 2 or marks[-1] < marks[0] + at_least:
        action()
        marks.append(time.perf_counter())
    return float(np.median(np.diff(marks)))


def median_seconds(action: Callable[[], Any], repeats: int) -> float:
    """Return the median time of so many calls [s], as many on every rank."""
    return float(np.median(timeit.repeat(action, number=1, repeat=repeats)))
