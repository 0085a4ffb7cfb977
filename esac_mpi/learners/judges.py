"""What ranks without the learner have of its critic: its numbers, and Q by them. On the CPU."""

from collections.abc import Callable

import numpy as np
import torch

from esac_mpi.config import Config
from esac_mpi.learners.critics import critic_size, layouts
from esac_mpi.learners.erl_critic import Critic, CriticPass
from esac_mpi.learners.network import Network, Operations, Pass, assign
from esac_mpi.operators.policy import Layout

# (states [n, o], actions [n, a]) -> Q, float32 [n]
Judging = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Judge:
    """The critic of an ERL run's learner, whichever it is: the first of two."""

    def __init__(self, config: Config, layout: Layout) -> None:
        """Make room for it; layout: of the policy."""
        parts, cpu = layouts(config, layout), torch.device("cpu")
        nothing = np.zeros(critic_size(config, layout), np.float32)
        self._critic = (
            Critic(parts, nothing, cpu)
            if len(parts) > 1
            else Network(parts[0], [nothing], "relu", cpu)
        )

    def load(self, vector: np.ndarray) -> None:
        """Judge by these numbers, float32 [critic_size], a learner's `critic_vector`. Raises ValueError for others."""
        assign(self._critic.values, vector)

    def __call__(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return Q of actions [n, a] in [-1, 1] in states [n, o], float32 [n]."""
        do, seen, taken = Operations(), torch.from_numpy(states), torch.from_numpy(actions)
        if isinstance(self._critic, Critic):
            q = CriticPass(self._critic, len(states)).forward(do, self._critic, (seen, taken))
        else:
            q = Pass(self._critic, len(states)).forward(
                do, self._critic, torch.cat([seen, taken], 1)
            )
        do.run()
        return q[:, 0].numpy()
