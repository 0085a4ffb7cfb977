"""What pieces of a run's work take, measured: phases of a learner, operators on every rank."""

import math
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import NAMES, Config, amend
from esac_mpi.config.reads import find_unread
from esac_mpi.operators import genetics
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Layout
from esac_mpi.play.learner_phases import Flight, Steps
from esac_mpi.play.params import Params, make_actor, make_policy
from esac_mpi.play.rollout import explore, play

LONG = 10.0  # no further phase or episode is begun after this time [s]
STORED = 10_000  # random states, or transitions, that are learned from
UPDATES = 50  # of a measured individual, and of a phase at least
BATCHES = 4  # of states that a measured child imitates
MEASURING = 0.3  # calls are repeated for this time [s]
# a learner, and what begins its k-th phase; None where nothing learns
Ready = tuple[Any, Callable[[int], Steps]] | None


def prepare(params: Params, env: envs.Env) -> Ready:
    """Make the learner of a run, to be measured."""
    chosen = params.config
    learning = ALGORITHMS[chosen.algorithm].DECLARES.learning
    if learning is None or not learning.learns(chosen):
        return None
    steps = f"{chosen.algorithm}.interleaved"
    if steps in NAMES and find_unread(chosen, [steps]):  # its updates follow all episodes
        chosen = amend(chosen, {steps: False})
    theta = params.initial(0)
    learners.clear()  # other lines had one: a device may have room for one
    discrete = envs.is_discrete(env)
    made = learners.make(learning.learner(chosen), chosen, params.layout, theta, 0, discrete)
    return made, phase_of(chosen, made, env)


def phase_of(chosen: Config, made: Any, env: envs.Env) -> Callable[[int], Steps]:
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


def measure(ready: Ready, seconds: float) -> tuple[float, float]:
    """Time a learner's own step and its update, by phases whose updates take so long [s].

    The first phase is not counted: memory is taken and kernels are chosen in it.
    """
    if ready is None:
        return 0.0, 0.0
    learner, begin = ready
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


def seconds(config: Config, layout: Layout) -> dict[str, float]:
    """Measure an algorithm's operators on this rank [s], as fields of Pieces."""
    declares, random = ALGORITHMS[config.algorithm].DECLARES, np.random.default_rng(0)
    theta = layout.initial(config.seed, 0)
    states = random.standard_normal((STORED, layout.sizes[0]), dtype=np.float32)
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


def episodes(
    params: Params, env: envs.Env, lasting: float, least: int = 1, rank: int = 0, cap: int = 0
) -> np.ndarray:
    """Play episodes for so long [s], at `least` so many; return time and steps, float64 [m, 2].

    Where ranks' work is episodes, their transitions are recorded, which takes its time. rank: whose
    they are. cap: steps of a member's episode at most; 0 = the task's.
    """
    config = params.config
    declares = ALGORITHMS[config.algorithm].DECLARES
    members = declares.work == "members"
    policy = make_policy(params, env, output=declares.output) if members else make_actor(params)
    policy.set(params.initial(0))
    found: list[tuple[float, int]] = []
    start = now = time.perf_counter()
    while (now < start + lasting or len(found) < least) and (not found or now < start + LONG):
        seed = integer(config.seed, Purpose.EPISODE, 0, rank, len(found))
        episode = play(env, policy, seed, cap=cap) if members else explore(env, policy, seed)[1]
        before, now = now, time.perf_counter()
        found.append((now - before, max(episode.episodic_length, 1)))
    return np.array(found)


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
