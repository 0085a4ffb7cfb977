"""Tasks of a few numbers, whose returns can be worked out by hand."""

import numpy as np


class Quadratic:
    """One step, whatever is observed: the reward is -|action - SOLUTION|^2."""

    # The biases of one layer are the three numbers.

    SOLUTION = np.array([0.5, 0.1, -0.3])
    id, observation_size, action_size, horizon, unstable = "Quadratic", 1, 3, 1, False
    low, high = -np.ones(3, np.float32), np.ones(3, np.float32)

    def reset(self, seed):
        return np.zeros(1, np.float32)

    def step(self, action):
        return np.zeros(1, np.float32), -float(np.square(action - self.SOLUTION).sum()), True, False


class Noted:
    """Two numbers in, two out, four steps."""

    # Notes the actions, and the rewards episode by episode: one of -2, 0 and 3.

    id, observation_size, action_size, horizon, unstable = "Noted", 2, 2, 4, False
    low, high = np.array([-1, 0], np.float32), np.array([1, 8], np.float32)

    def __init__(self):
        self.actions, self.rewards, self.seeds = [], [], []

    def reset(self, seed):
        self.random = np.random.default_rng(seed)
        self.seeds.append(seed)
        self.actions.append([])
        self.rewards.append([])
        return self.random.normal(size=2).astype(np.float32)

    def step(self, action):
        self.actions[-1].append(action.copy())
        reward = self.random.choice([-2.0, 0.0, 3.0]) * (1 if action[0] > 0 else 2)
        self.rewards[-1].append(reward)
        observation = self.random.normal(size=2).astype(np.float32)
        return observation, reward, False, len(self.rewards[-1]) == 4
