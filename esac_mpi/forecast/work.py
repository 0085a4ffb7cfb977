"""The generations that a run will have, made of measured pieces: what `esac_mpi.clock` takes, with their counts.

When phases begin and end the algorithm itself decides (esac_phase), its gate drawn as in the run. Members last as the measured
episodes in turn, so they differ as those do. Left out, since little: writing rows and checkpoints, ranks and winners, trial
episodes, and importance mixing, by which some play nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import ALGORITHMS, esac_phase
from esac_mpi.clock.generations import NOTHING, Generation
from esac_mpi.config import CEM, CEMRL, PPO, SAC, Config, Evolution
from esac_mpi.forecast.pieces import Pieces


class Unforeseen(Exception):
    """Work that is not made of the pieces that are measured."""


class Made(NamedTuple):
    """A generation, and what it adds to the counts that end a run."""

    generation: Generation
    env_steps: float
    nominal_steps: float


class Phase(NamedTuple):
    """What a phase of the learner does."""

    steps: float  # that it plays
    updates: float
    seconds: float


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a run without an end. Raises Unforeseen."""
    own = config.own
    if isinstance(own, Evolution):
        made = population(config, own, pieces)
    elif isinstance(own, CEM) and not isinstance(own, CEMRL):
        made = distribution(own, pieces)
    elif hasattr(own, "steps_per_generation"):
        made = alone(config, pieces)
    else:
        raise Unforeseen(f"not known for {config.algorithm}: its ranks do work that is not measured here")
    episodes = len(ALGORITHMS[config.algorithm].DECLARES.policies) * config.evaluation.episodes
    for k, (one, env_steps, nominal) in enumerate(made, 1):
        if k % config.evaluation.every:
            yield Made(one, env_steps, nominal)
        else:
            played = replace(one, evaluation=lasting(pieces, episodes, k))
            yield Made(played, env_steps + episodes * pieces.length, nominal)


def population(config: Config, table: Evolution, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a population, with its learner's phases where it has one."""
    n, count = configuration.members(table), table.fitness_episodes
    phases = Phases(config, pieces) if hasattr(table, "sac_phases") else None
    k = 0
    while True:
        k += 1
        begins, ends = phases.of(k) if phases else (False, False)
        phase = phases.phase if phases else Phase(0, 0, 0)
        beside = phases is not None and phases.beside
        one = Generation(
            members=lasting(pieces, n * count, k).reshape(n, count).sum(axis=1) + pieces.making,
            expected=np.ones(n),
            phase=phase.seconds * (begins and not beside),
            merges=ends,
            update=configuration.slots(table) * pieces.slot,
            blocks=pieces.blocks,
            begun=phase.seconds * (begins and beside),
        )
        entered = ends or (begins and not beside)
        yield Made(one, n * count * pieces.length + phase.steps * entered, pieces.horizon)


class Phases:
    """When the phases of a learner begin and end beside or after a population, as ESAC itself decides it, and what one does."""

    def __init__(self, config: Config, pieces: Pieces) -> None:
        esac: Any = config.own
        self._config, self._esac = config, esac
        self.beside = esac_phase.beside(esac)
        lengths = np.full(configuration.members(esac), round(esac.fitness_episodes * pieces.length))
        self._found: Any = SimpleNamespace(length=lengths, trial_steps=0)
        self._state: Any = SimpleNamespace(phase_begun=0, phase_left=0.0)
        self._again: Any = SimpleNamespace(members=np.arange(esac_phase.replays(esac)))
        replayed = esac_phase.replays(esac) * esac.fitness_episodes * pieces.length * pieces.step
        steps = esac.sac_min_steps if esac.phase_timing == "virtual" else own_steps(esac, pieces.length)
        updates = steps * config.sac.updates_per_step
        self.phase = Phase(steps, updates, replayed + steps * pieces.playing + updates * pieces.updating)

    def of(self, k: int) -> tuple[bool, bool]:
        """Return whether a phase begins in generation k, and whether one that runs beside ends; to be asked of each in turn."""
        esac, state = self._esac, self._state
        ends = esac_phase.ends(esac, state, k, self._found)
        begins = esac_phase.may_begin(esac, state, k, ends) and esac_phase.gate_opens(self._config, k)
        state.phase_begun *= not ends
        if esac.phase_timing == "virtual":
            params: Any = SimpleNamespace(config=self._config)
            state.phase_left = esac_phase.left(params, state, self._found, self._again if begins else None)
        if begins and self.beside:
            state.phase_begun = k
        return begins, ends


def own_steps(esac: Any, length: float) -> float:
    """Return the steps of a phase of whole episodes of such a length."""
    return max(esac.sac_episodes, math.ceil(esac.sac_min_steps / length)) * length


def distribution(cem: CEM, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a distribution of policies, whose update makes the elites again."""
    n, count, k = cem.population_size, cem.fitness_episodes, 0
    elites, _ = configuration.individuals(cem)
    steps = n * count * pieces.length
    while True:
        k += 1
        lasted = lasting(pieces, n * count, k).reshape(n, count).sum(axis=1) + pieces.making
        yield Made(Generation(lasted, np.ones(n), update=elites * pieces.slot, blocks=pieces.blocks), steps, steps)


def alone(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a learner alone, whose episodes the ranks may share."""
    options: Any = config.own
    shared = getattr(options, "episodes_on", "root") == "ranks"
    count = options.episodes_per_generation if shared else 0
    steps = count * pieces.length if shared else options.steps_per_generation
    done, k = 0.0, 0
    while True:
        k, done = k + 1, done + steps
        seconds = updates(config, done, steps) * pieces.updating + steps * pieces.playing * (not shared)
        yield Made(Generation(lasting(pieces, count, k), np.ones(count), phase=seconds), steps, steps)


def updates(config: Config, done: float, steps: float) -> float:
    """Return the updates of a generation of a learner alone: of the last `steps` of its `done` training steps."""
    options: Any = config.own
    if isinstance(options, PPO):
        return options.epochs * math.ceil(steps / (options.batch_size or steps))
    before = 0 if isinstance(options, SAC) else options.start_steps  # SAC learns from its random steps at once
    return float(np.clip(done - before, 0, steps)) * options.updates_per_step


def lasting(pieces: Pieces, count: int, k: int) -> np.ndarray:
    """Return how long so many episodes last in generation k: the measured ones in turn [count] [s]."""
    return np.take(pieces.episodes, np.arange(k, k + count), mode="wrap") if count else NOTHING
