"""TD3 (twin delayed DDPG), on rank 0: its parts, its phases, its update, what a checkpoint takes of it.

Source: Fujimoto et al. 2018 (arXiv:1802.09477), Algorithm 1, and the authors' later public code. ddpg.py is this file without
its three changes: twin critics, of which targets take the lesser; noise on the target's action; actor and targets once in
policy_delay updates. Actor and critics share one learning rate here, and nothing decays.

Where we differ, or leave a choice:
- Hidden layers are `policy.hidden`; all networks start as this program's policies do (policy.py).
- The actor acts by tanh also under policy.output = "clip", where the policy that is evaluated acts by clip.
- Time limits are truncations: they bootstrap. So does the cut at the end of a phase.
"""

from collections.abc import Generator

import numpy as np
import torch

from esac_mpi import config as configuration
from esac_mpi.learners import Start, deterministic
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.batch import Upload
from esac_mpi.learners.deterministic import Parts
from esac_mpi.learners.network import TANH_BACKWARD, Operations, Pass
from esac_mpi.learners.training import Streams

CRITIC1, CRITIC2 = 17, 18  # which network initial weights are drawn for


class TD3(GradientLearner):
    """The TD3 learner: networks, Adam, replay and its count of training steps."""

    NAME = "TD3"

    def __init__(self, start: Start) -> None:
        """Take the initial actor; draw the critics."""
        super().__init__(start, start.config.td3)
        parts = deterministic.parts(
            self, start, (CRITIC1, CRITIC2), self.options.lr_td3, self.options.lr_td3
        )
        self.actor = parts.actor
        self.critic = parts.critic
        self.adam = parts.adam
        self.targets = parts.targets
        self.update = Update(parts, self.options)
        self.ready()

    def due(self) -> tuple[Operations, ...]:
        """Return what the next update is made of: the actor's part once in policy_delay of them."""
        made = self.adam["critic"].steps + 1
        return self.update.lists if made % self.options.policy_delay == 0 else self.update.lists[:1]

    def _explored(self, output: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw an action in [-1, 1], float32 [a]: tanh of the actor's output, with Gaussian noise."""
        return deterministic.explored(output, self.options.exploration_noise, random)

    def _learn(self, since: int, random: Streams) -> Generator[int, None, int]:
        """Make the updates due for the training steps after `since` and start_steps; return their number."""
        updates = deterministic.due(self, since)
        if self.chunks:
            yield from self.chunks.make(updates, random)
            return updates
        for _ in range(updates):
            self.replay.sample(random.sampling, self.update.rows)
            random.update.standard_normal(dtype=np.float32, out=self.update.noise)
            self.update.learn_critic()
            yield True
            if self.adam["critic"].steps % self.options.policy_delay == 0:
                self.update.learn_actor()
            yield True
        return updates


class Update(deterministic.Update):
    """An update and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (batch.py) and `noise` [batch, a] standard normal numbers, on the host. An
    update is `learn_critic` and, in one of policy_delay of them, `learn_actor`: forward and backward by hand, noted once
    (network.py). tests/learners/test_td3.py holds it against the same formulas with autograd.
    """

    drawn: Upload

    def __init__(self, parts: Parts, options: configuration.TD3) -> None:
        super().__init__(parts, options)
        (o, *_, a), like = parts.actor.layout.sizes, parts.actor.values
        self.drawn = Upload(like, self.batch, a)
        self.noise = self.drawn.host
        # observation, or the next one, and the actor's action
        self._own, self._following = like.new_empty(2, self.batch, o + a)
        self._first = parts.critic.member(0)
        self._critic_pass = Pass(parts.critic, self.batch)
        self._first_pass = Pass(self._first, self.batch)
        self._note_critic(self._critic)
        self._note_actor(self._actor)

    def learn_critic(self) -> None:
        """Take the batch and the noise, and make the first part of an update."""
        self.drawn.move()
        super().learn_critic()

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        delay, made = self.options.policy_delay, self.parts.adam["critic"].steps
        actors = made // delay - (made - updates) // delay
        means = {"critic_loss": self.sums[0].item() / (updates * self.batch)}
        if actors:
            means["mean_q"] = self.sums[1].item() / (actors * self.batch)
            means["actor_loss"] = -means["mean_q"]
        return means

    def _note_critic(self, do: Operations) -> None:
        parts, options, batch = self.parts, self.options, self.transitions
        o = batch.observation.shape[1]
        mean = self._actor_pass.forward(do, parts.target_actor, batch.next_observation)
        do.note(torch.tanh, mean, out=self._action)
        smoothing = torch.empty_like(self._action)
        do.note(torch.mul, self.drawn.tensor, options.policy_noise, out=smoothing)
        do.note(smoothing.clamp_, -options.noise_clip, options.noise_clip)
        do.note(self._action.add_, smoothing)
        do.note(self._action.clamp_, -1, 1)
        do.note(self._following[:, :o].copy_, batch.next_observation)
        do.note(self._following[:, o:].copy_, self._action)
        pair, taken = (x.expand(2, self.batch, -1) for x in (self._following, batch.taken))
        q = self._critic_pass.forward(do, parts.target_critic, pair)[..., 0]
        lesser, backup, one = (torch.ones_like(batch.reward) for _ in range(3))
        do.note(torch.minimum, q[0], q[1], out=lesser)
        # only termination ends the sum of rewards
        do.note(torch.sub, one, batch.terminated, out=backup)
        # y of Algorithm 1
        do.note(torch.addcmul, batch.reward, backup, lesser, value=options.gamma, out=backup)

        error = self._critic_pass.forward(do, parts.critic, taken)
        do.note(error[..., 0].sub_, backup)
        do.note(torch.dot, error.view(-1), error.view(-1), out=self.batch_sums[0])
        do.note(error.mul_, 2 / self.batch)
        self._critic_pass.backward(do, parts.critic, taken, error)
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
        q = self._first_pass.forward(do, self._first, self._own)
        do.note(torch.sum, q[:, 0], 0, out=self.batch_sums[1])

        delta = torch.full_like(q, -1 / self.batch)  # the loss is minus the mean of Q1
        first = self._first_pass.inputs_backward(do, self._first, delta)
        # [a, hidden]: from the first layer's sums back to the action
        to_action = self._first.layers[0][0][-a:]
        by_action, by_mean = first.new_empty(a, self.batch), torch.empty_like(self._action)
        do.note(torch.mm, to_action, first.mT, out=by_action)
        do.note(by_mean.copy_, by_action.mT)
        do.note(TANH_BACKWARD, by_mean, self._action, grad_input=by_mean)
        self._actor_pass.backward(do, parts.actor, batch.observation, by_mean)
        do.step(parts.adam["actor"])
        do.note(parts.actor.refresh)
        self.note_targets(do)
        do.note(self.sums[1].add_, self.batch_sums[1])
