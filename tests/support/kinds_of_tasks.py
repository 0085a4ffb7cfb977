"""A representative of every kind of task, and how it is played."""

from typing import Any

import gymnasium
import numpy as np
from dm_control import suite

# id: (observation size, action size, low, high, horizon); bounds are repeated to the action size
TASKS = {
    "HalfCheetah-v5": (17, 6, -1.0, 1.0, 1000),
    "Humanoid-v5": (348, 17, -0.4, 0.4, 1000),
    "Hopper-v5": (11, 3, -1.0, 1.0, 1000),
    "Reacher-v5": (10, 2, -1.0, 1.0, 50),
    "InvertedDoublePendulum-v5": (9, 1, -1.0, 1.0, 1000),
    "LunarLanderContinuous-v3": (8, 2, -1.0, 1.0, 1000),
    "BipedalWalker-v3": (24, 4, -1.0, 1.0, 1600),
    "own_task:Push-v0": (5, 4, -2.0, 2.0, 30),
    "dm_control/walker-walk-v0": (24, 6, -1.0, 1.0, 1000),
    "dm_control/fish-upright-v0": (21, 5, -1.0, 1.0, 1000),
    "dm_control/quadruped-walk-v0": (78, 12, (-1, -1, -0.8), (1, 1.1, 0.8), 1000),
    "CartPole-v1": (4, 2, -1.0, 1.0, 500),
    "LunarLander-v3": (8, 4, -1.0, 1.0, 1000),
    "own_task:Count-v0": (6, 3, -1.0, 1.0, 20),
    "CyclicMDP-v0": (3, 3, -1.0, 1.0, 2000),
}
DISCRETE = {"CartPole-v1", "LunarLander-v3", "own_task:Count-v0", "CyclicMDP-v0"}
SIMULATED = [id for id in TASKS if id != "CyclicMDP-v0"]
CLOCKWISE = np.array([-1, 1, -1], np.float32)


def actions(env, seed: int, steps: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.uniform(env.low, env.high, (steps, env.action_size)).astype(np.float32)


def play(env: Any, seed: int, steps: int = 80, player: Any = None) -> list[tuple]:
    """Play random actions of `player`; return (observation bytes, reward, two ends) by step."""
    episode: list[tuple] = [(env.reset(seed).tobytes(), 0.0, False, False)]
    for action in actions(player or env, seed, steps):
        observation, reward, terminated, truncated = env.step(action)
        episode.append((observation.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            break
    return episode


class Library:
    """A task of a library driven by hand: what our adapter must return."""

    def __init__(self, id: str) -> None:
        self.suite = id.startswith("dm_control/")
        if self.suite:
            name = id.removeprefix("dm_control/").removesuffix("-v0")
            self.env = suite.load(*name.split("-"), task_kwargs={"random": 0})
            self.physics = self.env.physics.data.ptr
        else:
            self.env = gymnasium.make(id, disable_env_checker=True)
            self.physics = getattr(self.env.unwrapped, "data", None)

    def flat(self, observation) -> np.ndarray:
        if self.suite:
            parts = [np.ravel(part) for part in observation.values()]
            return np.concatenate(parts).astype(np.float32)
        return gymnasium.spaces.flatten(self.env.observation_space, observation).astype(np.float32)

    def reset(self, seed: int) -> np.ndarray:
        if not self.suite:
            return self.flat(self.env.reset(seed=seed)[0])
        self.env.task.random.seed(seed)
        return self.flat(self.env.reset().observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        if self.suite:
            timestep = self.env.step(action)
            terminated = timestep.last() and timestep.discount == 0
            ends = terminated, timestep.last() and not terminated
            return self.flat(timestep.observation), timestep.reward, *ends
        space = self.env.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            action = space.start + np.argmax(action)
        else:
            action = action.reshape(space.shape).astype(space.dtype)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return self.flat(observation), float(reward), bool(terminated), truncated
