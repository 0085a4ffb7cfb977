"""Tasks of a user's own module, with spaces, bounds and horizons of every kind."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Push(gymnasium.Env):
    """A point that random gusts move."""

    observation_space = Dict(
        {"b": Box(-9, 9, (3,), np.float32), "a": Box(-9, 9, (2, 1), np.float64)}
    )
    action_space = Box(-2, 2, (2, 2), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = {"b": self.np_random.normal(size=3).astype(np.float32), "a": np.zeros((2, 1))}
        return self.state, {}

    def step(self, action):
        assert action.shape == (2, 2)
        assert action.dtype == np.float64
        self.state["a"] += action[:, :1] + self.np_random.normal(size=(2, 1))
        return self.state, float(action[0, 1]), False, False, {}


class Buffer(Push):
    observation_space = Box(-9, 9, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.state["b"], {}

    def step(self, action):
        self.state["b"] += action[0, 0]
        return self.state["b"], 0.0, False, False, {}


class Count(gymnasium.Env):
    """Six states, wandering at random; the reward is the number of the choice: 5, 6 or 7."""

    observation_space = Discrete(6)
    action_space = Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(6), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.np_random.integers(6), float(action), False, False, {}


class Bounded(gymnasium.Env):
    """Insist on actions within random bounds of a type; the first are +-0.1."""

    observation_space = Box(-9, 9, (1,), np.float32)

    def __init__(self, dtype):
        bounds = np.random.default_rng(0).uniform(-2, 2, (2, 20, 30))
        low, high = np.sort(bounds, axis=0).astype(dtype)
        low[0], high[0] = dtype("-0.1"), dtype("0.1")
        self.action_space = Box(low, high, dtype=dtype)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


gymnasium.register("Push-v0", Push, max_episode_steps=30)
gymnasium.register("Buffer-v0", Buffer, max_episode_steps=30)
gymnasium.register("Count-v0", Count, max_episode_steps=20)
gymnasium.register("Endless-v0", Push)
for dtype in (np.float16, np.float32, np.float64):
    name, kwargs = f"Bounded-{dtype.__name__}-v0", {"dtype": dtype}
    gymnasium.register(name, Bounded, max_episode_steps=30, kwargs=kwargs)
