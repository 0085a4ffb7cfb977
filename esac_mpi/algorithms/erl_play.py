"""ERL's episodes, members' without noise, the learner's with it; and what memories become."""

from dataclasses import dataclass

import numpy as np

from esac_mpi.algorithms.erl_state import Now, has_memories
from esac_mpi.operators import evolution, memories, noise
from esac_mpi.operators.memories import Memory
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Policy
from esac_mpi.play import experience
from esac_mpi.play.experience import Crew, Experience
from esac_mpi.play.params import Params, make_actor
from esac_mpi.play.rollout import Board, Episode, note_origin, refuse_no_return
from esac_mpi.play.transitions import columns, width


@dataclass(frozen=True)
class Played:
    """What the episodes of a generation gave."""

    returns: np.ndarray  # float64 [k] means over the episodes, nan where one was unstable
    fitness: np.ndarray  # float64 [k] what selection compares: these, less reward_shift a step
    length: np.ndarray  # int64 [k] steps of all of a member's episodes
    learner: Episode
    noise: np.ndarray  # float64 [a] where the process of the learner's noise has come to
    episodes: Experience  # of each member in turn, then the learner's one

    @property
    def steps(self) -> int:
        """Steps of the population."""
        return int(self.length.sum())


def crew(params: Params) -> Crew:
    """Return a generation's crew: an actor for each episode.

    Transitions go to every node where members remember, else to rank 0's alone: 4 (2 o + a + 2)
    bytes a step.
    """
    erl, (o, *_, a) = params.config.erl, params.layout.sizes
    count = erl.population_size * erl.fitness_episodes + 1
    return Crew(count, a, params.horizon, width(o, a), has_memories(erl))


def board(params: Params) -> Board:
    """Return the shape of a generation's board: a row for each episode."""
    return crew(params).board


def play(now: Now) -> Played:
    """Play the episodes of a generation, spread over the ranks. Raises NoFiniteReturn."""
    params, state, env, k = now.params, now.state, now.env, now.k
    erl, seed, everybody = params.config.erl, params.config.seed, crew(params)
    o, *_, a = params.layout.sizes
    actor, last = make_actor(params), everybody.count - 1
    learners = "the learner's episode"
    if not erl.exploration_clip:
        learners += " by actions beyond its bounds too (erl.exploration_clip = false)"

    def playing(i: int) -> experience.Played:
        member, number = divmod(i, erl.fitness_episodes)
        process = state.noise.copy()
        whose = learners if i == last else f"member {member}"
        with note_origin(f"in generation {k}, {whose} (seed {seed})"):
            if i == last:
                played = play_learner(now, actor.set(state.theta), process)
            else:
                address = noise.integer(seed, Purpose.EPISODE, k, member, number)
                played = experience.play(env, actor.set(state.population[member]), [address])
        if erl.time_limits == "termination" and not played.unstable and len(played.rows):
            played.rows[-1, columns(o, a).terminated] = 1.0
        return played._replace(own=process)

    found = experience.gather(now.world, everybody, playing, np.ones(everybody.count))
    returns, lengths = (
        numbers[:last].reshape(-1, erl.fitness_episodes)
        for numbers in (found.returns, found.lengths)
    )
    means = returns.mean(axis=1)
    fitness = evolution.shifted(means, lengths.mean(axis=1), erl.shift)
    refuse_no_return(k, fitness)
    learner = Episode(float(found.returns[last]), int(found.lengths[last]))
    return Played(means, fitness, lengths.sum(axis=1), learner, found.own[last].copy(), found)


def play_learner(now: Now, actor: Policy, process: np.ndarray) -> experience.Played:
    """Play the learner's episode of a generation. process [a] goes on, in place.

    The noise is an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930):
    x += theta (0 - x) + sigma N(0, 1), times ou_scale.
    Where it is not clipped, the task takes and the critic learns from what it makes of the action.
    """
    erl, seed = now.params.config.erl, now.params.config.seed
    random = noise.generator(seed, Purpose.LEARNER, now.k)

    def act(observation: np.ndarray) -> np.ndarray:
        process[:] += -erl.ou_theta * process + erl.ou_sigma * random.standard_normal(process.size)
        action = actor(observation) + np.float32(erl.ou_scale) * process.astype(np.float32)
        return np.clip(action, -1, 1) if erl.exploration_clip else action

    address = noise.integer(seed, Purpose.LEARNER_EPISODE, now.k)
    return experience.play(now.env, act, [address], erl.exploration_clip)


def remember(now: Now, played: Played) -> None:
    """Write next_memories, on each node: memories with the generation's episodes added."""
    state, erl, of_episodes = now.state, now.params.config.erl, played.episodes
    o, *_, a = now.params.layout.sizes
    taken = columns(o, a).taken
    # of each episode's first transition
    numbers = state.transitions + np.concatenate([[0], np.cumsum(of_episodes.counts)])

    def work(owner: int) -> np.ndarray:
        first = owner * erl.fitness_episodes
        episodes = range(first, min(first + erl.fitness_episodes, of_episodes.counts.size))
        new = np.vstack([of_episodes.rows(i)[:, taken] for i in episodes])
        before = Memory(state.memories[owner], state.ages[owner])
        memories.remember(before, new, int(numbers[first]), state.memory(owner))
        return np.zeros(1)

    now.world.over_blocks(work, len(state.memories), 1)
