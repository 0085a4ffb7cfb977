"""ESAC's SAC phases (Algorithm 1, lines 12-23): begin, end, and what they play again."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms.esac_state import Now, State, slot_sigmas
from esac_mpi.algorithms.esac_timing import (
    evaluation_time,
    has_lag,
    is_virtual,
    most_steps,
    own_steps,
    phase_duration,
    resimulated,
    time_left,
)
from esac_mpi.comm.contracts import Learner
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play import learner_phases, population, rollout
from esac_mpi.play.counters import least_variance
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.params import Row, make_policy
from esac_mpi.play.population import Population
from esac_mpi.play.rollout import ReturnDiffers
from esac_mpi.play.transitions import Recorder


@dataclass(frozen=True)
class Again:
    """What a phase does: members whose episodes it resimulates, by what it and they see; steps."""

    members: np.ndarray  # int64
    # float64 what they were evaluated to; nan = by another machine, or in another task
    returns: np.ndarray
    cap: int  # at which their episodes were truncated; 0 = none [steps]
    # float64 [3, observation] of observations before their generation; zeros without normalisation
    sums: np.ndarray
    steps: int  # that the learner then makes in its own episodes
    hosts: Sequence[str] = ()  # that played them; empty after a restart


def learner_fitness(esac: configuration.ESAC, state: State, ended: Phase | None) -> float:
    """Return the learner's fitness after an ended phase; the old one without a whole episode."""
    if ended is None or not math.isfinite(ended.episodic_return):
        return state.learner_return
    return evolution.shifted(ended.episodic_return, ended.episodic_length, esac.shift)


def choose(now: Now, found: Population, known: float) -> Again:
    """Choose the members, of finite return, that this generation's phase resimulates.

    known: the learner's own fitness, with which members compare; -inf = none yet.
    """
    config, fitness = now.params.config, found.fitness
    esac, count = config.esac, resimulated(config.esac)
    if esac.resimulated != "sample":
        members = evolution.select_winners(fitness, count)
        if esac.resimulated in ("better", "earning"):
            members = members[fitness[members] > known]
        if esac.resimulated == "earning":
            members = members[population.earns(now.env, esac, found)[members]]
    else:
        random = noise.generator(config.seed, Purpose.REPLAYED, now.k)
        drawn = random.permutation(fitness.size)
        members = drawn[np.isfinite(fitness[drawn])][:count]
    hosts = [now.world.host(int(i)) for i in members]
    lasted = evaluation_time(esac, found) if is_virtual(esac) else 0.0
    steps = own_steps(config, lasted, int(found.length[members].sum()))
    seen = now.state.observation_sums
    return Again(members, found.returns[members], found.cap, seen, steps, hosts)


def store_choice(now: Now, again: Again) -> None:
    """Store the members that a parallel phase resimulates.

    Each member is rebuilt on every node, since its parent goes.
    """
    params, state, esac = now.params, now.state, now.params.config.esac
    slices, sigmas = [part for _, part in noise.blocks(params.layout.d)], slot_sigmas(esac, state)
    members, flight = [population.member(esac, int(i)) for i in again.members], state.flight

    def rebuild(block: int) -> np.ndarray:
        part = slices[block]
        for place, (slot, sign) in enumerate(members):
            eps = now.epsilon(slot, block, part)
            flight.replayed_theta[place, part] = evolution.mutated(
                state.parent(slot)[part], eps, sign, sigmas[slot]
            )
        return np.zeros(1)

    flight.replayed_members = again.members
    flight.replayed_returns = again.returns
    flight.replayed_cap = again.cap
    flight.phase_sums = again.sums
    flight.phase_steps = again.steps
    if members:
        now.world.over_blocks(rebuild, len(slices), 1)


def resume(now: Now) -> None:
    """Begin again the phase that was in flight when a run was stopped."""
    params, flight = now.params, now.state.flight
    if flight.phase_begun:
        steps = flight.phase_steps or params.config.esac.sac_min_steps
        if is_virtual(params.config.esac):  # of a task whose horizon was longer
            steps = min(steps, most_steps(params.config, params.horizon))
        again = Again(
            flight.replayed_members,
            flight.replayed_returns,
            flight.replayed_cap,
            flight.phase_sums,
            steps,
        )
        begin(replace(now, k=flight.phase_begun), again)


def advance(
    now: Now, found: Population, ended: bool, learns: bool
) -> tuple[Phase | None, Again | None, Row]:
    """Finish the phase that ended, and choose what the next one resimulates, if one begins.

    Without a lag that one runs now. Returns the phase that ended, the choice, and the time spent.
    """
    esac = now.params.config.esac
    phase = None
    spent = learner_phases.timing_columns(None)
    if ended:
        phase, _, spent = learner_phases.finish(now.world)
    if not learns:
        return phase, None, spent
    again = choose(now, found, learner_fitness(esac, now.state, phase))
    if has_lag(esac):
        store_choice(now, again)
    else:
        begin(now, again)
        phase, _, spent = learner_phases.finish(now.world)
    return phase, again, spent


def enter(now: Now, phase: Phase | None, found: Population) -> None:
    """Take over theta_sac of a phase that ended, and the observations of it and of the members."""
    state, world, esac = now.state, now.world, now.params.config.esac
    if phase is not None:
        learner_phases.enter(phase, world, state.counters, state.theta_sac, now.learner)
        state.learner_return = learner_fitness(esac, state, phase)
        state.flight.phase_begun = 0
    if esac.observation_normalisation:
        sums = state.observation_sums + found.observation_sums
        if phase is not None:
            sums = sums + learner_phases.share_observations(world, now.learner)
        state.observation_sums = sums  # another array: phase_sums stay


def follow(now: Now, found: Population, again: Again | None) -> None:
    """Begin the phase that runs beside the next evaluations, and time the one in flight."""
    config, flight = now.params.config, now.state.flight
    if is_virtual(config.esac):
        if again is None:
            flight.phase_left = time_left(config.esac, flight, found)
        else:
            played = int(found.length[again.members].sum())
            flight.phase_left = phase_duration(config, again.steps, played)
    if again is not None and has_lag(config.esac):
        flight.phase_begun = now.k
        begin(now, again)


def begin(now: Now, again: Again) -> None:
    """Begin a SAC phase, on rank 0, unless one is in flight. Algorithm 1, lines 12-23.

    Beside the evaluation, its result enters at the end of a later generation.
    """
    apart = replace(now, env=now.params.own_env or now.env)
    learner_phases.begin(
        now.world,
        now.learner,
        now.k,
        lambda learner: train(apart, learner, again),
        has_lag(now.params.config.esac),
    )


def train(now: Now, learner: Learner, again: Again) -> Steps:
    """Play members' episodes into the replay, then the learner's; learn. Raises ReturnDiffers."""
    esac, replayed = now.params.config.esac, 0
    for place in range(again.members.size):
        rows, count = yield from play_again(now, again, place)
        learner.replay.add_rows(rows)
        replayed += count
    cuts = is_virtual(esac)
    episodes = 0 if cuts else esac.sac_episodes
    sums = again.sums if esac.observation_normalisation else None
    every = esac.sac_min_steps if cuts else 0  # a longer phase learns as often
    phase = yield from learner.begin(now.env, now.k, episodes, again.steps, cuts, sums, every)
    return replace(phase, replayed_steps=replayed)


def play_again(now: Now, again: Again, place: int) -> Generator[bool, None, tuple[np.ndarray, int]]:
    """Play a chosen member's episodes once more; yield now and then.

    Returns transitions as a replay has them, float32 [count, width], and steps. Raises
    ReturnDiffers unless the return is the same to the bit, or nan.
    """
    params, state, esac = now.params, now.state, now.params.config.esac
    seen = Normaliser.of(again.sums, least_variance(params.config))
    policy, i = make_policy(params, now.env, seen), int(again.members[place])
    if has_lag(esac):
        policy.set(state.flight.replayed_theta[place])
    else:  # its parent is still there
        slot, sign = population.member(esac, i)
        sigma = slot_sigmas(esac, state)[slot]
        parent, scale = state.parent(slot), now.scale
        population.perturb(params, policy, now.k, slot, parent, sign, sigma, scale)
    recorder, total, steps = Recorder(now.env, esac.fitness_episodes * params.horizon), 0.0, 0
    for number in range(esac.fitness_episodes):
        seed, disturb = population.begin_episode(now, esac, i, number, policy)
        episode = yield from rollout.playing(recorder, policy, seed, None, again.cap, disturb)
        total += episode.episodic_return
        steps += episode.episodic_length
    found, gathered = float(total / esac.fitness_episodes), float(again.returns[place])
    if found != gathered and not math.isnan(gathered):
        error = ReturnDiffers(
            f"member {i} of generation {now.k} had the return {gathered!r}, "
            f"and has {found!r} when it is played again"
        )
        there = again.hosts[place] if again.hosts else ""
        error.add_note(compare_hosts(there, now.world.hosts[0]))
        raise error
    return recorder.rows[: recorder.count], steps


def compare_hosts(there: str, here: str) -> str:
    """Name the hosts on which an episode's returns differ; there: empty if unknown."""
    if there == here:
        return f"both on {here}: the task does not give an episode twice (docs/reference/tasks.md)"
    there = there or "the host of an earlier start"
    return f"there {there}, here {here}: these compute different bits; run on nodes of one kind"
