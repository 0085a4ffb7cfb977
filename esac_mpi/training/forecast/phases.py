"""What a learner's own steps and its updates take, measured on rank 0's core, or on its device."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi import config, envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config.reads import find_unread
from esac_mpi.play.learner_phases import Flight, Steps
from esac_mpi.play.params import Params

LONG = 10.0  # no further phase is begun after this time [s]
STORED = 10_000  # random transitions that it learns from
UPDATES = 50  # of a measured phase, at least


def prepare(params: Params, env: envs.Env) -> tuple[Any, Callable[[int], Steps]] | None:
    """Make the learner of a run, and what begins its k-th phase; None where nothing learns."""
    chosen = params.config
    learning = ALGORITHMS[chosen.algorithm].DECLARES.learning
    if learning is None or not learning.learns(chosen):
        return None
    steps = f"{chosen.algorithm}.interleaved"
    if steps in config.NAMES and find_unread(chosen, [steps]):  # its updates follow all episodes
        chosen = config.amend(chosen, {steps: False})
    theta = params.initial(0)
    learners.clear()  # other lines had one: a device may have room for one
    discrete = envs.is_discrete(env)
    made = learners.make(learning.learner(chosen), chosen, params.layout, theta, 0, discrete)
    return made, phase_of(chosen, made, env)


def phase_of(chosen: config.Config, made: Any, env: envs.Env) -> Callable[[int], Steps]:
    """Make what begins the k-th phase, of UPDATES updates if the learner can be asked so."""
    if getattr(made, "replay", None) is None:
        return lambda k: made.begin(env, k, 0, made.options.steps_per_generation, True)
    rows = np.random.default_rng(0).uniform(-1, 1, (STORED, made.replay.width)).astype(np.float32)
    made.replay.add_rows(rows)
    made.env_steps = made.options.start_steps
    if hasattr(made, "teach"):
        return lambda k: made.teach([made.theta], UPDATES, k)
    steps = math.ceil(UPDATES / max(made.options.updates_per_step, 0.01))
    if ALGORITHMS[chosen.algorithm].DECLARES.offspring(chosen):  # its steps are the population's
        return lambda k: made.take([(np.resize(rows, (steps, rows.shape[1])), 0.0, steps)], k)
    return lambda k: made.begin(env, k, 0, steps, True)


def measure(learner: Any, begin: Callable[[int], Steps], seconds: float) -> tuple[float, float]:
    """Time a learner's own step and its update, by phases whose updates take so long [s].

    The first phase is not counted: memory is taken and kernels are chosen in it.
    """
    playing = updating = 0.0
    played = updates = k = 0
    began = time.perf_counter()
    while not k or (updating < seconds and (k < 2 or time.perf_counter() < began + LONG)):
        flight = Flight(begin(k), k, time.perf_counter, learner.NAME)
        phase = flight.finish()
        k += 1
        if k > 1:
            playing += flight.seconds - flight.updating
            updating += flight.updating
            played += phase.env_steps
            updates += phase.gradient_updates
    return playing / max(played, 1), updating / max(updates, 1)
