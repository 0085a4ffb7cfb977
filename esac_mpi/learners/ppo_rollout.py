"""Parts of a PPO rollout: its steps, the episode in progress, and the scale of rewards."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd

from esac_mpi.envs import Env

LEAST, MOST = 1e-8, 10.0  # added to a variance; bound of a divided reward: VecNormalize's


class Row(NamedTuple):
    """A step of a rollout, as the library's buffer takes it, and as it was for one environment."""

    observation: np.ndarray  # float32 [1, o]
    action: np.ndarray  # [1, a], or [1, 1] the choice
    reward: float
    start: bool  # whether it is the first of its episode
    value: torch.Tensor  # [1, 1]
    log_prob: torch.Tensor  # [1]


@dataclass
class Episode:
    """The episode in progress: what it is a function of, and where it stands in `env`."""

    seed: int
    env: Env | None = None  # None: it is yet to be played again
    # float32 [a] each, as `transition` took them
    actions: list[np.ndarray] = field(default_factory=list)
    observation: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # float32 [o]
    episodic_return: float = 0.0
    discounted: float = 0.0  # sum of its rewards so far, the older ones discounted

    def earn(self, reward: float, gamma: float) -> None:
        """Add a step's reward."""
        self.episodic_return += reward
        self.discounted = gamma * self.discounted + reward


class RewardScale:
    """Reward scale: running standard deviation of `Episode.discounted` over all steps.

    Source: SB3's VecNormalize.
    """

    def __init__(self) -> None:
        self._spread = RunningMeanStd()

    def scale(self, reward: float, episode: Episode) -> float:
        """Scale an episode's newest reward, after counting its step; clipped to [-10, 10]."""
        self._spread.update(np.array([episode.discounted]))
        return float(np.clip(reward / np.sqrt(self._spread.var + LEAST), -MOST, MOST))

    def array(self) -> np.ndarray:
        """Return all that it remembers, float64 [3]: mean, variance, count."""
        return np.array([self._spread.mean, self._spread.var, self._spread.count], np.float64)

    def load(self, array: np.ndarray) -> None:
        """Take over what `array` returned."""
        mean, variance, count = np.asarray(array, np.float64)
        self._spread.mean = np.array(mean)
        self._spread.var = np.array(variance)
        self._spread.count = float(count)
