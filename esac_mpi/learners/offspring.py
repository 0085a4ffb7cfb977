"""Gradient-based genetic operators: distillation crossover and proximal mutation (PDERL).

Source: Bodnar et al. 2020 (PDERL), Algorithms 1 and 2, Eq. 1.

Where we differ, or public code does:
- The loss is the paper's: sums over an action's numbers in both terms. The public code has a mean
  over them in the second.
- Weights whose sensitivity is 0 count as 1 and others as at least a floor, and only weight matrices
  are mutated (public code).

All of it is on the CPU and on one of torch's threads, whatever learner.threads is, so that a
member's bits depend on its parents and its address, not on the rank. A policy acts here by the tanh
of its output.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from esac_mpi.config import Config
from esac_mpi.config.genetic import imitations
from esac_mpi.learners import critics
from esac_mpi.learners.critics import Judge, Judging
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


def actions(layout: Layout, activation: str, theta: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the actions in [-1, 1] of a policy [d] in states [n, o], float32 [n, a]."""
    do = Operations()
    with one_thread():
        acted = Actor(layout, activation, theta, len(states)).forward(do, torch.tensor(states))
        do.run()
    return acted.numpy()


def preferred(
    judge: Judging, states: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Choose in each state [n, o] of two actions [n, a] the one judged better, or the second."""
    return np.where((judge(states, first) > judge(states, second))[:, None], first, second)


def distilled(
    layout: Layout, activation: str,
    first: np.ndarray, second: np.ndarray, start: np.ndarray, states: np.ndarray, judge: Judging,
    epochs: int, batch: int, learning_rate: float, random: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Distil two parents' actions, as judged in each state [n, o], into a child, float32 [d].

    Algorithm 1, from `start`. An epoch has n // batch steps, of batches drawn independently of one
    another. With fewer states than a batch it has one step, of n of them (public code); with none
    the child is `start`.
    """
    if not len(states):
        return start.copy()
    steps, batch = epochs * imitations(len(states), batch), min(batch, len(states))
    with one_thread():
        acted = [actions(layout, activation, parent, states) for parent in (first, second)]
        wanted = preferred(judge, states, *acted)
        step = Imitation(layout, activation, start, batch, learning_rate)
        table = torch.from_numpy(np.concatenate([states, wanted], 1, dtype=np.float32))
        for indices in random.integers(len(states), size=(steps, batch)):
            torch.index_select(table, 0, torch.from_numpy(indices), out=step.rows)
            step.run()
    return step.actor.network.vector(0)


class Imitation:
    """An Adam step on Algorithm 1's loss, for states and wanted actions: `rows` [batch, o + a].

    The loss is the sum over the batch of |action - wanted|^2 + |action|^2 / batch.
    """

    def __init__(
        self, layout: Layout, activation: str, start: np.ndarray, batch: int, learning_rate: float
    ) -> None:
        o, a = layout.sizes[0], layout.sizes[-1]
        self.actor, self.rows = Actor(layout, activation, start, batch), torch.zeros(batch, o + a)
        network, self._operations = self.actor.network, Operations()
        self.run = self._operations.run
        do = self._operations
        states, wanted = self.rows.split([o, a], 1)
        delta = torch.zeros(batch, a)
        acted = self.actor.forward(do, states)
        do.note(torch.mul, acted, 2 + 2 / batch, out=delta)
        do.note(delta.sub_, wanted, alpha=2)
        self.actor.backward(do, states, delta)
        do.note(Adam(network.values, network.gradient, learning_rate).step)


def sensitivity(
    layout: Layout, activation: str, theta: np.ndarray, states: np.ndarray
) -> np.ndarray:
    """Return the sensitivity of a policy's actions in states [n, o] to each weight, float32 [d].

    Eq. 1: the root of the sum of squares, over an action's numbers, of the gradients by the weight
    summed over the states. 0 but in matrices.
    """
    do, given = Operations(), torch.tensor(states)
    with one_thread():
        actor = Actor(layout, activation, theta, len(states))
        acted, network = actor.forward(do, given), actor.network
        delta, squares = torch.zeros_like(acted), torch.zeros_like(network.values)
        for k in range(acted.shape[1]):
            do.note(delta.zero_)
            do.note(delta[:, k].fill_, 1)
            actor.backward(do, given, delta)
            do.note(squares.addcmul_, network.gradient, network.gradient)
        do.run()
    return np.where(matrices(layout), squares.sqrt().numpy(), np.float32(0))


def matrices(layout: Layout) -> np.ndarray:
    """Return which parameters are weights of a matrix, bool [d]."""
    return np.concatenate(
        [np.full(tensor.stop - tensor.start, tensor.kind == "weight") for tensor in layout.tensors]
    )


def proximal(
    layout: Layout, activation: str,
    theta: np.ndarray, states: np.ndarray, magnitude: float, floor: float,
    random: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Mutate a policy [d] by Algorithm 2: noise of std `magnitude`, over each weight's sensitivity.

    floor: the least sensitivity but 0, which counts as 1.
    """
    weights, sensitive = matrices(layout), sensitivity(layout, activation, theta, states)
    divisor = np.where(sensitive == 0, np.float32(1), np.maximum(sensitive, np.float32(floor)))
    mutated, noise = theta.copy(), random.standard_normal(int(weights.sum()), dtype=np.float32)
    mutated[weights] += np.float32(magnitude) * noise / divisor[weights]
    return mutated


class GeneticOperators:
    """Distillation crossover and proximal mutation of a configuration, on any rank.

    `Params.operators` of the ERL family.
    """

    def __init__(self, config: Config, layout: Layout) -> None:
        self.critic_size = critics.critic_size(config, layout)
        self._options, self._form = config.erl, (layout, config.policy.activation)
        self._judge = Judge(config, layout)

    def distilled(
        self,
        parents: tuple[np.ndarray, np.ndarray],
        start: np.ndarray,
        states: np.ndarray,
        critic: np.ndarray,
        random: np.random.Generator,
    ) -> np.ndarray:
        """Distil two parents [d] in states [n, o] into a child, float32 [d], from `start`.

        critic: the learner's, float32 [critic_size].
        """
        options, (first, second) = self._options, parents
        self._judge.load(critic)
        epochs, batch = options.distillation_epochs, options.distillation_batch
        rate, judge = options.lr_distillation, self._judge
        return distilled(
            *self._form, first, second, start, states, judge, epochs, batch, rate, random
        )

    def proximal(
        self, theta: np.ndarray, states: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Mutate theta, float32 [d], by each weight's sensitivity in states [n, o]."""
        options = self._options
        how = options.mutation_magnitude, options.sensitivity_floor
        return proximal(*self._form, theta, states, *how, random)
