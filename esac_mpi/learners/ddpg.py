"""Deep Deterministic Policy Gradient, on rank 0: its parts, its phases, its update, what a checkpoint takes of it.

Source: Lillicrap et al. 2016 (arXiv:1509.02971), Algorithm 1. td3.py is this file with its three changes.

Where we differ, or leave a choice:
- Exploration is Gaussian, as in Fujimoto et al. 2018, who found nothing in favour of the paper's Ornstein-Uhlenbeck process;
  and it has no state, so that an episode may be cut between two phases. The first steps are uniform, as in their code.
- The critic sees the action in its first layer, not the second; no batch normalisation; hidden layers are `policy.hidden`.
- All networks start as this program's policies do (policy.py), not with a last layer near zero.
- The actor acts by tanh also under policy.output = "clip", where the policy that is evaluated acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from collections.abc import Generator

import numpy as np
import torch

from esac_mpi import config as configuration
from esac_mpi.learners import Start, deterministic
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.deterministic import Parts
from esac_mpi.learners.network import TANH_BACKWARD, Operations, Pass
from esac_mpi.learners.training import Streams

CRITIC = 17  # which network initial weights are drawn for


class DDPG(GradientLearner):
    """The DDPG learner: networks, Adam, replay and its count of training steps."""

    NAME = "DDPG"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critic."""
        super().__init__(start, start.config.ddpg)
        parts = deterministic.parts(
            self, start, (CRITIC,), self.options.lr_actor, self.options.lr_critic
        )
        self.actor = parts.actor
        self.critic = parts.critic
        self.adam = parts.adam
        self.targets = parts.targets
        self.update = Update(parts, self.options)
        self.ready()

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: tanh of the actor's output, with Gaussian noise."""
        return deterministic.explored(output, self.options.exploration_noise, random)

    def _learn(self, since: int, random: Streams) -> Generator[int, None, int]:
        """Make the updates due for the training steps after `since` and start_steps; return their number."""
        return deterministic.learn(self, since, random)


class Update(deterministic.Update):
    """An update and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (batch.py). An update is `learn_critic` and then `learn_actor`: forward and
    backward by hand, noted once (network.py). tests/learners/test_td3.py holds it against the same formulas with autograd.
    """

    def __init__(self, parts: Parts, options: configuration.DDPG) -> None:
        super().__init__(parts, options)
        (o, *_, a), like = parts.actor.layout.sizes, parts.actor.values
        # observation, or the next one, and the actor's action
        self._own, self._following = like.new_empty(2, self.batch, o + a)
        self._critic_pass = Pass(parts.critic, self.batch)
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def _note_critic(self, do: Operations) -> None:
        parts, options, batch = self.parts, self.options, self.transitions
        o = batch.observation.shape[1]
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        do.note(self._following[:, :o].copy_, batch.next_observation)
        do.note(self._following[:, o:].copy_, self._action)
        q = self._critic_pass.forward(do, parts.target_critic, self._following)[:, 0]
        backup, one = torch.empty_like(batch.reward), torch.ones_like(batch.reward)
        # only termination ends the sum of rewards
        do.note(torch.sub, one, batch.terminated, out=backup)
        # y of Algorithm 1
        do.note(torch.addcmul, batch.reward, backup, q, value=options.gamma, out=backup)

        error = self._critic_pass.forward(do, parts.critic, batch.taken)
        do.note(error[:, 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.batch_sums[0])
        do.note(error.mul_, 2 / self.batch)
        self._critic_pass.backward(do, parts.critic, batch.taken, error)
        do.note(parts.critic.gradient.add_, parts.critic.values, alpha=options.critic_weight_decay)
        do.step(parts.adam["critic"])
        do.note(parts.critic.refresh)
        do.note(self.sums[0].add_, self.batch_sums[0])

    def _note_actor(self, do: Operations) -> None:
        parts, batch = self.parts, self.transitions
        o, a = batch.observation.shape[1], self._action.shape[1]
        mean = self._actor_pass.forward(do, parts.actor, batch.observation)
        do.note(torch.tanh, mean, out=self._action)
        do.note(self._own[:, :o].copy_, batch.observation)
        do.note(self._own[:, o:].copy_, self._action)
        q = self._critic_pass.forward(do, parts.critic, self._own)
        do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q
        first = self._critic_pass.inputs_backward(do, parts.critic, delta)
        # [a, hidden]: from the first layer's sums back to the action
        to_action = parts.critic.layers[0][0][-a:]
        by_action, by_mean = first.new_empty(a, self.batch), torch.empty_like(self._action)
        do.note(torch.mm, to_action, first.mT, out=by_action)
        do.note(by_mean.copy_, by_action.mT)
        do.note(TANH_BACKWARD, by_mean, self._action, grad_input=by_mean)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_mean)
        do.step(parts.adam["actor"])
        do.note(parts.actor.refresh)
        self.note_targets(do)
        do.note(self.sums[1].add_, self.batch_sums[1])
