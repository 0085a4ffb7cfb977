"""Critics and how they see: observation and action side by side, or ERL's, a layer for each first.

ERL's own critic (public code): two first layers, then both through a normalised one; ELU follows
every layer but the last. Its flat vector has the two first layers one after the other, then the
joint rest. As in network.py every method of passes notes operations in `do`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esac_mpi.config import Config
from esac_mpi.learners.network import Network, Operations, Pass, assign, cast
from esac_mpi.learners.updates import Batch
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout

OBSERVATION, ACTION, JOINT = 17, 18, 19  # which network initial weights are drawn for


def layouts(config: Config, layout: Layout) -> list[Layout]:
    """List the layouts of an ERL learner's critic, in its vector's order; layout: the policy's."""
    o, *hidden, a = layout.sizes
    if config.erl.learner != "ddpg":
        return [Layout((o + a, *hidden, 1), getattr(config, config.erl.learner).critic_layer_norm)]
    side, joint = config.erl.critic_hidden
    return [Layout((o, side)), Layout((a, side)), Layout((2 * side, joint, 1), layer_norm=True)]


def critic_size(config: Config, layout: Layout) -> int:
    """Count the numbers of an ERL learner's critic; layout: of the policy."""
    return sum(part.d for part in layouts(config, layout))


def initial(config: Config, layout: Layout) -> np.ndarray:
    """Draw ERL's own critic, float32 [critic_size], as policies; last layer as ERL's actors'."""
    *sides, joint = layouts(config, layout)
    drawn = [
        side.initial(config.seed, network)
        for side, network in zip(sides, (OBSERVATION, ACTION), strict=True)
    ]
    return np.concatenate([*drawn, genetics.initial(joint, config.seed, JOINT)])


class Critic:
    """ERL's critic, all in `values` [d]: two first layers, `sides`, and a `joint` rest."""

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
        """Copy the parameters, float32 [d]; i: there is one."""
        return self.values.cpu().numpy().copy()

    def refresh(self) -> None:
        """Make what passes multiply by follow `values`."""
        for part in (*self.sides, self.joint):
            part.refresh()


class SideBySide:
    """Passes through a network of critics, for so many rows; the first one judges actors."""

    def __init__(self, critic: Network, rows: int) -> None:
        """critic: the one that learns; `forward` takes others of its form, too."""
        self._seen = critic.values.new_empty(rows, critic.layout.sizes[0])
        self._pass = Pass(critic, rows)
        self._first, self._first_pass = critic, self._pass
        if critic.members > 1:
            self._first = critic.member(0)
            self._first_pass = Pass(self._first, rows)

    def seen(self, do: Operations, observation: Tensor, action: Tensor) -> Tensor:
        """Put observation and action side by side; the next ones overwrite them."""
        o = observation.shape[1]
        do.note(self._seen[:, :o].copy_, observation)
        do.note(self._seen[:, o:].copy_, action)
        return self._seen

    def taken(self, batch: Batch) -> Tensor:
        """See the actions that were taken."""
        return batch.taken

    def forward(self, do: Operations, critic: Network, seen: Tensor) -> Tensor:
        """Return where Q of each will be, [..., rows, 1]; the next pass overwrites it."""
        return self._pass.forward(do, critic, self._of_each(critic, seen))

    def backward(self, do: Operations, critic: Network, seen: Tensor, delta: Tensor) -> None:
        """Leave a sum's gradient in `critic.gradient`, given that by Q, `delta`."""
        self._pass.backward(do, critic, self._of_each(critic, seen), delta)

    def _of_each(self, critic: Network, seen: Tensor) -> Tensor:
        return seen if critic.members == 1 else seen.expand(critic.members, *seen.shape)

    def first(self, do: Operations, seen: Tensor) -> Tensor:
        """Return where Q of the first critic will be, [rows, 1]."""
        return self._first_pass.forward(do, self._first, seen)

    def by_action(self, do: Operations, actions: int, delta: Tensor) -> Tensor:
        """Return a sum's gradient by actions, given that by the first critic's Q, `delta`."""
        first = self._first_pass.inputs_backward(do, self._first, delta)
        # [a, hidden]: from the first layer's sums back to the action
        to_action = self._first.layers[0].weight[-actions:]
        wide = first.new_empty(actions, len(delta))  # many times faster than tall
        by_action = delta.new_empty(len(delta), actions)
        do.note(torch.mm, to_action, first.mT, out=wide)
        do.note(by_action.copy_, wide.mT)
        return by_action


class Apart:
    """Passes through ERL's critic, for so many rows, as `SideBySide`'s."""

    def __init__(self, critic: Critic, rows: int) -> None:
        self._critic, self._joint = critic, Pass(critic.joint, rows)
        joined = critic.joint.layout.sizes[0]
        # of observation, of action
        self._first = critic.values.new_empty(rows, joined, dtype=critic.joint.products)
        self._by_first = torch.empty_like(self._first)
        self._side = joined // 2

    def seen(self, do: Operations, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Take both as they are."""
        return observation, action

    def taken(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See the actions that were taken."""
        return batch.observation, batch.action

    def forward(self, do: Operations, critic: Critic, seen: tuple[Tensor, Tensor]) -> Tensor:
        """Return where Q will be, [rows, 1]; the next pass overwrites it."""
        parts = self._first.split(self._side, 1)
        for part, given, first in zip(critic.sides, seen, parts, strict=True):
            weight, bias, *_ = part.layers[0]
            do.note(torch.addmm, bias, cast(do, given, weight.dtype), weight, out=first)
        do.note(critic.joint.activate_, self._first)
        return self._joint.forward(do, critic.joint, self._first)

    def backward(
        self, do: Operations, critic: Critic, seen: tuple[Tensor, Tensor], delta: Tensor
    ) -> None:
        """Leave a sum's gradient in `critic.gradient`, given that by Q, `delta`."""
        delta = self._joint.backward(do, critic.joint, self._first, delta)
        self._back(do, critic, delta, slice(None))
        parts = self._by_first.split(self._side, 1)
        for part, given, by_first in zip(critic.sides, seen, parts, strict=True):
            weight, bias, *_ = part.gradients[0]
            do.note(torch.mm, by_first.mT, cast(do, given, weight.dtype), out=weight)
            do.note(torch.sum, by_first, 0, keepdim=True, out=bias)
            do.note(part.collect)

    def first(self, do: Operations, seen: tuple[Tensor, Tensor]) -> Tensor:
        """Return where Q will be: there is one critic."""
        return self.forward(do, self._critic, seen)

    def by_action(self, do: Operations, actions: int, delta: Tensor) -> Tensor:
        """Return a sum's gradient by actions, given that by Q, `delta`."""
        delta = self._joint.inputs_backward(do, self._critic.joint, delta)
        self._back(do, self._critic, delta, slice(self._side, None))
        weight = self._critic.sides[1].layers[0].weight  # [a, side]
        by_action = weight.new_empty(len(delta), actions)
        do.note(torch.mm, self._by_first[:, self._side :], weight.mT, out=by_action)
        return cast(do, by_action, torch.float32)

    def _back(self, do: Operations, critic: Critic, delta: Tensor, columns: slice) -> None:
        """Note the gradient by the first layers' sums in `columns`, given the joint layer's."""
        weight = critic.joint.layers[0].weight[columns]
        first = self._first[:, columns]
        by_first = self._by_first[:, columns]
        do.note(torch.mm, delta, weight.mT, out=by_first)
        do.note(critic.joint.deactivate, by_first, first, grad_input=by_first)


def passes(critic: Any, rows: int) -> Any:
    """Make the passes of a critic, or critics, for so many rows."""
    return Apart(critic, rows) if isinstance(critic, Critic) else SideBySide(critic, rows)


class Judge:
    """The critic of an ERL run's learner, whichever it is, on the CPU of any rank."""

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
        """Compute Q of actions [n, a] in [-1, 1] in states [n, o], float32 [n]."""
        do, passing = Operations(), passes(self._critic, len(states))
        seen = passing.seen(do, torch.from_numpy(states), torch.from_numpy(actions))
        q: Tensor = passing.first(do, seen)
        do.run()
        return q[:, 0].numpy()
