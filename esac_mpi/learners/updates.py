"""The frame of an update of any learner with a replay, and its buffers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from esac_mpi.learners.batch import Batch, Upload
from esac_mpi.learners.network import Network, Operations
from esac_mpi.operators.policy import Normaliser


class Critic(Protocol):
    """What judges actions: networks, in one flat tensor."""

    values: Tensor
    gradient: Tensor

    def vector(self, i: int) -> np.ndarray:
        """Return a copy of the parameters of the i-th, float32 [d]."""

    def refresh(self) -> None:
        """Make what passes multiply by follow `values`."""


class Update(ABC):
    """An update on a batch of transitions: `learn_critic`, then `learn_actor`, which is optional.

    Before it, `rows` [batch, width] takes the transitions (batch.py), and `noise` standard normal
    numbers where there is any; both float32, on the host. Its operations are noted once
    (network.py), in `lists`: the critic's part and the actor's.
    """

    delay = 1  # updates of the critic for one of actor and targets
    drawn: Upload | None = None  # noise, where it takes any
    noise: np.ndarray  # where that goes on the host

    def __init__(self, like: Tensor, batch: int, o: int, a: int, measured: int) -> None:
        """like: a tensor on the learner's device. measured: length of an update's `sums`."""
        self.batch = batch
        self.transitions = Batch(like, batch, o, a)
        self.rows = self.transitions.rows
        self.batch_sums = like.new_zeros(measured)  # over the batch
        # of `batch_sums`, over updates
        self.sums = torch.zeros(measured, dtype=torch.float64, device=like.device)
        self.networks: Sequence[Network | Critic] = ()  # all that an update passes through
        self.lists = self._critic, self._actor = Operations(), Operations()

    def take_noise(self, *shape: int) -> Tensor:
        """Make room for noise; return where it will be on the device."""
        self.drawn = Upload(self.batch_sums, *shape)
        self.noise = self.drawn.host
        return self.drawn.tensor

    def start(self, normaliser: Normaliser | None = None) -> None:
        """Reset what was measured; follow parameters changed from outside; set the normaliser."""
        self.sums.zero_()
        self.transitions.standardise(normaliser)
        for network in self.networks:
            network.refresh()

    def learn_critic(self) -> None:
        """Take the batch, and noise, and make the first part of an update."""
        self.transitions.move()
        if self.drawn is not None:
            self.drawn.move()
        self._critic.run()

    def learn_actor(self) -> None:
        """Make the second part of an update: the actor, and targets."""
        self._actor.run()

    @abstractmethod
    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
