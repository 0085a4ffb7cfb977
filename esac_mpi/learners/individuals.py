"""Training of an individual of CEM-RL or AES-RL: its actor climbs a fixed critic, on the CPU.

Sources: Pourchot and Sigaud 2019 (CEM-RL), Lee et al. 2020 (AES-RL): the actor's part of TD3's
update (Fujimoto et al. 2018, Algorithm 1), at every step, with a new Adam. On any rank, on one of
torch's threads, whatever learner.threads is, as in offspring.py.
"""

from collections.abc import Generator
from typing import Any

import numpy as np
import torch

from esac_mpi.config import Config
from esac_mpi.host import cooperative
from esac_mpi.learners.critics import SideBySide
from esac_mpi.learners.deterministic import note_ascent
from esac_mpi.learners.network import Adam, Network, Operations, Pass, assign
from esac_mpi.learners.offspring import one_thread
from esac_mpi.operators.policy import Layout

SLICE = 10  # updates between two turns of other work, at most


class Individuals:
    """Actors that learn, one after another, in the same buffers."""

    def __init__(self, config: Config, layout: Layout) -> None:
        """layout: of the policy."""
        (o, *hidden, a), cpu = layout.sizes, torch.device("cpu")
        options: Any = config.own  # [cem_rl] or [aes_rl]
        critic_layout = Layout((o + a, *hidden, 1), options.critic_layer_norm)
        self.critic_size = critic_layout.d
        self._rate, batch = options.lr_actor, options.batch_size
        self._actor = Network(
            layout, [np.zeros(layout.d, np.float32)], config.policy.activation, cpu
        )
        self._critic = Network(critic_layout, [np.zeros(critic_layout.d, np.float32)], "relu", cpu)
        self._states, self._gradient = torch.zeros(batch, o), Operations()
        actor_pass, judging = Pass(self._actor, batch), SideBySide(self._critic, batch)
        action = torch.zeros(batch, a)
        note_ascent(self._gradient, self._actor, actor_pass, judging, self._states, action)

    def training(
        self,
        theta: np.ndarray,
        critic: np.ndarray,
        states: np.ndarray,
        updates: int,
        random: np.random.Generator,
        among: range | None = None,
    ) -> Generator[int, None, np.ndarray]:
        """Make `updates` ascent steps on the critic in replay states; return theta, float32 [d].

        critic: float32 [critic_size]; states [n, o], a ring. among: numbers of those to learn from;
        None = all. Yields the number of steps so far after each SLICE. One individual at a time.
        """
        among = among or range(len(states))
        assign(self._actor.values, theta)
        assign(self._critic.values, critic)
        adam = Adam(self._actor.values, self._actor.gradient, self._rate)
        seen = self._states.numpy()
        done, turn = 0, cooperative.Turn(SLICE)
        while done < updates:
            with one_thread():
                over = False
                while done < updates and not over:
                    numbers = among.start + random.integers(len(among), size=len(seen))
                    seen[:] = states[numbers % len(states)]
                    self._gradient.run()
                    adam.step()
                    done, over = done + 1, turn.over()
            yield done
            turn.begin()
        return self._actor.vector(0)

    trained = cooperative.at_once(training)
