"""CEM-RL: CEM (cem.py) whose first individuals a shared critic trains before they are evaluated.

Source: Pourchot and Sigaud 2019, CEM-RL: Combining Evolutionary and Gradient-Based Methods for
Policy Search, and its code.
`cem_rl.critic = "parallel"` is a form of P-CEM-RL, with which Lee et al. 2020 (AES-RL) compare.

Where this differs from the public code:
- Individuals are trained and evaluated on any rank. Under critic = serial the critic's chain, for
  one actor after another, stays on rank 0, and each actor learns from the critic as its link left
  it: the same numbers as one after the other, at once. Who is not trained is evaluated meanwhile.
- Under critic = parallel rank 0 teaches the critic for the mean, beside all the rest of a
  generation, as many updates as the last generation had steps, for which all wait; the public code
  of AES-RL, without a limit, and nobody waits. Individuals learn from the second of its lessons on
  (there: at once, from a critic that was not taught).
- Where it bootstraps after several episodes, time limits are truncations (there: only with one
  episode an individual).
The learner is learners/cem.py, an individual's training learners/individuals.py.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from esac_mpi.algorithms import cem as pure
from esac_mpi.algorithms.declaration import Declaration, Learning, added_by_phases
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import CriticLearner, Memory, World
from esac_mpi.config import Config, exact, individuals
from esac_mpi.envs import Env
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.play import experience, learner_phases
from esac_mpi.play.experience import Crew, Experience, Played
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.marks import SCRATCH, mark
from esac_mpi.play.params import Generation, Params, Row, make_actor
from esac_mpi.play.rollout import Board
from esac_mpi.play.transitions import as_doubles, as_floats, width, write_ring


def most_added(config: Config, horizon: int) -> float:
    """Count the transitions that a run adds at most."""
    steps = config.cem_rl.population_size * config.cem_rl.fitness_episodes * horizon
    return added_by_phases(config, steps)


DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "cem",
        actor=lambda state: state.mean,
        reserve=lambda config, horizon: 0,  # what is added is added when nothing is held
        added=most_added,
    ),
    discrete=False,
    work="episodes",
    policies={"mean": "the mean of the distribution"},
    operators=lambda config: "individuals",
    output="tanh",
)


@dataclass
class State(pure.State):
    """All that changes, beside the learner on rank 0: equal on every rank or shared by the node."""

    # float32 [capacity, width] a ring
    replay: np.ndarray = field(metadata=mark(shared=True, replay=True))
    critics: np.ndarray = field(metadata=SCRATCH)  # float32 [trained, critic_size], or one for all
    transitions: int = field(default=0, metadata=mark(transitions=True))  # ever in the replay
    last_steps: int = 0  # of the last generation's individuals [steps]


Now: TypeAlias = Generation[State, CriticLearner]


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation, and room on each node for the budget's replay."""
    cem, (o, *_, a) = params.config.cem_rl, params.layout.sizes
    most = max(most_added(params.config, params.horizon), cem.batch_size)
    rows = int(min(cem.replay_capacity, most))
    for crew in crews(params):
        world.reserve(*crew.board[:2])
    critics = 1 if cem.critic == "parallel" else individuals(cem)[1]
    return State(
        **pure.initial(params, world),
        replay=world.shared((rows, width(o, a))),
        critics=world.shared((critics, params.operators.critic_size)),
    )


def board(params: Params) -> Board:
    """Return the shape of the larger of its boards."""
    return max(crew.board for crew in crews(params))


def crews(params: Params) -> tuple[Crew, Crew]:
    """Return two crews: individuals as drawn, and trained ones, which send their parameters."""
    cem, (o, *_, a) = params.config.cem_rl, params.layout.sizes
    trained, steps = individuals(cem)[1], cem.fitness_episodes * params.horizon
    vector = -(-params.layout.d // 2)  # float64 of an individual's parameters on their way
    drawn = Crew(cem.population_size - trained, 0, steps, width(o, a), everywhere=True)
    return drawn, Crew(trained, vector, steps, width(o, a), everywhere=True)


def generation(
    params: Params, state: State, world: World, env: Env, learner: CriticLearner | None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    cem, k, laps = params.config.cem_rl, state.generation + 1, Laps(world.clock)
    now = Now(params, state, world, env, learner, k)
    learns = is_taught(params, state)
    # one critic for each actor, as its lessons leave it; or for all, as it was before its lessons
    serial, parallel = (cem.critic == kind for kind in ("serial", "parallel"))
    trains = learns and (serial or state.counters.gradient_updates > 0)
    phase, spent = Phase(), learner_phases.timing_columns(None)

    if trains and parallel:
        share_critics(now, [learner.critic_vector()] if learner is not None else [])
    if learns:  # the critic, beside all that follows till it has finished
        learner_phases.begin(world, learner, k, lambda pupil: teach(now, pupil), beside=True)
    drawn = play_drawn(now)  # individuals without gradients
    laps("evaluate")
    if learns and serial:
        phase, _, spent = learner_phases.finish(world)
        share_critics(now, learner.taught if learner is not None else [])
    laps("learn")
    learned, vectors = play_trained(now, trains)  # and those with, once trained
    laps("evaluate")
    if learns and parallel:
        phase, _, spent = learner_phases.finish(world)
    laps("learn")

    returns = np.concatenate([learned.returns, drawn.returns])
    lengths = np.concatenate([learned.lengths, drawn.lengths])
    row = pure.update(now, (returns, lengths), vectors)  # the distribution moves to the elites
    if learns:
        learner_phases.count(phase, state.counters, learner)
    if trains:
        state.counters.member_updates += individuals(cem)[1] * updates_of_one(params, state)
    state.last_steps = int(lengths.sum())
    for found in (learned, drawn):
        remember(now, found)
        pure.count(state, found)
    laps("update")
    timing = {name: join_timing(name, learned, drawn) for name in drawn.timing}
    row |= {"fitness": returns, "length": lengths, "trained": int(trains)}
    # nan where the critic was not taught
    row |= {"critic_loss": phase.critic_loss, "critic_updates": phase.gradient_updates}
    return row, {**timing, **laps.seconds, **spent}


def is_taught(params: Params, state: State) -> bool:
    """Tell whether the critic has lessons in the next generation; after some, gradients train."""
    cem, steps = params.config.cem_rl, state.counters.env_steps_population
    begun = steps >= cem.start_steps and state.transitions >= cem.batch_size
    return begun and individuals(cem)[1] > 0


def teach(now: Now, learner: CriticLearner) -> Steps:
    """Give the critic its lessons: a part for each actor in turn, or all of them for the mean."""
    cem, state = now.params.config.cem_rl, now.state
    updates = round(exact(cem.critic_updates_per_step) * state.last_steps)
    if cem.critic == "parallel":
        return learner.teach([state.mean.copy()], updates, now.k)
    count = individuals(cem)[1]
    actors = [pure.write_individual(now, i, np.empty_like(state.mean)) for i in range(count)]
    return learner.teach(actors, updates // count, now.k)


def share_critics(now: Now, taught: list[np.ndarray]) -> None:
    """Give every node the critics that individuals learn from, one each or one for all."""
    if now.world.leads:
        now.state.critics[:] = taught
    now.world.broadcast_shared(now.state.critics)


def play_drawn(now: Now) -> Experience:
    """Play the individuals that are not trained."""
    cem, actor, (crew, _) = now.params.config.cem_rl, make_actor(now.params), crews(now.params)
    first = individuals(cem)[1]

    def playing(i: int) -> Played:
        return pure.play_drawn(now, actor, first + i)

    return experience.gather(now.world, crew, playing, pure.expected_times(cem, now.state)[first:])


def play_trained(now: Now, learns: bool) -> tuple[Experience, dict[int, np.ndarray]]:
    """Train individuals, if they can learn, and play them; return also what they became."""
    params, actor, (_, crew) = now.params, make_actor(now.params), crews(now.params)

    def playing(i: int) -> Played:
        theta = pure.write_individual(now, i, actor.theta)
        if learns:
            actor.theta[:] = train(now, i, theta)
        return pure.play(now, actor.refresh(), i)._replace(own=as_doubles(actor.theta))

    found = experience.gather(now.world, crew, playing, np.ones(crew.count))
    if not learns:
        return found, {}
    return found, {i: as_floats(row, params.layout.d) for i, row in enumerate(found.own)}


def train(now: Now, number: int, theta: np.ndarray) -> np.ndarray:
    """Train an individual, float32 [d], by critic, replay and its address alone."""
    params, state = now.params, now.state
    held = min(state.transitions, len(state.replay))
    random = generator(params.config.seed, Purpose.TRAINING, now.k, number)
    states = state.replay[:held, : params.layout.sizes[0]]
    critic = state.critics[number % len(state.critics)]
    return params.operators.trained(theta, critic, states, updates_of_one(params, state), random)


def updates_of_one(params: Params, state: State) -> int:
    """Count the updates that a trained individual makes."""
    return round(exact(params.config.cem_rl.actor_updates_per_step) * state.last_steps)


def remember(now: Now, found: Experience) -> None:
    """Put transitions into the replay, on each node."""
    state = now.state
    first = state.transitions + np.concatenate([[0], np.cumsum(found.counts)])

    def work(_: int) -> np.ndarray:  # one after the other: one may write over another
        for i in range(found.counts.size):
            write_ring(state.replay, found.rows(i)[-len(state.replay) :], first[i + 1])
        return np.zeros(1)

    now.world.over_blocks(work, 1, 1)
    state.transitions = int(first[-1])
    if now.learner is not None:
        now.learner.advance(int(found.counts.sum()), int(found.lengths.sum()))


def join_timing(name: str, trained: Experience, drawn: Experience) -> Any:
    """Join a timing column of both: individuals in sequence, ranks and waits added up."""
    first, second = trained.timing[name], drawn.timing[name]
    return np.concatenate([first, second]) if name.startswith("member_") else first + second
