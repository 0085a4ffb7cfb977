"""A batch of transitions as an update of a deterministic actor reads it, on the learner's device."""

import numpy as np
from torch import Tensor


class Transitions:
    """Fixed memory for a batch: `rows` [batch, 2 o + a + 2] on the host takes the transitions, as `Replay.sample` draws them.

    The rest are views on the device: observation and next_observation [batch, o], taken (observation, action)
    [batch, o + a], reward and terminated [batch]. `own` and `following` [batch, o + a] take the actor's own action behind the
    observation and the next one.
    """

    def __init__(self, like: Tensor, batch: int, o: int, a: int) -> None:
        self._rows = like.new_empty(batch, 2 * o + a + 2)
        self._host = self._rows.cpu()  # on a CPU the same tensor
        self.rows: np.ndarray = self._host.numpy()
        self.observation, self.next_observation = self._rows[:, :o], self._rows[:, o + a + 2 :]
        self.taken = self._rows[:, : o + a]
        self.reward, self.terminated = self._rows[:, o + a], self._rows[:, o + a + 1]
        self.own, self.following = like.new_empty(2, batch, o + a)

    def move(self) -> None:
        """Bring `rows` to the device, and the observations to where the actor's actions will stand."""
        if self._rows is not self._host:
            self._rows.copy_(self._host)
        o = self.observation.shape[1]
        self.own[:, :o].copy_(self.observation)
        self.following[:, :o].copy_(self.next_observation)
