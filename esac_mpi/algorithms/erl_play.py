"""ERL's episodes: every member's without noise, the learner's with it; and what memories become by their transitions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from esac_mpi import memories, noise
from esac_mpi.algorithms.erl_state import State, memory, remembers
from esac_mpi.contracts import World
from esac_mpi.envs import Env
from esac_mpi.memories import Memory
from esac_mpi.noise import Purpose
from esac_mpi.params import Params, Row, make_actor
from esac_mpi.policy import Policy
from esac_mpi.rollout import Board, Episode, NoFiniteReturn, explore
from esac_mpi.transitions import columns, packed, packed_size, unpacked, width

RETURN, LENGTH, SECONDS, TRANSITIONS, HEAD = range(5)  # columns of an episode's row; after them the noise, then what was packed


@dataclass(frozen=True)
class Played:
    """What the episodes of a generation gave: of each member in turn, then the learner's one."""

    fitness: np.ndarray  # float64 [k] mean returns, nan where an episode was unstable
    length: np.ndarray  # int64 [k] steps of all of its episodes
    learner: Episode
    unstable: int  # episodes
    noise: np.ndarray  # float64 [a] where the process of the learner's noise has come to
    counts: np.ndarray  # int64 [episodes] transitions of each
    rows: Callable[[int], np.ndarray]  # episode -> its transitions, float32 [count, width], on nodes that have them
    episodes: list[tuple[float, int]]  # return and steps of each
    timing: Row  # busy_seconds [ranks], member_seconds and member_expected [episodes], seconds_wait

    @property
    def steps(self) -> int:
        """Steps of the population."""
        return int(self.length.sum())


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: a row for each episode.

    Its transitions go to every node where members remember, else to rank 0's alone: 4 (2 o + a + 2) bytes a step.
    """
    erl, (o, *_, a) = params.config.erl, params.layout.sizes
    numbers = packed_size(params.horizon, width(o, a))
    return Board(erl.population_size * erl.fitness_episodes + 1, HEAD + a + numbers, 0 if remembers(erl) else numbers)


def play(params: Params, state: State, world: World, env: Env, k: int) -> Played:
    """Play the episodes of generation k, spread over the ranks. Raises NoFiniteReturn."""
    erl, shape, actor = params.config.erl, board(params), make_actor(params)
    last = shape.rows - 1

    def work(i: int) -> np.ndarray:
        start, member = world.clock(), i // erl.fitness_episodes
        process = state.noise.copy()
        try:
            if i == last:
                rows, episode = learners_episode(params, env, actor.set(state.theta), process, k)
            else:
                seed = noise.integer(params.config.seed, Purpose.EPISODE, k, member, i % erl.fitness_episodes)
                rows, episode = explore(env, actor.set(state.population[member]), seed)
        except Exception as error:
            whose = "the learner's episode" if i == last else f"member {member}"
            error.add_note(f"in generation {k}, {whose} (seed {params.config.seed})")
            raise
        if erl.time_limits == "termination" and np.isfinite(episode.episodic_return) and len(rows):
            rows[-1, columns(env.observation_size, env.action_size).terminated] = 1.0
        about = episode.episodic_return, episode.episodic_length, 0.0, len(rows)
        row = np.concatenate([about, process, packed(rows, params.horizon)])
        row[SECONDS] = world.clock() - start
        return row

    waited, expected = world.waited, np.ones(shape.rows)
    table, busy = world.map(work, shape.rows, shape.columns, expected, shape.bulk)
    returns, lengths = table[:last, RETURN].reshape(-1, erl.fitness_episodes), table[:last, LENGTH]
    if not np.isfinite(returns.mean(axis=1)).any():
        raise NoFiniteReturn(f"generation {k}: the return of no member is finite: look at the task")
    first, numbers = HEAD + env.action_size, width(env.observation_size, env.action_size)
    waiting = {"busy_seconds": busy, "seconds_wait": world.waited - waited}
    return Played(
        fitness=returns.mean(axis=1),
        length=lengths.reshape(returns.shape).sum(axis=1).astype(np.int64),
        learner=Episode(float(table[last, RETURN]), int(table[last, LENGTH])),
        unstable=int(np.isnan(table[:, RETURN]).sum()),
        noise=table[last, HEAD:first].copy(),
        counts=table[:, TRANSITIONS].astype(np.int64),
        rows=lambda i: unpacked(table[i, first:], numbers),
        episodes=[(float(row[RETURN]), int(row[LENGTH])) for row in table],
        timing={**waiting, "member_seconds": table[:, SECONDS].copy(), "member_expected": expected},
    )


def learners_episode(params: Params, env: Env, actor: Policy, process: np.ndarray, k: int) -> tuple[np.ndarray, Episode]:
    """Play the learner's episode of generation k; return its transitions and the episode. process [a] goes on, in place.

    The noise is an Ornstein-Uhlenbeck process (Uhlenbeck and Ornstein 1930): x += theta (0 - x) + sigma N(0, 1), times ou_scale.
    """
    erl, seed = params.config.erl, params.config.seed
    random = noise.generator(seed, Purpose.LEARNER, k)

    def act(observation: np.ndarray) -> np.ndarray:
        process[:] += -erl.ou_theta * process + erl.ou_sigma * random.standard_normal(process.size)
        action = actor(observation) + np.float32(erl.ou_scale) * process.astype(np.float32)
        return np.clip(action, -1, 1) if erl.exploration_clip else action

    return explore(env, act, noise.integer(seed, Purpose.LEARNER_EPISODE, k))


def remember(params: Params, state: State, played: Played, world: World) -> None:
    """Put into next_memories, on each node, what memories become by the generation's episodes."""
    erl, (o, *_, a) = params.config.erl, params.layout.sizes
    taken = columns(o, a).taken
    numbers = state.transitions + np.concatenate([[0], np.cumsum(played.counts)])  # of each episode's first transition

    def work(owner: int) -> np.ndarray:
        first = owner * erl.fitness_episodes
        episodes = range(first, min(first + erl.fitness_episodes, played.counts.size))
        new = np.vstack([played.rows(i)[:, taken] for i in episodes])
        before = Memory(state.memories[owner], state.ages[owner])
        memories.remember(before, new, int(numbers[first]), memory(state, owner))
        return np.zeros(1)

    world.over_blocks(work, len(state.memories), 1)
