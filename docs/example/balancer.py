"""A robot on one wheel (balancer.xml) drives at a speed: `balancer:Balancer-v0` in Gymnasium."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box


class Balancer(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)
    dt = 0.02  # of a step [s], for films

    def __init__(self, speed=0.0, push=0.1):
        self.speed, self.push = speed, push
        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("balancer.xml")))
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # which seeds self.np_random
        mujoco.mj_resetData(self.model, self.data)  # all of it, the solver's warm start too
        self.data.joint("lean").qpos = self.np_random.uniform(-self.push, self.push)
        mujoco.mj_forward(self.model, self.data)  # or the first picture is black
        return self.observe(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, 10)
        x, _, lean, _ = self.data.qvel
        fallen = bool(abs(self.data.qpos[2]) > 0.8)
        reward = 0.0 if fallen else float(np.exp(-4 * (x - self.speed) ** 2 - 0.1 * lean**2))
        return self.observe(), reward, fallen, False, {}

    def observe(self):
        _, _, lean, _ = self.data.qpos
        x, _, turn, wheel = self.data.qvel
        return np.array([lean, x, turn, wheel / 10], np.float32)


gymnasium.register("Balancer-v0", entry_point="balancer:Balancer", max_episode_steps=200)
