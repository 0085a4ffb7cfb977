"""The learner of Evolutionary Reinforcement Learning, on rank 0: its parts, its update, what a checkpoint takes of it.

Sources: Khadka and Tumer 2018 (arXiv:1805.07917), whose learner is DDPG (Lillicrap et al. 2016) with networks of its own, and
their public code, which PDERL (Bodnar et al. 2020) shares. It takes over episodes that others played, the population's and its
own, by `take`.

Where we differ, or the sources leave a choice:
- Layers are normalised as torch does it (policy.py); the public code has a variant.
- All networks start as this program's policies do, with a tenth of the last layer (public code: of PyTorch's initial weights).
- Time limits are as the algorithm records them: erl.time_limits.
"""

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.learners import Start, critics, deterministic
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.deterministic import Parts
from esac_mpi.learners.erl_critic import Critic, CriticPass
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Operations
from esac_mpi.learners.training import Streams

TINY = 1e-6  # what torch.nn.utils.clip_grad_norm_ adds to a norm


class ERL(GradientLearner):
    """The ERL learner: networks, Adam, replay and its count of training steps, which are the population's and its own."""

    NAME = "ERL"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic."""
        config, options = start.config, start.config.erl
        super().__init__(start, options)
        layouts = critics.layouts(config, start.layout)
        theta = critics.initial(config, start.layout)
        self.actor, target_actor = (self.actor_network(start.layout, start.theta) for _ in range(2))
        self.critic, target_critic = (
            Critic(layouts, theta, self.device, self._products) for _ in range(2)
        )
        self.adam = {
            "actor": Adam(self.actor.values, self.actor.gradient, options.lr_actor),
            "critic": Adam(self.critic.values, self.critic.gradient, options.lr_critic),
        }
        parts = Parts(self.actor, self.critic, target_actor, target_critic, self.adam)
        self.targets, self.update = parts.targets, Update(parts, options)
        self.ready()

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return tanh of the actor's output, float32 [a]: noise is the algorithm's own."""
        return np.tanh(output)

    def _learn(self, since: int, random: Streams) -> Generator[int, None, int]:
        """Make the updates due for the training steps after `since` and start_steps; return their number."""
        return deterministic.learn(self, since, random)


class Update(deterministic.Update):
    """An update and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (batch.py). An update is `learn_critic` and then `learn_actor`: forward and
    backward by hand, noted once (network.py). tests/algorithms/test_erl_learner.py holds it against the same formulas with autograd.
    """

    def __init__(self, parts: Parts, options: configuration.ERL) -> None:
        super().__init__(parts, options)
        self._critic_pass = CriticPass(parts.critic, self.batch)
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def _note_critic(self, do: Operations) -> None:
        parts, batch = self.parts, self.transitions
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._critic_pass.forward(
            do, parts.target_critic, (batch.next_observation, self._action)
        )[:, 0]
        backup, one = torch.empty_like(batch.reward), torch.ones_like(batch.reward)
        # only termination ends the sum of rewards
        do.note(torch.sub, one, batch.terminated, out=backup)
        do.note(torch.addcmul, batch.reward, backup, q, value=self.options.gamma, out=backup)

        taken = batch.observation, batch.action
        error = self._critic_pass.forward(do, parts.critic, taken)
        do.note(error[:, 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.batch_sums[0])
        do.note(error.mul_, 2 / self.batch)
        self._critic_pass.backward(do, parts.critic, taken, error)
        self._note_step(do, "critic")
        do.note(self.sums[0].add_, self.batch_sums[0])

    def _note_actor(self, do: Operations) -> None:
        parts, batch = self.parts, self.transitions
        mean = self._actor_pass.forward(do, parts.actor, batch.observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._critic_pass.forward(do, parts.critic, (batch.observation, self._action))
        do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q
        by_action = self._critic_pass.action_backward(do, parts.critic, delta)
        do.note(TANH_BACKWARD, by_action, self._action, grad_input=by_action)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_action)
        self._note_step(do, "actor")
        self.note_targets(do)
        do.note(self.sums[1].add_, self.batch_sums[1])

    def _note_step(self, do: Operations, name: str) -> None:
        """Note a step of the actor or the critic against its gradient, which is cut to a norm of gradient_clip."""
        note_clip(do, getattr(self.parts, name).gradient, self.options.gradient_clip)
        do.step(self.parts.adam[name])
        do.note(getattr(self.parts, name).refresh)


def note_clip(do: Operations, gradient: Tensor, limit: float) -> None:
    """Note the cut of a gradient to a norm of `limit`, where it has a larger one: torch.nn.utils.clip_grad_norm_."""
    factor, most = gradient.new_empty(()), gradient.new_tensor(limit)
    do.note(torch.linalg.vector_norm, gradient, out=factor)
    do.note(factor.add_, TINY)
    do.note(torch.div, most, factor, out=factor)
    do.note(factor.clamp_, max=1)
    do.note(gradient.mul_, factor)
