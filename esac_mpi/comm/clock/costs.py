"""What was measured of a task, a learner and an exchange, on the ranks that a run would have."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Pieces:
    """Times of pieces of work, each measured with all ranks as busy as in a run [s]."""

    episodes: np.ndarray  # of whole episodes [m]
    lengths: np.ndarray  # theirs [m] [steps]
    horizon: int  # of an episode [steps]
    making: float = 0.0  # of a member's parameters
    slot: float = 0.0  # of a slot's part in the update, all blocks of it
    blocks: int = 1  # pieces in which ranks share an update
    sums: int = 0  # numbers that a member's sums over observations are, where they are normalised
    playing: float = 0.0  # of a step that the learner plays
    updating: float = 0.0  # of a gradient update
    training: float = 0.0  # of a gradient update of an individual, on any rank
    imitating: float = 0.0  # of a step of a distilled child
    crossing: float = 0.0  # of a child that imitates nobody
    mutating: float = 0.0  # of a mutation
    exchange: float = 0.0  # of results that took no time to make
    cpu: bool = True  # whether the learner is on one

    @property
    def length(self) -> float:
        """Mean length of an episode [steps]."""
        return float(self.lengths.mean())

    @property
    def step(self) -> float:
        """Time of a step of an episode, its start shared out [s]."""
        return float(self.episodes.sum() / self.lengths.sum())

    def lasting(self, count: int, k: int) -> np.ndarray:
        """Return the times of `count` episodes in generation k, measured in turn [count] [s]."""
        return np.take(self.episodes, np.arange(k, k + count), mode="wrap")

    def members(self, n: int, count: int, k: int) -> np.ndarray:
        """Time n members of `count` episodes each in generation k [n] [s]."""
        return self.lasting(n * count, k).reshape(n, count).sum(axis=1) + self.making

    def at_horizon(self) -> Self:
        """Return the pieces of a policy whose episodes all last to the horizon."""
        lasted = np.full(self.episodes.size, self.horizon)
        return replace(self, episodes=self.step * lasted, lengths=lasted)
