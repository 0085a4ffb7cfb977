"""The frame of an update of any learner with a replay, and its inputs: batch and noise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from esac_mpi.learners.network import Network, Operations
from esac_mpi.learners.replay import Replay
from esac_mpi.learners.training import Streams
from esac_mpi.operators.policy import CLIP, Normaliser
from esac_mpi.play.transitions import columns, width

MOST_AHEAD = 16  # updates that transitions are drawn for at once
DRAWN = 2**18  # of these transitions, at most: a part of a core's cache [bytes]


class Critic(Protocol):
    """What judges actions: networks, in one flat tensor."""

    values: Tensor
    gradient: Tensor

    def vector(self, i: int) -> np.ndarray:
        """Return a copy of the parameters of the i-th, float32 [d]."""

    def refresh(self) -> None:
        """Make what passes multiply by follow `values`."""


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
        self.finish(self.tensor)

    def finish(self, rows: Tensor) -> None:
        """Standardise rows [..., width], if so."""
        if self.standardised:
            mean, std, low, high = self._standard
            rows.sub_(mean).div_(std).clamp_(low, high)


class Update(ABC):
    """An update on a batch of transitions: `learn_critic`, then `learn_actor`, which is optional.

    Before it, `rows` [batch, width] takes the transitions, and `noise` standard normal
    numbers where there is any; both float32, on the host. `draw` draws them for up to `ahead`
    updates at once, and `take` is told whose turn it is: between two updates a call costs several
    times what it does between two calls. Its operations are noted once (network.py), in `lists`:
    the critic's part and the actor's.
    """

    delay = 1  # updates of the critic for one of actor and targets
    noise_input: Upload | None = None  # noise, where it takes any
    noise: np.ndarray  # where that goes on the host
    drawn_noise: np.ndarray  # of `ahead` updates

    def __init__(self, like: Tensor, batch: int, o: int, a: int, measured: int) -> None:
        """like: a tensor on the learner's device. measured: length of an update's `sums`."""
        self.batch = batch
        self.transitions = Batch(like, batch, o, a)
        self.rows = self.transitions.rows
        self.ahead = max(1, min(MOST_AHEAD, DRAWN // self.rows.nbytes))
        self.drawn = np.empty((self.ahead, *self.rows.shape), np.float32)
        self.batch_sums = like.new_zeros(measured)  # over the batch
        # of `batch_sums`, over updates
        self.sums = torch.zeros(measured, dtype=torch.float64, device=like.device)
        self.networks: Sequence[Network | Critic] = ()  # all that an update passes through
        self.lists = self._critic, self._actor = Operations(), Operations()

    def take_noise(self, *shape: int) -> Tensor:
        """Make room for noise; return where it will be on the device."""
        self.noise_input = Upload(self.batch_sums, *shape)
        self.noise = self.noise_input.host
        self.drawn_noise = np.empty((self.ahead, *shape), np.float32)
        return self.noise_input.tensor

    def start(self, normaliser: Normaliser | None = None) -> None:
        """Reset what was measured; follow parameters changed from outside; set the normaliser."""
        self.sums.zero_()
        self.transitions.standardise(normaliser)
        for network in self.networks:
            network.refresh()

    def draw(
        self, replay: Replay, random: Streams, count: int, added: int | None, newest: int | None
    ) -> None:
        """Draw what `count` updates take; added, newest: as of `Replay.places`."""
        replay.sample(random.sampling, self.drawn[:count], added, newest)
        if self.noise_input is not None:
            random.update.standard_normal(dtype=np.float32, out=self.drawn_noise[:count])

    def take(self, i: int) -> None:
        """Let the next update take what was drawn for the i-th."""
        self.rows[:] = self.drawn[i]
        if self.noise_input is not None:
            self.noise[:] = self.drawn_noise[i]

    def learn_critic(self) -> None:
        """Bring over the batch, and noise, and make the first part of an update."""
        self.transitions.move()
        if self.noise_input is not None:
            self.noise_input.move()
        self._critic.run()

    def learn_actor(self) -> None:
        """Make the second part of an update: the actor, and targets."""
        self._actor.run()

    @abstractmethod
    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
