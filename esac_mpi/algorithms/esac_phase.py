"""ESAC's SAC phases (Algorithm 1, lines 12-23): when they begin and end, and the population's episodes that they play again."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, learning, noise, population
from esac_mpi.algorithms.esac_state import State
from esac_mpi.contracts import World
from esac_mpi.envs import Env
from esac_mpi.learning import Steps
from esac_mpi.noise import Purpose
from esac_mpi.params import Params, make_policy
from esac_mpi.policy import Normaliser
from esac_mpi.population import Population
from esac_mpi.rollout import ReturnDiffers


def beside(esac: configuration.ESAC) -> bool:
    """Return whether phases run beside the evaluation, and so in an environment of their own."""
    return esac.sac_phases and (esac.phase_timing == "virtual" or esac.learner_lag > 0)


def replays(esac: configuration.ESAC) -> int:
    """Return the members whose episodes a phase plays again, where as many have a finite return."""
    wanted = esac.replayed_members * (esac.replayed != "none") * esac.sac_phases
    return min(wanted, configuration.members(esac))


def reserve(config: configuration.Config, horizon: int) -> int:
    """Return how many transitions a SAC phase adds at most; horizon: of an episode [steps]."""
    esac = config.esac
    again = replays(esac) * esac.fitness_episodes * horizon
    if esac.phase_timing == "virtual":
        return esac.sac_min_steps + again
    return max(esac.sac_episodes * horizon, esac.sac_min_steps + horizon) + again


def added(config: configuration.Config, horizon: int) -> float:
    """Return how many transitions a run of this budget adds to SAC's replay at most; inf = no limit is told."""
    esac, (generations, env_steps, nominal) = config.esac, config.budget.limits
    phase = reserve(config, horizon) * esac.sac_phases
    if not phase:
        return 0.0
    interval = 1 if esac.phase_timing == "virtual" else esac.gradient_interval
    in_flight = 2 * phase  # what is counted at the end of a phase, and the next one, begun in the same generation
    return min(min(generations, nominal / horizon + 1) * phase / interval, env_steps + in_flight)


def ends(esac: configuration.ESAC, state: State, k: int, found: Population) -> bool:
    """Return whether the phase in flight, if there is one, ends in generation k."""
    if not state.phase_begun:
        return False
    if esac.phase_timing == "interval":
        return k == state.phase_begun + esac.learner_lag
    return state.phase_left <= duration(esac, found)


def duration(esac: configuration.ESAC, found: Population) -> float:
    """Return how long `workers` ranks evaluate a population at least, by the clock of phase_timing = virtual [steps]."""
    return max(float(found.length.max()), (int(found.length.sum()) + found.trial_steps) / esac.workers)


def may_begin(esac: configuration.ESAC, state: State, k: int, ended: bool) -> bool:
    """Return whether a phase may begin in generation k. ended: the one in flight ends in it. Algorithm 1, line 12."""
    if not esac.sac_phases or (state.phase_begun and not ended):
        return False
    return esac.phase_timing == "virtual" or k % esac.gradient_interval == 0


def choose(params: Params, state: State, k: int, sigmas: np.ndarray, found: Population, world: World) -> list[str]:
    """Note what the phase of generation k sees observations by and what it plays again; return the hosts that played it.

    Each member is rebuilt on every node.
    """
    esac = params.config.esac
    members = chosen(params, k, found.fitness)
    state.replayed_members, state.replayed_returns = members, found.fitness[members]
    state.replayed_cap, state.phase_sums = found.cap, state.observation_sums
    slices = [part for _, part in noise.blocks(params.layout.d)]

    def rebuild(block: int) -> np.ndarray:
        part = slices[block]
        for place, i in enumerate(members):
            slot, sign = population.member(esac, int(i))
            eps = params.epsilon.block(k, slot, block, part)
            state.replayed_theta[place, part] = evolution.mutated(state.parent(slot)[part], eps, sign, sigmas[slot])
        return np.zeros(1)

    if members.size:
        world.over_blocks(rebuild, len(slices), 1)
    return [world.host(int(i)) for i in members]


def left(params: Params, state: State, found: Population, begins: bool) -> float:
    """Return how long the phase in flight after a generation still lasts, or the one that begins with its end [virtual steps]."""
    esac = params.config.esac
    if not begins:
        return max(0.0, state.phase_left - duration(esac, found))
    own = esac.sac_min_steps * (1 + esac.update_cost * params.config.sac.updates_per_step)
    return own + float(found.length[state.replayed_members].sum())


def chosen(params: Params, k: int, fitness: np.ndarray) -> np.ndarray:
    """Return the members of generation k that its phase plays again, int64; only those with a finite return."""
    esac = params.config.esac
    if esac.replayed == "winners":
        return evolution.select_winners(fitness, replays(esac))
    drawn = noise.generator(params.config.seed, Purpose.REPLAYED, k).permutation(fitness.size)
    return drawn[np.isfinite(fitness[drawn])][: replays(esac)]


def begin(params: Params, state: State, k: int, world: World, env: Env, learner: Any, hosts: Sequence[str] = ()) -> None:
    """Begin the SAC phase of generation k, on rank 0, unless it is in flight. Algorithm 1, lines 12-23.

    Beside the evaluation, its result enters at the end of a later generation. hosts: that played what it plays again, if known.
    """
    played_in = params.learner_env or env

    def made() -> Steps:
        return steps(params, state, k, played_in, learner, world, hosts)

    learning.begin(world, learner, k, made, beside(params.config.esac))


def steps(params: Params, state: State, k: int, env: Env, learner: Any, world: World, hosts: Sequence[str]) -> Steps:
    """Play the noted members' episodes into the replay, then the learner's own, and learn. Raises ReturnDiffers."""
    esac, replayed = params.config.esac, 0
    for place in range(state.replayed_members.size):
        try:
            replayed += yield from play_again(params, state, k, place, env, learner)
        except ReturnDiffers as error:
            there = hosts[place] if hosts else "the host of an earlier start"
            error.add_note(f"there {there}, here {world.hosts[0]}: these compute different bits; run on nodes of one kind")
            raise
    virtual = esac.phase_timing == "virtual"
    episodes, sums = 0 if virtual else esac.sac_episodes, state.phase_sums if esac.observation_normalisation else None
    phase = yield from learner.begin(env, k, episodes, esac.sac_min_steps, virtual, sums)
    return replace(phase, replayed_steps=replayed)


def play_again(params: Params, state: State, k: int, place: int, env: Env, learner: Any) -> Generator[None, None, int]:
    """Play the episodes of one of the noted members into the replay; return their steps. Raises ReturnDiffers."""
    policy, esac = make_policy(params, env, Normaliser.of(state.phase_sums)), params.config.esac
    policy.set(state.replayed_theta[place])
    i, gathered = int(state.replayed_members[place]), float(state.replayed_returns[place])
    rows, count = yield from population.play_again(params, esac, k, i, env, policy, state.replayed_cap, gathered)
    for row in rows:
        learner.replay.add_row(row)
    return count
