"""What DDPG and TD3 share beside what every learner does: their networks, and how a deterministic actor explores.

What they differ in, their updates, is whole in ddpg.py and td3.py, so that a diff of the two is the papers' difference.
"""

from dataclasses import dataclass

import numpy as np

from esac_mpi.learners import Start
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.network import Adam, Network


@dataclass(frozen=True)
class Parts:
    """What an update changes."""

    actor: Network
    critic: Network  # all of them: one of DDPG, two of TD3
    target_actor: Network  # at first equal to what they follow
    target_critic: Network
    adam: dict[str, Adam]  # actor, critic

    @property
    def targets(self) -> dict[str, Network]:
        """What follows actor and critic, by name."""
        return {"target_actor": self.target_actor, "target_critic": self.target_critic}


def parts(learner: GradientLearner, start: Start, critics: tuple[int, ...], lr_actor: float, lr_critic: float) -> Parts:
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
