"""The suite's cheetah, paid for running backwards: `backwards:Backwards-v0` in Gymnasium."""

import gymnasium
import numpy as np
from dm_control.rl.control import Environment
from dm_control.suite import cheetah
from dm_control.utils import rewards
from gymnasium.spaces import Box


class Task(cheetah.Cheetah):
    speed = 2.0

    def get_reward(self, physics):
        enough = (self.speed, np.inf)
        return rewards.tolerance(
            -physics.speed(), enough, margin=self.speed, value_at_margin=0, sigmoid="linear"
        )


class Backwards(gymnasium.Env):
    def __init__(self, speed=2.0):
        self.physics = cheetah.Physics.from_xml_string(*cheetah.get_model_and_assets())
        self.task = Task(random=0)
        self.task.speed = speed
        self.env = Environment(self.physics, self.task, n_sub_steps=2)
        self.dt = self.env.control_timestep()  # of a step [s], for films
        bounds = self.env.action_spec()
        self.action_space = Box(bounds.minimum, bounds.maximum, dtype=np.float64)
        sizes = [int(np.prod(spec.shape)) for spec in self.env.observation_spec().values()]
        self.observation_space = Box(-np.inf, np.inf, (sum(sizes),), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.task.random.seed(int(self.np_random.integers(2**32)))  # what its reset draws from
        return self.flat(self.env.reset()), {}

    def step(self, action):
        timestep = self.env.step(action)
        return self.flat(timestep), timestep.reward, timestep.discount == 0, False, {}

    def flat(self, timestep):
        return np.concatenate([np.ravel(part) for part in timestep.observation.values()])


gymnasium.register("Backwards-v0", entry_point="backwards:Backwards", max_episode_steps=250)
