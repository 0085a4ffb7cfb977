"""DDPG's update with the changes of TD3 and ERL, and what their learners share.

An actor acts by tanh; actor and critics have targets, which follow. An algorithm's own part is in
td3.py, ddpg.py, erl.py and cem.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esac_mpi.learners import Start, critics, updates
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass
from esac_mpi.learners.updates import Critic

TINY = 1e-6  # what torch.nn.utils.clip_grad_norm_ adds to a norm


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network
    critic: Critic  # one of DDPG and ERL, two of TD3
    target_actor: Network  # at first equal to what they follow; the actor itself: it has no target
    target_critic: Critic
    adam: Mapping[str, Adam]  # critic, and actor if it learns


class Deterministic(GradientLearner):
    """A learner of that kind: each sets its parts and its update by `assemble`."""

    def assemble(
        self,
        start: Start,
        critics: tuple[Critic, Critic],
        lr_actor: float,
        lr_critic: float,
        **changes: Any,
    ) -> None:
        """Make actor and target; take critic and target critic. changes: of its update."""
        self.actor, target_actor = (self.actor_network(start.layout, start.theta) for _ in range(2))
        self.critic, target_critic = critics
        self.adam = {
            "actor": Adam(self.actor.values, self.actor.gradient, lr_actor),
            "critic": Adam(self.critic.values, self.critic.gradient, lr_critic),
        }
        self.targets = {"target_actor": target_actor, "target_critic": target_critic}
        parts = Parts(self.actor, self.critic, target_actor, target_critic, self.adam)
        self.update = DeterministicUpdate(parts, self.options, **changes)
        self.ready()

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw tanh of the actor's output [a] with Gaussian noise, in [-1, 1]."""
        gaussian = random.standard_normal(output.size, dtype=np.float32)
        noise = np.float32(self.options.exploration_noise)
        return np.clip(np.tanh(output) + noise * gaussian, -1, 1)


class DeterministicUpdate(updates.Update):
    """Forward and backward by hand, noted once; `noise` is [batch, a].

    tests/learners/test_deterministic.py checks it against the same formulas with autograd.
    """

    def __init__(
        self,
        parts: Parts,
        options: Any,
        smoothing: tuple[float, float] | None = None,
        delay: int = 1,
        weight_decay: float | None = None,
        clip: float | None = None,
    ) -> None:
        """options: the learner's table.

        smoothing: standard deviation and bound of noise on the target's action. delay: updates of
        the critic for one of the actor. weight_decay: of the critic. clip: norm of a gradient.
        """
        o, *_, a = parts.actor.layout.sizes
        like = parts.actor.values
        # measured: squared errors of the critics, Q of the actor's own actions
        super().__init__(like, options.batch_size, o, a, measured=2)
        self.parts, self.options, self.delay = parts, options, delay
        self.networks = parts.actor, parts.critic, parts.target_actor, parts.target_critic
        self._smoothing, self._weight_decay, self._clip = smoothing, weight_decay, clip
        if smoothing is not None:
            self.take_noise(self.batch, a)
        self._action = like.new_empty(self.batch, a)
        self._actor_pass = Pass(parts.actor, self.batch)
        self._judging = critics.passes(parts.critic, self.batch)
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def _note_critic(self, do: Operations) -> None:
        parts, batch, judging = self.parts, self.transitions, self._judging
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        if self.noise_input is not None and self._smoothing is not None:
            std, limit = self._smoothing
            smoothing = torch.empty_like(self._action)
            do.note(torch.mul, self.noise_input.tensor, std, out=smoothing)
            do.note(smoothing.clamp_, -limit, limit)
            do.note(self._action.add_, smoothing)
            do.note(self._action.clamp_, -1, 1)
        seen = judging.seen(do, batch.next_observation, self._action)
        q = judging.forward(do, parts.target_critic, seen)[..., 0]
        if q.dim() > 1:  # the lesser of both
            of_each, q = q, torch.empty_like(batch.reward)
            do.note(torch.minimum, of_each[0], of_each[1], out=q)
        backup, one = torch.empty_like(batch.reward), torch.ones_like(batch.reward)
        # only termination ends the sum of rewards
        do.note(torch.sub, one, batch.terminated, out=backup)
        # y of Algorithm 1
        do.note(torch.addcmul, batch.reward, backup, q, value=self.options.gamma, out=backup)

        error = judging.forward(do, parts.critic, judging.taken(batch))
        do.note(error[..., 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.batch_sums[0])
        do.note(error.mul_, 2 / self.batch)
        judging.backward(do, parts.critic, judging.taken(batch), error)
        if self._weight_decay is not None:
            do.note(parts.critic.gradient.add_, parts.critic.values, alpha=self._weight_decay)
        self._note_step(do, "critic", parts.critic)
        do.note(self.sums[0].add_, self.batch_sums[0])

    def _note_actor(self, do: Operations) -> None:
        parts, observation = self.parts, self.transitions.observation
        if "actor" in parts.adam:
            q = note_ascent(
                do, parts.actor, self._actor_pass, self._judging, observation, self._action
            )
            do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])
            self._note_step(do, "actor", parts.actor)
            self._note_following(do, parts.target_actor, parts.actor)
            do.note(self.sums[1].add_, self.batch_sums[1])
        self._note_following(do, parts.target_critic, parts.critic)

    def _note_step(self, do: Operations, name: str, network: Critic) -> None:
        """Note a step of the actor or the critic against its gradient."""
        if self._clip is not None:
            note_clip(do, network.gradient, self._clip)
        do.step(self.parts.adam[name])
        do.note(network.refresh)

    def _note_following(self, do: Operations, target: Critic, network: Critic) -> None:
        """Note that a target follows."""
        do.note(target.values.lerp_, network.values, self.options.tau)
        do.note(target.refresh)

    def means(self, updates: int) -> dict[str, float]:
        """Compute the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        made = self.parts.adam["critic"].steps
        actors = made // self.delay - (made - updates) // self.delay
        means = {"critic_loss": self.sums[0].item() / (updates * self.batch)}
        if actors:
            means["mean_q"] = self.sums[1].item() / (actors * self.batch)
            means["actor_loss"] = -means["mean_q"]
        return means


def note_ascent(
    do: Operations, actor: Network, buffers: Pass, judging: Any, observation: Tensor, action: Tensor
) -> Tensor:
    """Note the actor's gradient of minus the mean of Q; return where Q will be, [batch, 1].

    judging: passes through the critic. action: where the actor's will be.
    """
    do.note(torch.tanh, buffers.forward(do, actor, observation), out=action)
    q: Tensor = judging.first(do, judging.seen(do, observation, action))
    by_action = judging.by_action(do, action.shape[1], torch.full_like(q, -1 / len(q)))
    do.note(TANH_BACKWARD, by_action, action, grad_input=by_action)
    buffers.backward(do, actor, observation, by_action)
    return q


def note_clip(do: Operations, gradient: Tensor, limit: float) -> None:
    """Note the clipping of a gradient to norm `limit`, as torch.nn.utils.clip_grad_norm_."""
    factor, most = gradient.new_empty(()), gradient.new_tensor(limit)
    do.note(torch.linalg.vector_norm, gradient, out=factor)
    do.note(factor.add_, TINY)
    do.note(torch.div, most, factor, out=factor)
    do.note(factor.clamp_, max=1)
    do.note(gradient.mul_, factor)
