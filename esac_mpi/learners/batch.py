"""An update's inputs from the host, batch and noise, in memory allocated once on the device."""

import numpy as np
import torch
from torch import Tensor

from esac_mpi.operators.policy import CLIP, Normaliser
from esac_mpi.play.transitions import columns, width


class Upload:
    """A tensor on the learner's device, filled on the host in `host`, copied over by `move`."""

    def __init__(self, like: Tensor, *shape: int) -> None:
        self.tensor = like.new_empty(*shape)
        # Not pinned: from pageable memory a copy that is not waited for has read it all when it
        # returns, so that it can be filled again.
        self._host = self.tensor.cpu()  # on a CPU the same tensor
        self.host: np.ndarray = self._host.numpy()

    def move(self) -> None:
        """Bring what the host has to the device."""
        if self.tensor is not self._host:
            self.tensor.copy_(self._host)


class Batch:
    """A batch of transitions: `rows` [batch, width] on the host, filled by `Replay.sample`.

    `move` copies them to the device, as `tensor`. `standardise` has both observations of a row
    standardised there: the replay has them as they were.

    Views on the device: observation and next_observation [batch, o], action [batch, a], taken
    (observation, action) [batch, o + a], reward and terminated [batch].
    """

    def __init__(self, like: Tensor, batch: int, o: int, a: int) -> None:
        self._upload, at = Upload(like, batch, width(o, a)), columns(o, a)
        self.tensor = rows = self._upload.tensor
        self.rows, self._observations = self._upload.host, (at.observation, at.next_observation)
        self._standard = like.new_empty(4, width(o, a))  # mean, std, least and most of a row
        self.standardised = False
        self.observation, self.action, self.next_observation = (
            rows[:, part] for part in (at.observation, at.action, at.next_observation)
        )
        self.taken = rows[:, at.taken]
        self.reward = rows[:, at.reward]
        self.terminated = rows[:, at.terminated]

    def standardise(self, normaliser: Normaliser | None) -> None:
        """Standardise both observations from the next `move` on; None: leave them plain."""
        self.standardised = normaliser is not None
        if normaliser is not None:
            standard = np.repeat(
                np.array([[0], [1], [-np.inf], [np.inf]], np.float32), self.rows.shape[1], axis=1
            )
            for part in self._observations:
                limit = np.full_like(normaliser.mean, CLIP)
                standard[:, part] = normaliser.mean, normaliser.std, -limit, limit
            self._standard.copy_(torch.from_numpy(standard))

    def move(self) -> None:
        """Bring the rows over."""
        self._upload.move()
        self.arrived()

    def arrived(self) -> None:
        """Standardise the rows that have come, if so."""
        if self.standardised:
            mean, std, low, high = self._standard
            self.tensor.sub_(mean).div_(std).clamp_(low, high)
