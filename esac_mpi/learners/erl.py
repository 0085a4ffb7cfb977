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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from esac_mpi import config as configuration
from esac_mpi.learners import Start, critics, training
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.batch import Batch
from esac_mpi.learners.erl_critic import Critic, CriticPass
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass
from esac_mpi.learners.training import Streams
from esac_mpi.policy import Normaliser

TINY = 1e-6  # what torch.nn.utils.clip_grad_norm_ adds to a norm


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network
    critic: Critic
    target_actor: Network  # at first equal to what they follow
    target_critic: Critic
    adam: dict[str, Adam]  # actor, critic


class ERL(GradientLearner):
    """The ERL learner: networks, Adam, replay and its count of training steps, which are the population's and its own."""

    NAME = "ERL"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic."""
        config, options = start.config, start.config.erl
        super().__init__(start, options)
        layouts, theta = critics.layouts(config, start.layout), critics.initial(config, start.layout)
        self.actor, target_actor = (self.actor_network(start.layout, start.theta) for _ in range(2))
        self.critic, target_critic = (Critic(layouts, theta, self.device, self._products) for _ in range(2))
        self.adam = {
            "actor": Adam(self.actor.values, self.actor.gradient, options.lr_actor),
            "critic": Adam(self.critic.values, self.critic.gradient, options.lr_critic),
        }
        self.targets = {"target_actor": target_actor, "target_critic": target_critic}
        self.update = Update(Parts(self.actor, self.critic, target_actor, target_critic, self.adam), options)

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return tanh of the actor's output, float32 [a]: noise is the algorithm's own."""
        return np.tanh(output)

    def _learn(self, since: int, random: Streams) -> Generator[bool, None, int]:
        """Make the updates due for the training steps after `since` and start_steps; return their number."""
        first = self.options.start_steps
        if len(self.replay) < self.options.batch_size:
            return 0
        updates = training.due(self.options.updates_per_step, max(since, first), max(self.env_steps, first))
        for _ in range(updates):
            self.replay.sample(random.sampling, self.update.rows)
            self.update.learn_critic()
            yield True
            self.update.learn_actor()
            yield True
        return updates


class Update:
    """An update and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (batch.py). An update is `learn_critic` and then `learn_actor`: forward and
    backward by hand, noted once (network.py). tests/test_erl_learner.py holds it against the same formulas with autograd.
    """

    def __init__(self, parts: Parts, options: configuration.ERL) -> None:
        self.parts, self.options = parts, options
        o, a, batch = parts.actor.layout.sizes[0], parts.actor.layout.sizes[-1], options.batch_size
        like = parts.actor.values
        self.batch, self._transitions = batch, Batch(like, batch, o, a)
        self.rows = self._transitions.rows
        self.batch_sums = like.new_zeros(2)  # over the batch: squared errors of the critic, Q of the actor's own actions
        self.sums = torch.zeros(2, dtype=torch.float64, device=like.device)  # of `batch_sums`, over updates
        self._action = like.new_empty(batch, a)
        self._actor_pass, self._critic_pass = Pass(parts.actor, batch), CriticPass(parts.critic, batch)
        self._critic, self._actor = Operations(), Operations()
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def start(self, normaliser: Normaliser | None = None) -> None:
        """Forget what was measured; follow parameters that were changed from outside; see observations by the normaliser."""
        self.sums.zero_()
        self._transitions.standardise(normaliser)
        for network in (self.parts.actor, self.parts.critic, self.parts.target_actor, self.parts.target_critic):
            network.refresh()

    def learn_critic(self) -> None:
        """Take the batch and make the first part of an update."""
        self._transitions.move()
        self._critic.run()

    def learn_actor(self) -> None:
        """Make the second part of an update: actor and targets."""
        self._actor.run()

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        critic_loss, mean_q = (self.sums / (updates * self.batch)).tolist()
        return {"critic_loss": critic_loss, "mean_q": mean_q, "actor_loss": -mean_q}

    def _note_critic(self, do: Operations) -> None:
        parts, batch = self.parts, self._transitions
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._critic_pass.forward(do, parts.target_critic, (batch.next_observation, self._action))[:, 0]
        backup, one = torch.empty_like(batch.reward), torch.ones_like(batch.reward)
        do.note(torch.sub, one, batch.terminated, out=backup)  # only termination ends the sum of rewards
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
        parts, batch = self.parts, self._transitions
        mean = self._actor_pass.forward(do, parts.actor, batch.observation)
        do.note(torch.tanh, mean, out=self._action)
        q = self._critic_pass.forward(do, parts.critic, (batch.observation, self._action))
        do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q
        by_action = self._critic_pass.action_backward(do, parts.critic, delta)
        do.note(TANH_BACKWARD, by_action, self._action, grad_input=by_action)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_action)
        self._note_step(do, "actor")
        for target, network in ((parts.target_actor, parts.actor), (parts.target_critic, parts.critic)):
            do.note(target.values.lerp_, network.values, self.options.tau)
            do.note(target.refresh)
        do.note(self.sums[1].add_, self.batch_sums[1])

    def _note_step(self, do: Operations, name: str) -> None:
        """Note a step of the actor or the critic against its gradient, which is cut to a norm of gradient_clip."""
        note_clip(do, getattr(self.parts, name).gradient, self.options.gradient_clip)
        do.note(self.parts.adam[name].step)
        do.note(getattr(self.parts, name).refresh)


def note_clip(do: Operations, gradient: Tensor, limit: float) -> None:
    """Note the cut of a gradient to a norm of `limit`, where it has a larger one: torch.nn.utils.clip_grad_norm_."""
    factor, most = gradient.new_empty(()), gradient.new_tensor(limit)
    do.note(torch.linalg.vector_norm, gradient, out=factor)
    do.note(factor.add_, TINY)
    do.note(torch.div, most, factor, out=factor)
    do.note(factor.clamp_, max=1)
    do.note(gradient.mul_, factor)
