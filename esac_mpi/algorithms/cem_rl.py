"""CEM-RL: CEM (cem.py) whose first individuals a shared critic trains before they are evaluated.

Source: Pourchot and Sigaud 2019, CEM-RL: Combining Evolutionary and Gradient-Based Methods for Policy Search, and its code.
`cem_rl.critic = "parallel"` is a form of P-CEM-RL, with which Lee et al. 2020 (AES-RL) compare.

Where this differs from the public code:
- Individuals are trained and evaluated on any rank. Under critic = serial the critic's chain, for one actor after another,
  stays on rank 0, and each actor learns from the critic as its link left it: the same numbers as one after the other, at once.
  Who is not trained is evaluated meanwhile.
- Under critic = parallel rank 0 teaches the critic for the mean, beside all the rest of a generation, as many updates as the last
  generation had steps, for which all wait; the public code of AES-RL, without a limit, and nobody waits. Individuals learn from
  the second of its lessons on (there: at once, from a critic that was not taught).
- Where it bootstraps after several episodes, time limits are truncations (there: only with one episode an individual).
The learner is learners/cem.py, an individual's training learners/individuals.py.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi.algorithms import cem as pure
from esac_mpi.algorithms.declaration import (
    Declaration,
    Learning,
    added_by_phases,
    at_root,
    every_generation,
    never,
    nobody,
    none,
    nowhere,
)
from esac_mpi.comm.contracts import Individuals, Memory, World
from esac_mpi.config import Config, exact, individuals
from esac_mpi.envs import Env
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.play import experience, learner_phases
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.experience import Experience, Played
from esac_mpi.play.learner_phases import Phase
from esac_mpi.play.params import THETA_ES, Params, Row, make_actor
from esac_mpi.play.rollout import Board
from esac_mpi.play.transitions import doubles, floats, width, write_ring
from esac_mpi.play.warm_start_fields import ANEW, DAMP, VARIANCE


def reserve(config: Config, horizon: int) -> int:
    """Return how many transitions a generation adds at most."""
    return config.cem_rl.population_size * config.cem_rl.fitness_episodes * horizon


def added(config: Config, horizon: int) -> float:
    """Return how many transitions a run adds at most."""
    return added_by_phases(config, reserve(config, horizon))


DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "cem",
        actor=lambda state: state.mean,
        ranks=at_root,
        reserve=lambda config, horizon: 0,  # what is added is added when nothing is held
        added=added,
        own_env=nowhere,
        beside=never,
        cut=none,
        interval=every_generation,
    ),
    discrete=False,
    evolution=None,
    work="episodes",
    policies={"mean": "the mean of the distribution"},
    apart=False,
    fitness="fitness",
    operators=lambda config: "individuals",
    output="tanh",
    head_scale=1.0,
    offspring=nobody,
)


@dataclass
class State:
    """All that changes, beside the learner on rank 0: equal on every rank or shared by the node."""

    mean: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    variance: np.ndarray = field(metadata={"shared": True, "part": VARIANCE})  # float32 [d]
    damp: float = field(metadata={"part": DAMP})  # epsilon of Eq. (2)
    individuals: np.ndarray = (
        field(  # float32 [m, d] the last ones that nothing trains; as cem.State
            metadata={"shared": True, "part": ANEW}
        )
    )
    individual_returns: np.ndarray = field(metadata={"part": ANEW})  # float64 [m]
    individual_lengths: np.ndarray = field(  # int64 [m] [steps]
        metadata={"part": ANEW, "later": True}
    )
    kept: np.ndarray = field(metadata={"part": ANEW})  # int64 [c] which of them stay
    candidates: np.ndarray = field(
        metadata={"part": ANEW}
    )  # int64 [m - c] slots of those that are drawn
    replay: np.ndarray = field(
        metadata={"shared": True, "elsewhere": True}
    )  # float32 [capacity, width] a ring
    critics: np.ndarray = field(
        metadata={"shared": True, "scratch": True}
    )  # float32 [trained, critic_size], or one for all
    transitions: int = field(default=0, metadata={"transitions": True})  # ever added to the replay
    last_steps: int = 0  # of the last generation's individuals [steps]
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)
    normaliser = None  # observations are plain

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"mean": self.mean}


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation; make room for the replay on each node, as much as the budget can fill."""
    cem, (o, *_, a) = params.config.cem_rl, params.layout.sizes
    mean = params.initial(THETA_ES)
    rows = int(min(cem.replay_capacity, max(added(params.config, params.horizon), cem.batch_size)))
    for shape in boards(params):
        world.reserve(*shape[:2])
    critics = 1 if cem.critic == "parallel" else individuals(cem)[1]
    return State(
        mean=world.share(mean),
        variance=world.share(np.full_like(mean, cem.variance_init)),
        damp=cem.damp,
        **pure.unmixed(params, cem, world),
        replay=world.shared((rows, width(o, a))),
        critics=world.shared((critics, params.operators.critic_size)),
    )


def board(params: Params) -> Board:
    """Return the larger shape of what the ranks put together at once."""
    return max(boards(params))


def boards(params: Params) -> tuple[Board, Board]:
    """Return the shapes of what the ranks put together: of individuals as they are drawn, and trained, with what they became."""
    n, trained = params.config.cem_rl.population_size, individuals(params.config.cem_rl)[1]
    steps, numbers = steps_of_one(params), width_of(params)
    drawn = experience.board(n - trained, 0, steps, numbers, True)
    return drawn, experience.board(trained, vector(params), steps, numbers, True)


def steps_of_one(params: Params) -> int:
    """Return the most steps that an individual takes."""
    return params.config.cem_rl.fitness_episodes * params.horizon


def width_of(params: Params) -> int:
    """Return how many numbers a transition has."""
    o, *_, a = params.layout.sizes
    return width(o, a)


def vector(params: Params) -> int:
    """Return how many float64 an individual's parameters are on their way."""
    return -(-params.layout.d // 2)


def generation(
    params: Params, state: State, world: World, env: Env, learner: Any
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    cem, k, clock = params.config.cem_rl, state.generation + 1, [world.clock()]
    learns = is_taught(params, state)
    trains = learns and (cem.critic == "serial" or state.counters.gradient_updates > 0)
    if learns:
        if cem.critic == "parallel" and trains:
            share_critics(state, world, [learner.critic_vector()] if world.leads else [])
        learner_phases.begin(
            world, learner, k, lambda: teach(params, state, learner, k), beside=True
        )
    drawn = play_drawn(params, state, world, env, k)
    clock.append(world.clock())
    phase, spent = Phase(), learner_phases.spent(None)
    if learns and cem.critic == "serial":
        phase, _, spent = learner_phases.finish(world)
        share_critics(state, world, learner.taught if world.leads else [])
    clock.append(world.clock())
    learned, vectors = play_trained(params, state, world, env, k, trains)
    clock.append(world.clock())
    if learns and cem.critic == "parallel":
        phase, _, spent = learner_phases.finish(world)
    returns = np.concatenate([learned.returns, drawn.returns])
    lengths = np.concatenate([learned.lengths, drawn.lengths])
    clock.append(world.clock())

    row = pure.tell(params, cem, state, world, k, (returns, lengths), vectors)
    if learns:
        learner_phases.count(phase, state.counters, learner)
        state.counters.member_updates += (
            trains * individuals(cem)[1] * updates_of_one(params, state)
        )
    state.last_steps = int(lengths.sum())
    for found in (learned, drawn):
        remember(state, found, world, learner)
        pure.count(state, found)
    clock.append(world.clock())
    evaluating, before, training, after, updating = np.diff(
        clock
    )  # a serial critic is waited for before, a parallel one after
    seconds = {
        "seconds_evaluate": evaluating + training,
        "seconds_learn": before + after,
        "seconds_update": updating,
    }
    timing = {name: both(name, learned, drawn) for name in drawn.timing}
    row |= {"fitness": returns, "length": lengths, "trained": int(trains)}
    return {**row, **metrics(phase)}, {**timing, **seconds, **spent}


def is_taught(params: Params, state: State) -> bool:
    """Return whether the critic has lessons in the next generation; gradients train individuals once it has had some."""
    cem = params.config.cem_rl
    begun = (
        state.counters.env_steps_population >= cem.start_steps
        and state.transitions >= cem.batch_size
    )
    return begun and individuals(cem)[1] > 0


def teach(params: Params, state: State, learner: Any, k: int) -> learner_phases.Steps:
    """Return the critic's lessons of generation k: a part of its updates for each actor in turn, or all of them for the mean."""
    cem = params.config.cem_rl
    updates = round(exact(cem.critic_updates_per_step) * state.last_steps)
    if cem.critic == "parallel":
        return learner.teach([state.mean.copy()], updates, k)
    count = individuals(cem)[1]
    actors = [
        pure.individual(params, cem, state, k, i, np.empty_like(state.mean)) for i in range(count)
    ]
    return learner.teach(actors, updates // count, k)


def share_critics(state: State, world: World, taught: list[np.ndarray]) -> None:
    """Give every node the critics that individuals learn from: of each its own, or one for all; on rank 0 it has them."""
    if world.leads:
        state.critics[:] = taught
    world.broadcast_shared(state.critics)


def play_drawn(params: Params, state: State, world: World, env: Env, k: int) -> Experience:
    """Let those play that nothing trains."""
    cem, actor, (shape, _) = params.config.cem_rl, make_actor(params), boards(params)
    first = individuals(cem)[1]

    def playing(i: int) -> tuple[Played, np.ndarray]:
        return pure.play_drawn(params, cem, state, env, actor, k, first + i), np.zeros(0)

    expected = pure.plays(cem, state)[first:]
    return experience.gather(
        world, shape, 0, steps_of_one(params), width_of(params), playing, expected
    )


def play_trained(
    params: Params, state: State, world: World, env: Env, k: int, learns: bool
) -> tuple[Experience, dict[int, np.ndarray]]:
    """Train individuals, if there is something to learn from, and let them play; return also what they have become."""
    cem, actor, (_, shape) = params.config.cem_rl, make_actor(params), boards(params)

    def playing(i: int) -> tuple[Played, np.ndarray]:
        theta = pure.individual(params, cem, state, k, i, actor.theta)
        if learns:
            actor.theta[:] = trained(params, state, k, i, theta)
        return pure.play(params, cem, env, actor.refresh(), k, i), doubles(actor.theta)

    steps, numbers = steps_of_one(params), width_of(params)
    found = experience.gather(
        world, shape, vector(params), steps, numbers, playing, np.ones(shape.rows)
    )
    return found, {
        i: floats(row, params.layout.d) for i, row in enumerate(found.own)
    } if learns else {}


def trained(params: Params, state: State, k: int, number: int, theta: np.ndarray) -> np.ndarray:
    """Return what an individual [d] of generation k has become, float32 [d]: a function of critic, replay and its address."""
    held = min(state.transitions, len(state.replay))
    random = generator(params.config.seed, Purpose.TRAINING, k, number)
    operators: Individuals = params.operators
    states, critic = (
        state.replay[:held, : params.layout.sizes[0]],
        state.critics[number % len(state.critics)],
    )
    return operators.trained(theta, critic, states, updates_of_one(params, state), random)


def updates_of_one(params: Params, state: State) -> int:
    """Return how many updates a trained individual makes."""
    return round(exact(params.config.cem_rl.actor_updates_per_step) * state.last_steps)


def remember(state: State, found: Experience, world: World, learner: Any) -> None:
    """Put transitions into the replay, on each node."""
    first = state.transitions + np.concatenate([[0], np.cumsum(found.counts)])

    def work(_: int) -> np.ndarray:  # one after the other: one may write over another
        for i in range(found.counts.size):
            write_ring(state.replay, found.rows(i)[-len(state.replay) :], first[i + 1])
        return np.zeros(1)

    world.over_blocks(work, 1, 1)
    state.transitions = int(first[-1])
    if world.leads:
        learner.advance(int(found.counts.sum()), int(found.lengths.sum()))


def both(name: str, trained: Experience, drawn: Experience) -> Any:
    """Return a timing column of both: of individuals one after the other, of ranks and waits added up."""
    first, second = trained.timing[name], drawn.timing[name]
    return np.concatenate([first, second]) if name.startswith("member_") else first + second


def metrics(phase: Phase) -> Row:
    """Return a row's columns about the critic; nan where it was not taught."""
    return {"critic_loss": phase.critic_loss, "critic_updates": phase.gradient_updates}
