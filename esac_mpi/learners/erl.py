"""The learner of Evolutionary Reinforcement Learning, on rank 0: networks, update, checkpoint.

Sources: Khadka and Tumer 2018 (arXiv:1805.07917), whose learner is DDPG (Lillicrap et al. 2016)
with networks of its own, and their public code, which PDERL (Bodnar et al. 2020) shares. Episodes
that others played, the population's and its own, come by `take`.

Where we differ, or the sources leave a choice:
- Layers are normalised as torch does it (policy.py); the public code has a variant.
- All networks start as this program's policies do, with a tenth of the last layer (public code: of
  PyTorch's initial weights).
- Time limits are as the algorithm records them: erl.time_limits.
"""

import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.learners import Start, critics, deterministic
from esac_mpi.learners.deterministic import Deterministic, Parts
from esac_mpi.learners.erl_critic import Critic, CriticPass
from esac_mpi.learners.network import Operations

TINY = 1e-6  # what torch.nn.utils.clip_grad_norm_ adds to a norm


class ERL(Deterministic):
    """ERL's learner: networks, Adam, replay and training steps, the population's and its own."""

    NAME = "ERL"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic."""
        config, options = start.config, start.config.erl
        super().__init__(start, options)
        layouts = critics.layouts(config, start.layout)
        theta = critics.initial(config, start.layout)
        pair = tuple(Critic(layouts, theta, self.device, self._products) for _ in range(2))
        parts = self.assemble(start, (pair[0], pair[1]), options.lr_actor, options.lr_critic)
        self.update = Update(parts, options)
        self.ready()


class Update(deterministic.Update[Critic]):
    """ERL's DDPG update: observation and action have a critic layer each; clipped gradients."""

    def __init__(self, parts: Parts[Critic], options: configuration.ERL) -> None:
        super().__init__(parts, options)
        self._critic_pass = CriticPass(parts.critic, self.batch)
        self._note()

    def _following_q(self, do: Operations) -> Tensor:
        """Note Q of the target critic for the next observations and the target's action."""
        seen = self.transitions.next_observation, self._action
        return self._critic_pass.forward(do, self.parts.target_critic, seen)[:, 0]

    def _taken_q(self, do: Operations) -> Tensor:
        """Note Q of the critic for the transitions."""
        batch = self.transitions
        seen = batch.observation, batch.action
        return self._critic_pass.forward(do, self.parts.critic, seen)

    def _critic_backward(self, do: Operations, error: Tensor) -> None:
        """Note the critic's gradient."""
        batch = self.transitions
        seen = batch.observation, batch.action
        self._critic_pass.backward(do, self.parts.critic, seen, error)

    def _own_q(self, do: Operations) -> Tensor:
        """Note Q of the actor's own actions."""
        seen = self.transitions.observation, self._action
        return self._critic_pass.forward(do, self.parts.critic, seen)

    def _by_action(self, do: Operations, delta: Tensor) -> Tensor:
        """Note the gradient by these actions."""
        return self._critic_pass.action_backward(do, self.parts.critic, delta)

    def _note_step(self, do: Operations, name: str) -> None:
        """Note a descent step of the actor or critic, its gradient clipped to gradient_clip."""
        note_clip(do, getattr(self.parts, name).gradient, self.options.gradient_clip)
        super()._note_step(do, name)


def note_clip(do: Operations, gradient: Tensor, limit: float) -> None:
    """Note the clipping of a gradient to norm `limit`, as torch.nn.utils.clip_grad_norm_."""
    factor, most = gradient.new_empty(()), gradient.new_tensor(limit)
    do.note(torch.linalg.vector_norm, gradient, out=factor)
    do.note(factor.add_, TINY)
    do.note(torch.div, most, factor, out=factor)
    do.note(factor.clamp_, max=1)
    do.note(gradient.mul_, factor)
