"""Gradient-based genetic operators: distillation crossover and proximal mutation (PDERL).

Source: Bodnar et al. 2020 (PDERL), Algorithms 1 and 2, Eq. 1.

Where we differ, or public code does:
- The loss is the paper's: sums over an action's numbers in both terms. The public code has a mean
  over them in the second.
- Of two actions judged alike the second parent's is imitated (public code); the paper's loss has
  neither.
- A batch of imitation is drawn with replacement; the public code's has distinct states.
- Weights whose sensitivity is 0 count as 1 and others as at least a floor, and only weight matrices
  are mutated (public code).

All of it is on the CPU and on one of torch's threads, whatever learner.threads is, so that a
member's bits depend on its parents and its address, not on the rank. A policy acts here by the tanh
of its output.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from esac_mpi.config import Config, imitations
from esac_mpi.learners import critics
from esac_mpi.learners.critics import Judge
from esac_mpi.learners.network import TANH_BACKWARD, Adam, Network, Operations, Pass
from esac_mpi.operators.policy import Layout


@contextmanager
def one_thread() -> Iterator[None]:
    """Give torch one thread for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Actor:
    """A policy [d] for batches of so many states: its network and the buffers of a pass."""

    def __init__(self, layout: Layout, activation: str, theta: np.ndarray, rows: int) -> None:
        self.network = Network(layout, [theta], activation, torch.device("cpu"))
        self._buffers = Pass(self.network, rows)
        self._actions = torch.empty_like(self._buffers.output)

    def forward(self, do: Operations, states: Tensor) -> Tensor:
        """Note the actions, [rows, a] in [-1, 1], in states [rows, o]; return their tensor."""
        do.note(torch.tanh, self._buffers.forward(do, self.network, states), out=self._actions)
        return self._actions

    def backward(self, do: Operations, states: Tensor, delta: Tensor) -> None:
        """Note a sum's `network.gradient`, given that by the actions, `delta`; overwrites it."""
        do.note(TANH_BACKWARD, delta, self._actions, grad_input=delta)
        self._buffers.backward(do, self.network, states, delta)


def choose_better(
    judge: Judge, states: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Choose in each state [n, o] of two actions [n, a] the one judged better, or the second."""
    return np.where((judge(states, first) > judge(states, second))[:, None], first, second)


def imitation(actor: Actor, rows: Tensor, learning_rate: float) -> Operations:
    """Note an Adam step on Algorithm 1's loss, for states and wanted actions, `rows` [n, o + a].

    The loss is the sum over the batch of |action - wanted|^2 + |action|^2 / n.
    """
    do, network, (o, *_, a) = Operations(), actor.network, actor.network.layout.sizes
    states, wanted = rows.split([o, a], 1)
    delta = torch.zeros(len(rows), a)
    do.note(torch.mul, actor.forward(do, states), 2 + 2 / len(rows), out=delta)
    do.note(delta.sub_, wanted, alpha=2)
    actor.backward(do, states, delta)
    do.note(Adam(network.values, network.gradient, learning_rate).step)
    return do


class GeneticOperators:
    """Distillation crossover and proximal mutation of a configuration, on any rank.

    `Params.operators` of the ERL family.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        self.critic_size = critics.critic_size(config, layout)
        self._options, self._judge = config.erl, Judge(config, layout)
        self._actor = partial(Actor, layout, config.policy.activation)
        # which parameters are weights of a matrix, bool [d]
        self._weights = np.concatenate(
            [np.full(t.stop - t.start, t.kind == "weight") for t in layout.tensors]
        )

    def distilled(
        self,
        parents: tuple[np.ndarray, np.ndarray],
        start: np.ndarray,
        states: np.ndarray,
        critic: np.ndarray,
        random: np.random.Generator,
    ) -> np.ndarray:
        """Distil two parents' actions, as judged in each state [n, o], into a child, float32 [d].

        Algorithm 1, from `start`; critic: the learner's, float32 [critic_size]. An epoch has
        n // batch steps, of batches drawn independently of one another. With fewer states than a
        batch it has one step, of n draws; with none the child is `start`.
        """
        n, erl = len(states), self._options
        if not n:
            return start.copy()
        steps = erl.distillation_epochs * imitations(n, erl.distillation_batch)
        batch = min(erl.distillation_batch, n)
        self._judge.load(critic)
        with one_thread():
            acted = [self.actions(parent, states) for parent in parents]
            wanted = choose_better(self._judge, states, *acted)
            table = torch.from_numpy(np.concatenate([states, wanted], 1, dtype=np.float32))
            actor, rows = self._actor(start, batch), torch.zeros(batch, table.shape[1])
            step = imitation(actor, rows, erl.lr_distillation)
            for indices in random.integers(n, size=(steps, batch)):
                torch.index_select(table, 0, torch.from_numpy(indices), out=rows)
                step.run()
        return actor.network.vector(0)

    def actions(self, theta: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return the actions in [-1, 1] of a policy [d] in states [n, o], float32 [n, a]."""
        do = Operations()
        acted = self._actor(theta, len(states)).forward(do, torch.tensor(states))
        do.run()
        return acted.numpy()

    def proximal(
        self, theta: np.ndarray, states: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Mutate a policy [d]: noise over each weight's sensitivity in states [n, o], Algorithm 2.

        The least sensitivity but 0, which counts as 1, is sensitivity_floor.
        """
        erl, weights, sensitive = self._options, self._weights, self.sensitivity(theta, states)
        least = np.maximum(sensitive, np.float32(erl.sensitivity_floor))
        divisor = np.where(sensitive == 0, np.float32(1), least)
        mutated, noise = theta.copy(), random.standard_normal(int(weights.sum()), dtype=np.float32)
        mutated[weights] += np.float32(erl.mutation_magnitude) * noise / divisor[weights]
        return mutated

    def sensitivity(self, theta: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return the sensitivity of actions in states [n, o] to each weight, float32 [d].

        Eq. 1: the root of the sum of squares, over an action's numbers, of the gradients by the
        weight summed over the states. 0 but in matrices.
        """
        do, given = Operations(), torch.tensor(states)
        with one_thread():
            actor = self._actor(theta, len(states))
            acted, network = actor.forward(do, given), actor.network
            delta, squares = torch.zeros_like(acted), torch.zeros_like(network.values)
            for k in range(acted.shape[1]):
                do.note(delta.zero_)
                do.note(delta[:, k].fill_, 1)
                actor.backward(do, given, delta)
                do.note(squares.addcmul_, network.gradient, network.gradient)
            do.run()
        return np.where(self._weights, squares.sqrt().numpy(), np.float32(0))
