"""What DDPG, TD3 and ERL's learner share beside what every learner does: how their actors explore, the frame of their updates.

What they differ in, the two parts of an update, is whole in ddpg.py, td3.py and erl.py, so that a diff of the first two is the
papers' difference.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from esac_mpi.learners import Start, training
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.batch import Batch, Upload
from esac_mpi.learners.network import Adam, Network, Operations, Pass
from esac_mpi.learners.training import Streams
from esac_mpi.operators.policy import Normaliser


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network
    critic: Any  # a Network of all of them, one of DDPG, two of TD3; or ERL's own
    target_actor: Network  # at first equal to what they follow
    target_critic: Any
    adam: dict[str, Adam]  # actor, critic

    @property
    def targets(self) -> dict[str, Any]:
        """What follows actor and critic, by name."""
        return {"target_actor": self.target_actor, "target_critic": self.target_critic}


def parts(
    learner: GradientLearner,
    start: Start,
    critics: tuple[int, ...],
    lr_actor: float,
    lr_critic: float,
) -> Parts:
    """Return a learner's parts: the initial actor, critics drawn for their numbers, the target of each."""
    o, *hidden, a = start.layout.sizes
    actor, target_actor = (learner.actor_network(start.layout, start.theta) for _ in range(2))
    critic, target_critic = (learner.network((o + a, *hidden, 1), *critics) for _ in range(2))
    adam = {
        "actor": Adam(actor.values, actor.gradient, lr_actor),
        "critic": Adam(critic.values, critic.gradient, lr_critic),
    }
    return Parts(actor, critic, target_actor, target_critic, adam)


def explored(output: np.ndarray, noise: float, random: np.random.Generator) -> np.ndarray:
    """Return tanh of the actor's output [a] with Gaussian noise of standard deviation `noise`, in [-1, 1]."""
    gaussian = random.standard_normal(output.size, dtype=np.float32)
    return np.clip(np.tanh(output) + np.float32(noise) * gaussian, -1, 1)


def due(learner: GradientLearner, since: int) -> int:
    """Return how many updates the training steps after `since` and start_steps call for; none before there is a batch."""
    options = learner.options
    if len(learner.replay) < options.batch_size:
        return 0
    first = options.start_steps
    return training.due(options.updates_per_step, max(since, first), max(learner.env_steps, first))


def learn(learner: GradientLearner, since: int, random: Streams) -> Generator[int, None, int]:
    """Make the updates that are due for the training steps after `since`, without noise or delay; return their number."""
    updates = due(learner, since)
    if learner.chunks:
        yield from learner.chunks.make(updates, random)
        return updates
    for _ in range(updates):
        learner.replay.sample(random.sampling, learner.update.rows)
        learner.update.learn_critic()
        yield True
        learner.update.learn_actor()
        yield True
    return updates


class Update:
    """The frame of an update, and its buffers, for batches of options.batch_size transitions.

    Before it, `rows` takes the transitions (batch.py). An update is `learn_critic` and then `learn_actor`: what an algorithm has
    noted in `_critic` and in `_actor`.
    """

    drawn: Upload | None = None  # noise, where it takes any

    def __init__(self, parts: Parts, options: Any) -> None:
        """options: the learner's table."""
        self.parts, self.options = parts, options
        (o, *_, a), like, batch = parts.actor.layout.sizes, parts.actor.values, options.batch_size
        self.batch, self.transitions = batch, Batch(like, batch, o, a)
        self.rows = self.transitions.rows
        # over the batch: squared errors of the critics, Q of the actor's own actions
        self.batch_sums = like.new_zeros(2)
        # of `batch_sums`, over updates
        self.sums = torch.zeros(2, dtype=torch.float64, device=like.device)
        self._action, self._actor_pass = like.new_empty(batch, a), Pass(parts.actor, batch)
        self.networks = parts.actor, parts.critic, parts.target_actor, parts.target_critic
        self.lists = self._critic, self._actor = Operations(), Operations()

    def start(self, normaliser: Normaliser | None = None) -> None:
        """Forget what was measured; follow parameters that were changed from outside; see observations by the normaliser."""
        self.sums.zero_()
        self.transitions.standardise(normaliser)
        for network in self.networks:
            network.refresh()

    def learn_critic(self) -> None:
        """Take the batch and make the first part of an update."""
        self.transitions.move()
        self._critic.run()

    def learn_actor(self) -> None:
        """Make the second part of an update: actor and targets."""
        self._actor.run()

    def note_targets(self, do: Operations) -> None:
        """Note the targets' way after what they follow."""
        parts = self.parts
        pairs = (parts.target_actor, parts.actor), (parts.target_critic, parts.critic)
        for target, network in pairs:
            do.note(target.values.lerp_, network.values, self.options.tau)
            do.note(target.refresh)

    def means(self, updates: int) -> dict[str, float]:
        """Return the means of what `updates` updates measured; nothing if there was none."""
        if not updates:
            return {}
        critic_loss, mean_q = (self.sums / (updates * self.batch)).tolist()
        return {"critic_loss": critic_loss, "mean_q": mean_q, "actor_loss": -mean_q}
