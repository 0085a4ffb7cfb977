"""Episodes: a policy in, returns and lengths out; and what a run counts and remembers of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from esac_mpi.envs import Env, UnstablePhysics, transition
from esac_mpi.noise import Purpose, generator, integer
from esac_mpi.policy import Policy


class Spread(Protocol):
    """What this module needs of the ranks (comm.World)."""

    def map(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, expected: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> [columns] over all ranks; return [count, columns] and busy seconds [size]."""


class NoFiniteReturn(Exception):
    """No member of a population has a finite return: there is nothing to learn from."""


@dataclass(frozen=True)
class Episode:
    """One episode. The return is nan if the physics was unstable or a reward not finite."""

    episodic_return: float
    episodic_length: int


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
    """The best policy of the evaluations on schedule: the better of theta_es and the SAC mean."""

    episodic_return: float = -np.inf
    generation: int = 0
    policy: str = ""
    theta: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # [d]
    normaliser: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.float32))  # [2, observation] mean and std


def play(env: Env, policy: Policy, seed: int, watch: Callable[[np.ndarray], None] | None = None, cap: int = 0) -> Episode:
    """Play one noise-free episode whose start state is addressed by `seed`; show `watch` each observation acted on.

    cap > 0 truncates the episode there [steps].
    """
    total, length = 0.0, 0
    terminated = truncated = False
    try:
        observation = env.reset(seed)
        while not (terminated or truncated):
            if watch is not None:
                watch(observation)
            action = policy(observation)
            length += 1
            observation, reward, terminated, truncated = env.step(action)
            total += reward
            truncated = truncated or length == cap
    except UnstablePhysics:
        total = np.nan
    if env.unstable or not np.isfinite(total):
        total = np.nan
    return Episode(total, length)


def explore(env: Env, act: Callable[[np.ndarray], np.ndarray], seed: int) -> tuple[np.ndarray, Episode]:
    """Play one episode by actions in [-1, 1], `act(observation)`; return its transitions and the episode.

    Transitions are float64 [n, 2 o + a + 2]: observation, action, reward, terminated, next observation. A step that cannot be
    learned from is counted, ends the episode and is not among them.
    """
    rows = [np.zeros((0, 2 * env.observation_size + env.action_size + 2))]
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

    mean: a policy with outputs in [-1, 1]. Returns transitions as `explore` has them, return and steps of each episode, and
    each rank's busy time [s].
    """
    width = 2 * env.observation_size + env.action_size + 2

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
        packed = np.zeros(3 + env.horizon * width)
        packed[:3] = episode.episodic_return, episode.episodic_length, len(rows)
        packed[3 : 3 + rows.size] = rows.ravel()
        return packed

    table, busy = world.map(work, episodes, 3 + env.horizon * width)
    return [(row[3:].reshape(-1, width)[: int(row[2])], float(row[0]), int(row[1])) for row in table], busy


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

    table, _ = world.map(work, len(names) * episodes, 2)
    returns = table[:, 0].reshape(len(names), episodes)
    unstable = int(np.isnan(returns).sum())
    return dict(zip(names, returns, strict=True)), int(table[:, 1].sum()), unstable


def mean_return(returns: np.ndarray) -> float:
    """Return the mean of an evaluation's returns [episodes]; -inf if one of them is not finite."""
    return float(returns.mean()) if np.isfinite(returns).all() else -np.inf
