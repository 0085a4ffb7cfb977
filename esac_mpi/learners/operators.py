"""ERL's genetic operators that take gradients, on any rank: what an algorithm is handed as `Params.operators`."""

import numpy as np

from esac_mpi.config import Config
from esac_mpi.learners import critics, judges, offspring
from esac_mpi.operators.policy import Layout


class GeneticOperators:
    """Distillation crossover and proximal mutation with a configuration's numbers, on any rank."""

    def __init__(self, config: Config, layout: Layout) -> None:
        self.critic_size = critics.critic_size(config, layout)
        self._options, self._layout, self._activation = config.erl, layout, config.policy.activation
        self._judge = judges.Judge(config, layout)

    def distilled(
        self,
        parents: tuple[np.ndarray, np.ndarray],
        start: np.ndarray,
        states: np.ndarray,
        critic: np.ndarray,
        random: np.random.Generator,
    ) -> np.ndarray:
        """Return a child, float32 [d], that begins as `start` and imitates two parents [d] in states [n, o]."""
        options = self._options
        self._judge.load(critic)
        return offspring.distilled(
            self._layout, self._activation, *parents, start, states, self._judge,
            options.distillation_epochs, options.distillation_batch, options.lr_distillation, random,
        )  # fmt: skip

    def proximal(
        self, theta: np.ndarray, states: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Return theta, float32 [d], mutated in proportion to what its actions in states [n, o] owe to each weight."""
        options = self._options
        return offspring.proximal(
            self._layout,
            self._activation,
            theta,
            states,
            options.mutation_magnitude,
            options.sensitivity_floor,
            random,
        )
