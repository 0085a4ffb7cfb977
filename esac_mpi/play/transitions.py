"""A transition and its one layout, a row of float32: in episodes, messages, replay and batches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.envs import LARGEST, Env, half_range


class Columns(NamedTuple):
    """Where the parts of a transition stand in its row, by name."""

    observation: slice
    # as the task took it, in [-1, 1] but for noise that was not clipped (erl.exploration_clip)
    action: slice
    reward: int
    terminated: int  # 1 where the task ended; 0 at a time limit
    next_observation: slice

    @property
    def taken(self) -> slice:
        """Observation and action, side by side: what a critic sees."""
        return slice(self.observation.start, self.action.stop)


def columns(observation_size: int, action_size: int) -> Columns:
    """Return the layout of a transition of a task with these sizes."""
    o, a = observation_size, action_size
    return Columns(slice(0, o), slice(o, o + a), o + a, o + a + 1, slice(o + a + 2, 2 * o + a + 2))


def width(observation_size: int, action_size: int) -> int:
    """Count the numbers of a transition."""
    return columns(observation_size, action_size).next_observation.stop


def join(
    observation: np.ndarray,
    action: np.ndarray,
    reward: float,
    terminated: bool,
    next_observation: np.ndarray,
) -> np.ndarray:
    """Return a transition as a row, float32 [width]: observations [o], action [a]."""
    return np.concatenate(
        [observation, action, [reward, terminated], next_observation], dtype=np.float32
    )


def write_ring(ring: np.ndarray, rows: np.ndarray, stop: int) -> None:
    """Write rows [n, ...] into a ring, the last ones before number `stop`; i is at i % size."""
    ring[np.arange(stop - len(rows), stop) % len(ring)] = rows


def read_ring(ring: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return a copy of the rows of numbers [start, stop) of a ring."""
    return ring[np.arange(start, stop) % len(ring)]


def as_doubles(values: np.ndarray) -> np.ndarray:
    """Return float32 [n] as numbers that travel between ranks, float64 [ceil(n / 2)]."""
    content = np.zeros(values.size + values.size % 2, np.float32)
    content[: values.size] = values
    return content.view(np.float64)


def as_floats(doubles: np.ndarray, n: int) -> np.ndarray:
    """Undo `as_doubles`, in rows [..., ceil(n / 2)], as float32 [..., n]."""
    return np.ascontiguousarray(doubles).view(np.float32)[..., :n]


class Recorder:
    """An environment that keeps its episodes' transitions as a replay does: rows, newest last.

    What is not to be learned from is left out: an observation or a reward that is not finite in
    float32, and all that follows a warning of the simulator in its episode.
    """

    def __init__(self, env: Env, capacity: int) -> None:
        self._env = env
        self._loop: Any = getattr(env, "closed_loop", None)
        self.closed_loop = None if self._loop is None else self  # that of `env` would pass it by
        self._centre, self._half = (env.high + env.low) / 2, half_range(env.low, env.high)
        self._at = columns(env.observation_size, env.action_size)
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
        # before the task, which may change it in place
        taken = np.clip((action - self._centre) / self._half, -1.0, 1.0)
        answer = following, reward, terminated, _ = self._env.step(action)
        paid = reward if abs(reward) <= LARGEST else np.nan
        row = join(self._observation, taken, paid, terminated, following)
        if np.isfinite(row).all() and not self._env.unstable:
            self.rows[self.count] = row
            self.count += 1
        self._observation = following
        return answer

    def run(self, drive: Callable[..., None], observation: np.ndarray, most: int) -> Any:
        """Take steps as `envs.closed_loop` does and keep their transitions."""
        run = self._loop.run(drive, observation, most)
        n = len(run.actions)
        failed = len(run.rewards) > n  # at a step beyond these
        rewards = np.array(run.rewards[:n])
        rows = np.zeros((n, self.rows.shape[1]), np.float32)
        rows[:, self._at.observation] = run.observations[:-1]
        rows[:, self._at.action] = np.clip((run.actions - self._centre) / self._half, -1.0, 1.0)
        rows[:, self._at.reward] = np.where(np.abs(rewards) <= LARGEST, rewards, np.nan)
        rows[-1:, self._at.terminated] = run.terminated and not failed
        rows[:, self._at.next_observation] = run.observations[1:]
        if self._env.unstable and not failed:
            rows = rows[:-1]  # a warning ends a run
        rows = rows[np.isfinite(rows).all(axis=1)]
        self.rows[self.count : self.count + len(rows)] = rows
        self.count += len(rows)
        return run
