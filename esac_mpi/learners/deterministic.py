"""DDPG, TD3 and ERL's learner: the frame of their updates, with tanh actors and target networks.

They differ in how a critic sees and in an algorithm's changes: td3.py, ddpg.py and erl.py.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from esac_mpi.learners import Start, updates
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass
from esac_mpi.learners.updates import Critic

C = TypeVar("C", bound=Critic)


@dataclass(frozen=True)
class Parts(Generic[C]):
    """What an update changes."""

    actor: Network
    critic: C  # one of DDPG and ERL, two of TD3
    target_actor: Network  # at first equal to what they follow
    target_critic: C
    adam: dict[str, Adam]  # actor, critic


class Deterministic(GradientLearner):
    """A learner of that kind: each sets its parts by `assemble`."""

    def assemble(
        self, start: Start, critics: tuple[C, C], lr_actor: float, lr_critic: float
    ) -> Parts[C]:
        """Make the initial actor and its target; take critic and target critic, which are equal."""
        self.actor, target_actor = (self.actor_network(start.layout, start.theta) for _ in range(2))
        self.critic, target_critic = critics
        self.adam = {
            "actor": Adam(self.actor.values, self.actor.gradient, lr_actor),
            "critic": Adam(self.critic.values, self.critic.gradient, lr_critic),
        }
        self.targets = {"target_actor": target_actor, "target_critic": target_critic}
        return Parts(self.actor, critics[0], target_actor, target_critic, self.adam)


class Update(updates.Update, Generic[C]):
    """Forward and backward by hand, noted once.

    tests/learners/test_td3.py and tests/algorithms/test_erl_learner.py check it against the same
    formulas with autograd.
    """

    def __init__(self, parts: Parts[C], options: Any) -> None:
        """options: the learner's table."""
        o, *_, a = parts.actor.layout.sizes
        like = parts.actor.values
        # measured: squared errors of the critics, Q of the actor's own actions
        super().__init__(like, options.batch_size, o, a, measured=2)
        self.parts, self.options = parts, options
        self._action, self._actor_pass = (
            like.new_empty(self.batch, a),
            Pass(parts.actor, self.batch),
        )
        self.networks = parts.actor, parts.critic, parts.target_actor, parts.target_critic

    def _note(self) -> None:
        """Note both parts, once all buffers are there."""
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def _note_critic(self, do: Operations) -> None:
        parts, batch = self.parts, self.transitions
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._following_q(do)
        backup, one = torch.empty_like(batch.reward), torch.ones_like(batch.reward)
        # only termination ends the sum of rewards
        do.note(torch.sub, one, batch.terminated, out=backup)
        # y of Algorithm 1
        do.note(torch.addcmul, batch.reward, backup, q, value=self.options.gamma, out=backup)

        error = self._taken_q(do)
        do.note(error[..., 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.batch_sums[0])
        do.note(error.mul_, 2 / self.batch)
        self._critic_backward(do, error)
        self._note_step(do, "critic")
        do.note(self.sums[0].add_, self.batch_sums[0])

    def _note_actor(self, do: Operations) -> None:
        parts, batch = self.parts, self.transitions
        mean = self._actor_pass.forward(do, parts.actor, batch.observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._own_q(do)
        do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q
        by_action = self._by_action(do, delta)
        do.note(TANH_BACKWARD, by_action, self._action, grad_input=by_action)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_action)
        self._note_step(do, "actor")
        for target, network in (
            (parts.target_actor, parts.actor),
            (parts.target_critic, parts.critic),
        ):
            do.note(target.values.lerp_, network.values, self.options.tau)
            do.note(target.refresh)
        do.note(self.sums[1].add_, self.batch_sums[1])

    def _note_step(self, do: Operations, name: str) -> None:
        """Note a step of the actor or the critic against its gradient."""
        do.step(self.parts.adam[name])
        do.note(getattr(self.parts, name).refresh)

    @abstractmethod
    def _following_q(self, do: Operations) -> Tensor:
        """Note the target critic's Q of the next observations and target action; [batch].

        That action may be changed in place.
        """

    @abstractmethod
    def _taken_q(self, do: Operations) -> Tensor:
        """Note Q of the critic for the transitions, [..., batch, 1]."""

    @abstractmethod
    def _critic_backward(self, do: Operations, error: Tensor) -> None:
        """Note the critic's gradient, given that by Q of the transitions."""

    @abstractmethod
    def _own_q(self, do: Operations) -> Tensor:
        """Note Q of the actor's own actions, [batch, 1]."""

    @abstractmethod
    def _by_action(self, do: Operations, delta: Tensor) -> Tensor:
        """Note the gradient by these actions, given that by their Q."""

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        made = self.parts.adam["critic"].steps
        actors = made // self.delay - (made - updates) // self.delay
        means = {"critic_loss": self.sums[0].item() / (updates * self.batch)}
        if actors:
            means["mean_q"] = self.sums[1].item() / (actors * self.batch)
            means["actor_loss"] = -means["mean_q"]
        return means
