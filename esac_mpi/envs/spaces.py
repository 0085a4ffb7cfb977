"""What a library that learns in Gymnasium's terms must know of a task of ours: its spaces."""

import numpy as np
from gymnasium.spaces import Box
from gymnasium.spaces import Discrete as Discrete


def observations(size: int) -> Box:
    """Return the space of observations, float32 [size]."""
    return Box(-np.inf, np.inf, (size,), np.float32)


def actions(size: int) -> Box:
    """The space of actions as learners have them, float32 [size] in [-1, 1] (envs.transition)."""
    return Box(-1.0, 1.0, (size,), np.float32)
