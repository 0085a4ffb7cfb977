"""The critic that individuals of CEM-RL and AES-RL share, on rank 0; updates and checkpoint.

Sources: Pourchot and Sigaud 2019 (CEM-RL, arXiv:1810.01222), Lee et al. 2020 (AES-RL), and the
public code of both. As in TD3 (td3.py): twin critics with the lesser of both targets, and noise on
the target's action. Unlike TD3: the target's action is that of the actor for which the critic is
taught, which has no target of its own; and the critics' targets follow at every update.

Where we differ, or leave a choice:
- Hidden layers are `policy.hidden`, of ReLU; the public code has leaky ones.
- Noise on the target's action is in units of its bounds; the public code's is not scaled.
- Critics, and the mean, start as this program's policies do (policy.py); there as PyTorch's layers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from esac_mpi.learners import Start, training
from esac_mpi.learners.base import GradientLearner
from esac_mpi.learners.deterministic import DeterministicUpdate, Parts
from esac_mpi.learners.network import Adam, assign
from esac_mpi.learners.td3 import CRITIC1, CRITIC2
from esac_mpi.play.learner_phases import Phase, Steps


class CEM(GradientLearner):
    """The shared critic, its replay, and the actor that it is being taught for."""

    def __init__(self, start: Start) -> None:
        """Draw the critics."""
        options: Any = start.config.own  # [cem_rl] or [aes_rl]
        super().__init__(start, options)
        self.NAME = start.config.algorithm.upper().replace("_", "-")
        self.actor = self.actor_network(start.layout, start.theta)
        critic, target = self.critics(start.layout, CRITIC1, CRITIC2)
        self.critic = critic
        self.adam = {"critic": Adam(critic.values, critic.gradient, options.lr_critic)}
        self.targets = {"target_critic": target}
        parts = Parts(self.actor, critic, self.actor, target, self.adam)
        self.update = DeterministicUpdate(
            parts, options, (options.policy_noise, options.noise_clip)
        )
        self.ready()
        # the first critic, float32 [d], as it was after each actor of the last phase
        self.taught: list[np.ndarray] = []

    def teach(
        self, actors: Sequence[np.ndarray], updates: int, k: int, added: int | None = None
    ) -> Steps:
        """Make `updates` updates for each actor [d] in turn, in generation k; none without a batch.

        added: with the replay as it was with so many transitions added; None = now. Yields as
        `_make_updates`. Raises LearnerNotFinite.
        """
        self.taught, made, random = [], 0, training.streams(self.seed, k)
        self.update.start()
        updates *= (self.replay.added if added is None else added) >= self.options.batch_size
        for theta in actors:
            assign(self.actor.values, theta)
            self.actor.refresh()
            yield from self._make_updates(updates, random, added, self.options.replay_capacity)
            made += updates
            self.taught.append(self.critic_vector())
        self.check_finite()
        loss = self.update.sums[0].item() / (made * self.update.batch) if made else np.nan
        return Phase(gradient_updates=made, critic_loss=loss)

    def advance(self, transitions: int, steps: int) -> None:
        """Take in transitions that ranks have put into the replay, and count their steps."""
        self.replay.advance(transitions)
        self.env_steps += steps
        if self._held:  # the critic alone, by `hold_critic`
            self._held[0]["env_steps"] = np.array(self.env_steps)

    def hold_critic(self) -> None:
        """Keep the critics as they are, as `hold` does; the replay goes on."""
        self.release()
        self._held = self.arrays(), self.replay
