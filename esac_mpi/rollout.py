"""Episodes: a policy in, returns and lengths out; and what a run counts and remembers of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from esac_mpi.envs import LARGEST, Env, UnstablePhysics, transition
from esac_mpi.noise import Purpose, generator, integer
from esac_mpi.policy import Policy


class Spread(Protocol):
    """What this module needs of the ranks (comm.World)."""

    rank: int

    def map(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, expected: np.ndarray | None = None, bulk: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> [columns] over all ranks; return [count, columns], valid until the next one, and busy seconds [size]."""


class Board(NamedTuple):
    """The shape of what ranks put together: a row for each piece of work, of whose numbers rank 0's node alone needs the bulk."""

    rows: int
    columns: int
    bulk: int = 0  # of the columns, at their end


class NoFiniteReturn(Exception):
    """No member of a population has a finite return: there is nothing to learn from."""


class ThetaNotFinite(Exception):
    """The policy that evolves is no longer finite: it has nothing more to give."""


@dataclass(frozen=True)
class Episode:
    """One episode. The return is nan if the physics was unstable or a reward not finite, in float32 as learners have it."""

    episodic_return: float
    episodic_length: int
    sign_return: float = 0.0  # sum of the signs of its rewards; nan where the return is


@dataclass
class Counters:
    """Every environment step and gradient update, by kind, since the start of the run."""

    env_steps_population: int = 0
    env_steps_learner: int = 0
    env_steps_evaluation: int = 0
    nominal_steps: int = 0
    gradient_updates: int = 0
    unstable_episodes: int = 0
    sac_phases: int = 0

    @property
    def env_steps(self) -> int:
        """True environment steps of all kinds."""
        return self.env_steps_population + self.env_steps_learner + self.env_steps_evaluation


@dataclass
class Best:
    """The best policy of the evaluations on schedule: of ESAC the better of theta_es and the SAC mean."""

    episodic_return: float = -np.inf
    generation: int = 0
    policy: str = ""
    theta: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # [d]
    normaliser: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.float32))  # [2, observation] mean and std


def play(
    env: Env,
    policy: Policy,
    seed: int,
    watch: Callable[[np.ndarray], None] | None = None,
    cap: int = 0,
    disturb: Callable[[np.ndarray], None] | None = None,
) -> Episode:
    """Play one episode whose start state is addressed by `seed`; show `watch` each observation acted on.

    cap > 0 truncates the episode there [steps]. `disturb` changes each action in place before it is taken.
    """
    total, length, signs = 0.0, 0, 0
    terminated = truncated = False
    try:
        observation = env.reset(seed)
        while not (terminated or truncated):
            if watch is not None:
                watch(observation)
            action = policy(observation)
            if disturb is not None:
                disturb(action)
            length += 1
            observation, reward, terminated, truncated = env.step(action)
            total += reward if abs(reward) <= LARGEST else np.nan
            signs += 1 if reward > 0 else -1 if reward < 0 else 0
            truncated = truncated or length == cap
    except UnstablePhysics:
        total = np.nan
    if env.unstable or not np.isfinite(total):
        total = np.nan
    return Episode(total, length, signs if np.isfinite(total) else np.nan)


def action_noise(policy: Policy, std: float, random: np.random.Generator) -> Callable[[np.ndarray], None]:
    """Return what adds Gaussian noise of `std` half ranges to an action of the policy and clips it to the bounds, in place."""
    scale = (policy.high - policy.low) / 2 * np.float32(std)

    def disturb(action: np.ndarray) -> None:
        action += scale * random.standard_normal(action.size, dtype=np.float32)
        np.clip(action, policy.low, policy.high, out=action)

    return disturb


class Recorder:
    """An environment that keeps the transitions of its episodes, as a replay has them: one a row, newest last.

    What is not to be learned from is left out: an observation or a reward that is not finite in float32, and all that follows a
    warning of the simulator in its episode.
    """

    def __init__(self, env: Env, capacity: int) -> None:
        self._env = env
        self._centre, self._half = (env.high + env.low) / 2, (env.high - env.low) / 2
        self.rows = np.zeros((capacity, width(env.observation_size, env.action_size)), np.float32)
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; its transitions follow those of the one before it."""
        self._observation = self._env.reset(seed)
        return self._observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action and keep the transition."""
        taken = np.clip((action - self._centre) / self._half, -1.0, 1.0)  # before the task, which may change it in place
        answer = following, reward, terminated, _ = self._env.step(action)
        paid = reward if abs(reward) <= LARGEST else np.nan
        row = np.concatenate([self._observation, taken, [paid, terminated], following], dtype=np.float32)
        if np.isfinite(row).all() and not self._env.unstable:
            self.rows[self.count] = row
            self.count += 1
        self._observation = following
        return answer

    def packed(self) -> np.ndarray:
        """Return the count and the rows as numbers that travel with a member's returns, float64 [packed_size(rows)]."""
        return packed(self.rows[: self.count], len(self.rows))


def width(observation_size: int, action_size: int) -> int:
    """Return the numbers of a transition: observation, action, reward, terminated, next observation."""
    return 2 * observation_size + action_size + 2


def packed_size(capacity: int, width: int) -> int:
    """Return how many float64 `capacity` transitions of `width` float32 are packed into."""
    return 1 + -(-capacity * width // 2)


def packed(rows: np.ndarray, capacity: int) -> np.ndarray:
    """Return transitions [count, width] as numbers that travel with an episode's return, float64 [packed_size]."""
    content = np.zeros(2 * (packed_size(capacity, rows.shape[1]) - 1), np.float32)
    content[: rows.size] = rows.ravel()
    return np.concatenate([[len(rows)], content.view(np.float64)])


def unpacked(packed: np.ndarray, width: int) -> np.ndarray:
    """Return the transitions that were packed, float32 [count, width]."""
    content = np.ascontiguousarray(packed[1:]).view(np.float32)
    return content[: int(packed[0]) * width].reshape(-1, width)


def explore(env: Env, act: Callable[[np.ndarray], np.ndarray], seed: int) -> tuple[np.ndarray, Episode]:
    """Play one episode by actions in [-1, 1], `act(observation)`; return its transitions and the episode.

    Transitions are float64 [n, 2 o + a + 2]: observation, action, reward, terminated, next observation. A step that cannot be
    learned from is counted, ends the episode and is not among them.
    """
    rows = [np.zeros((0, width(env.observation_size, env.action_size)))]
    total, length, ended = 0.0, 0, False
    try:
        observation = env.reset(seed)
    except UnstablePhysics:
        return rows[0], Episode(np.nan, 0)
    while not ended:
        action = act(observation)
        length += 1
        answer = transition(env, action)
        if answer is None:
            return np.vstack(rows), Episode(np.nan, length)
        next_observation, reward, terminated, truncated = answer
        rows.append(np.concatenate([observation, action, [reward, terminated], next_observation])[None])
        total, ended, observation = total + reward, terminated or truncated, next_observation
    return np.vstack(rows), Episode(total, length)


def collect(
    world: Spread, env: Env, mean: Policy, episodes: int, seed: int, k: int, noise: float | None
) -> tuple[list[tuple[np.ndarray, float, int]], np.ndarray]:
    """Play `episodes` episodes with exploration, spread over the ranks: `mean` with Gaussian noise, or uniform actions (None).

    mean: a policy with outputs in [-1, 1]. Returns transitions as `explore` has them but float32, return and steps of each
    episode, on rank 0 alone and until the next `collect`; and each rank's busy time [s].
    """
    numbers = width(env.observation_size, env.action_size)
    board = collection_board(episodes, env.horizon, numbers)

    def work(i: int) -> np.ndarray:
        random = generator(seed, Purpose.LEARNER, k, block=i)

        def act(observation: np.ndarray) -> np.ndarray:
            if noise is None:
                return random.uniform(-1.0, 1.0, env.action_size).astype(np.float32)
            gaussian = random.standard_normal(env.action_size, dtype=np.float32)
            return np.clip(mean(observation) + np.float32(noise) * gaussian, -1, 1)

        try:
            rows, episode = explore(env, act, integer(seed, Purpose.LEARNER_EPISODE, k, block=i))
        except Exception as error:
            error.add_note(f"in the training episodes of generation {k}, episode {i}")
            raise
        return np.concatenate([[episode.episodic_return, episode.episodic_length], packed(rows, env.horizon)])

    table, busy = world.map(work, board.rows, board.columns, bulk=board.bulk)
    return [(unpacked(row[2:], numbers), float(row[0]), int(row[1])) for row in table if world.rank == 0], busy


def collection_board(episodes: int, horizon: int, width: int) -> Board:
    """Return the shape of what `collect` puts together: return, steps and transitions of each episode."""
    packed = packed_size(horizon, width)
    return Board(episodes, 2 + packed, packed)


def evaluate(
    world: Spread, env: Env, policy: Policy, thetas: Mapping[str, np.ndarray], episodes: int, seed: int, generation: int
) -> tuple[dict[str, np.ndarray], int, int]:
    """Play `episodes` noise-free episodes of each policy, from the same start states.

    Returns ({name: returns [episodes]}, environment steps, unstable episodes).
    """
    names = list(thetas)

    def work(i: int) -> np.ndarray:
        address = integer(seed, Purpose.EVALUATION, generation, block=i % episodes)
        try:
            episode = play(env, policy.set(thetas[names[i // episodes]]), address)
        except Exception as error:
            error.add_note(f"in the evaluation of {names[i // episodes]} after generation {generation}, episode {i % episodes}")
            raise
        return np.array([episode.episodic_return, episode.episodic_length])

    table, _ = world.map(work, *evaluation_board(len(names), episodes)[:2])
    returns = table[:, 0].reshape(len(names), episodes).copy()
    unstable = int(np.isnan(returns).sum())
    return dict(zip(names, returns, strict=True)), int(table[:, 1].sum()), unstable


def evaluation_board(policies: int, episodes: int) -> Board:
    """Return the shape of what `evaluate` puts together: return and steps of each episode."""
    return Board(policies * episodes, 2)


def mean_return(returns: np.ndarray) -> float:
    """Return the mean of an evaluation's returns [episodes]; -inf if one of them is not finite."""
    return float(returns.mean()) if np.isfinite(returns).all() else -np.inf
