"""TD3 (twin delayed DDPG), on rank 0: networks, phases, update and checkpoint.

Source: Fujimoto et al. 2018 (arXiv:1802.09477), Algorithm 1, and the authors' later public code.
ddpg.py is this file without its three changes: twin critics, of which targets take the lesser;
noise on the target's action; actor and targets once in policy_delay updates. Actor and critics
share one learning rate here, and nothing decays.

Where we differ, or leave a choice:
- Hidden layers are `policy.hidden`; all networks start as this program's policies do (policy.py).
- The actor acts by tanh also under policy.output = "clip", where the evaluated policy acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from esac_mpi.learners import Start, deterministic
from esac_mpi.learners.deterministic import Deterministic, Parts
from esac_mpi.learners.network import Network, Operations, Pass

CRITIC1, CRITIC2 = 17, 18  # which network initial weights are drawn for


class TD3(Deterministic):
    """The TD3 learner: networks, Adam, replay and its count of training steps."""

    NAME = "TD3"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critics."""
        options = start.config.td3
        super().__init__(start, options)
        critics = self.critics(start.layout, CRITIC1, CRITIC2)
        parts = self.assemble(start, critics, options.lr_td3, options.lr_td3)
        smoothing = options.policy_noise, options.noise_clip
        self.update = Update(parts, options, smoothing, delay=options.policy_delay)
        self.ready()

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a], from the actor's output."""
        return explored(output, self.options.exploration_noise, random)


def explored(output: np.ndarray, noise: float, random: np.random.Generator) -> np.ndarray:
    """Draw tanh of the actor's output [a] with Gaussian noise of std `noise`, in [-1, 1]."""
    gaussian = random.standard_normal(output.size, dtype=np.float32)
    return np.clip(np.tanh(output) + np.float32(noise) * gaussian, -1, 1)


class Update(deterministic.Update[Network]):
    """The update of TD3, and, without twin critics, target noise and delay, of DDPG.

    The critic sees observation and action side by side; `noise` is [batch, a].
    """

    def __init__(
        self,
        parts: Parts[Network],
        options: Any,
        smoothing: tuple[float, float] | None = None,
        delay: int = 1,
        weight_decay: float | None = None,
    ) -> None:
        """smoothing: standard deviation and bound of the noise. weight_decay: of the critic."""
        super().__init__(parts, options)
        (o, *_, a), like = parts.actor.layout.sizes, parts.actor.values
        self.delay, self._smoothing, self._weight_decay = delay, smoothing, weight_decay
        if smoothing is not None:
            self.take_noise(self.batch, a)
        # observation, or the next one, and the actor's action
        self._own, self._following = like.new_empty(2, self.batch, o + a)
        self._first = parts.critic if parts.critic.members == 1 else parts.critic.member(0)
        self._critic_pass = Pass(parts.critic, self.batch)
        self._first_pass = Pass(self._first, self.batch)
        self._note()

    def _of_each(self, seen: Tensor) -> Tensor:
        """What each of the critics sees."""
        members = self.parts.critic.members
        return seen if members == 1 else seen.expand(members, self.batch, -1)

    def _following_q(self, do: Operations) -> Tensor:
        """Note the lesser target Q of the next observations and the smoothed target action."""
        parts, o = self.parts, self.transitions.observation.shape[1]
        if self.drawn is not None and self._smoothing is not None:
            std, limit = self._smoothing
            smoothing = torch.empty_like(self._action)
            do.note(torch.mul, self.drawn.tensor, std, out=smoothing)
            do.note(smoothing.clamp_, -limit, limit)
            do.note(self._action.add_, smoothing)
            do.note(self._action.clamp_, -1, 1)
        do.note(self._following[:, :o].copy_, self.transitions.next_observation)
        do.note(self._following[:, o:].copy_, self._action)
        seen = self._of_each(self._following)
        q = self._critic_pass.forward(do, parts.target_critic, seen)[..., 0]
        if parts.critic.members == 1:
            return q
        lesser = torch.empty_like(self.transitions.reward)
        do.note(torch.minimum, q[0], q[1], out=lesser)
        return lesser

    def _taken_q(self, do: Operations) -> Tensor:
        """Note Q of the critics for the transitions."""
        seen = self._of_each(self.transitions.taken)
        return self._critic_pass.forward(do, self.parts.critic, seen)

    def _critic_backward(self, do: Operations, error: Tensor) -> None:
        """Note the critics' gradient, and what decay adds to it."""
        critic = self.parts.critic
        self._critic_pass.backward(do, critic, self._of_each(self.transitions.taken), error)
        if self._weight_decay is not None:
            do.note(critic.gradient.add_, critic.values, alpha=self._weight_decay)

    def _own_q(self, do: Operations) -> Tensor:
        """Note Q of the actor's own actions, by the first critic."""
        o = self.transitions.observation.shape[1]
        do.note(self._own[:, :o].copy_, self.transitions.observation)
        do.note(self._own[:, o:].copy_, self._action)
        return self._first_pass.forward(do, self._first, self._own)

    def _by_action(self, do: Operations, delta: Tensor) -> Tensor:
        """Note the gradient by these actions."""
        first = self._first_pass.inputs_backward(do, self._first, delta)
        # [a, hidden]: from the first layer's sums back to the action
        to_action = self._first.layers[0][0][-self._action.shape[1] :]
        wide = first.new_empty(len(to_action), self.batch)  # many times faster than tall
        by_action = torch.empty_like(self._action)
        do.note(torch.mm, to_action, first.mT, out=wide)
        do.note(by_action.copy_, wide.mT)
        return by_action
