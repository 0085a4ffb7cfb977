"""What a learner phase did, in a form that travels between ranks."""

from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Self

import numpy as np


@dataclass(frozen=True)
class Phase:
    """Counts of a phase, and means over its updates; nan where there was none."""

    SIZE: ClassVar[int]  # numbers of vector()

    env_steps: int = 0
    episodes: int = 0  # complete ones
    unstable_episodes: int = 0
    gradient_updates: int = 0
    episodic_return: float = np.nan  # mean over the complete episodes
    critic_loss: float = np.nan
    actor_loss: float = np.nan
    value_loss: float = np.nan
    mean_q: float = np.nan
    temperature: float = np.nan
    entropy: float = np.nan

    def vector(self) -> np.ndarray:
        """Return the fields as float64 [SIZE]."""
        return np.array(astuple(self), np.float64)

    @classmethod
    def of(cls, vector: np.ndarray) -> Self:
        """Return the phase of a vector [SIZE]."""
        counts, means = vector[:4].astype(int).tolist(), vector[4:].tolist()
        return cls(*counts, *means)


Phase.SIZE = len(fields(Phase))
