"""The critic of ERL's DDPG, three networks in one flat tensor (critics.py), and passes by hand.

For ranks without the learner: Q by its critic's parameters, on the CPU. See network.py.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from esac_mpi.config import Config
from esac_mpi.learners.critics import critic_size, layouts
from esac_mpi.learners.network import Network, Operations, Pass, assign, cast
from esac_mpi.operators.policy import Layout


class Critic:
    """A critic, all parameters in `values` [d]: two first layers, `sides`, and a `joint` rest."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        theta: np.ndarray,
        device: torch.device,
        products: torch.dtype = torch.float32,
    ) -> None:
        self.values = torch.tensor(theta, device=device)
        self.gradient = torch.zeros_like(self.values)
        bounds = pairwise(np.cumsum([0, *(layout.d for layout in layouts)]).tolist())
        *self.sides, self.joint = (
            Network(
                part, [theta[i:j]], "elu", device, products, (self.values[i:j], self.gradient[i:j])
            )
            for part, (i, j) in zip(layouts, bounds, strict=True)
        )

    def vector(self, i: int = 0) -> np.ndarray:
        """Return a copy of the parameters, float32 [d]; i: there is one."""
        return self.values.cpu().numpy().copy()

    def refresh(self) -> None:
        """Make what passes multiply by follow `values`."""
        for part in (*self.sides, self.joint):
            part.refresh()


class CriticPass:
    """Buffers of forward and backward through `critic`, or one of its form, for so many rows.

    x is (observations [rows, o], actions [rows, a]). As in network.py every method notes operations
    in `do`.
    """

    def __init__(self, critic: Critic, rows: int) -> None:
        self._joint = Pass(critic.joint, rows)
        joined = critic.joint.layout.sizes[0]
        # of observation, of action
        self._first = critic.values.new_empty(rows, joined, dtype=critic.joint.products)
        self._by_first = torch.empty_like(self._first)
        self._side = joined // 2

    def forward(self, do: Operations, critic: Critic, x: tuple[Tensor, Tensor]) -> Tensor:
        """Return where Q will be for inputs x, float32 [rows, 1]; the next pass overwrites it."""
        for part, given, first in zip(
            critic.sides, x, self._first.split(self._side, 1), strict=True
        ):
            weight, bias, *_ = part.layers[0]
            do.note(torch.addmm, bias, cast(do, given, weight.dtype), weight, out=first)
        do.note(critic.joint.activate_, self._first)
        return self._joint.forward(do, critic.joint, self._first)

    def backward(
        self, do: Operations, critic: Critic, x: tuple[Tensor, Tensor], delta: Tensor
    ) -> None:
        """Leave a sum's gradient in `critic.gradient`, given its gradient `delta` by Q at x."""
        delta = self._joint.backward(do, critic.joint, self._first, delta)
        self._back(do, critic, delta, slice(None))
        for part, given, by_first in zip(
            critic.sides, x, self._by_first.split(self._side, 1), strict=True
        ):
            weight, bias, *_ = part.gradients[0]
            do.note(torch.mm, by_first.mT, cast(do, given, weight.dtype), out=weight)
            do.note(torch.sum, by_first, 0, keepdim=True, out=bias)
            do.note(part.collect)

    def action_backward(self, do: Operations, critic: Critic, delta: Tensor) -> Tensor:
        """Return a sum's gradient by actions, float32 [rows, a], given that by Q, `delta`.

        Leaves the network's gradient alone.
        """
        self._back(
            do,
            critic,
            self._joint.inputs_backward(do, critic.joint, delta),
            slice(self._side, None),
        )
        weight = critic.sides[1].layers[0].weight  # [a, side]
        by_action = weight.new_empty(len(delta), len(weight))
        do.note(torch.mm, self._by_first[:, self._side :], weight.mT, out=by_action)
        return cast(do, by_action, torch.float32)

    def _back(self, do: Operations, critic: Critic, delta: Tensor, columns: slice) -> None:
        """Note the gradient by the first layers' sums in `columns`, given the joint layer's."""
        weight = critic.joint.layers[0].weight[columns]
        first = self._first[:, columns]
        by_first = self._by_first[:, columns]
        do.note(torch.mm, delta, weight.mT, out=by_first)
        do.note(critic.joint.deactivate, by_first, first, grad_input=by_first)


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
        """Take a learner's `critic_vector`, float32 [critic_size]. Raises ValueError for others."""
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
