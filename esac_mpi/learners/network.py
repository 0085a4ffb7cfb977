"""What gradient learners share: multilayer perceptrons in one flat tensor, and Adam on it.

A network of 2x32 units spends its time on the number of operations, not on their size. Hence: all parameters of a network
lie in one flat tensor and their gradients in another, so that Adam is five operations and Polyak averaging one, and twin
critics are two members of one network, so that a layer of both is one operation.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from esac_mpi.policy import Layout

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own


class Network:
    """Equal perceptrons, side by side: `values` [members * d] is all of their parameters, tensor by tensor of `layout`.

    `tensors` are views into `values`, [members, in, out] and [members, 1, out] in turn, without the first axis if there is
    one member. A backward pass adds to their gradients, which are views into `gradient`. `constants` are the same views,
    without gradients: for a pass through the network that is to leave it alone.
    """

    def __init__(self, layout: Layout, members: Sequence[np.ndarray], activation: str, device: torch.device) -> None:
        self.layout = layout
        self.members = len(members)
        self.activation = torch.relu if activation == "relu" else torch.tanh
        tensors = zip(*(layout.views(theta) for theta in members), strict=True)  # each one's, of all members
        self.values = torch.tensor(np.concatenate([np.ravel(tensor) for tensor in tensors]), device=device)
        self.gradient = torch.zeros_like(self.values)
        self.constants = self._views(self.values)
        self.tensors = [view.detach().requires_grad_() for view in self.constants]
        for tensor, gradient in zip(self.tensors, self._views(self.gradient), strict=True):
            tensor.grad = gradient

    def __call__(self, x: Tensor, constant: bool = False) -> Tensor:
        """Return the outputs [members, batch, out] for inputs [batch, in]; one member: [batch, out]."""
        tensors = self.constants if constant else self.tensors
        affine = torch.addmm if self.members == 1 else torch.baddbmm
        x = x if self.members == 1 else x.expand(self.members, *x.shape)
        for weight, bias in zip(tensors[:-2:2], tensors[1:-2:2], strict=True):
            x = self.activation(affine(bias, x, weight))
        return affine(tensors[-1], x, tensors[-2])

    def numpy(self) -> list[np.ndarray]:
        """Return the weights [in, out] and biases [1, out] of a single member in turn; views on a CPU, else copies."""
        return [view.cpu().numpy() for view in self.constants]

    def _views(self, values: Tensor) -> list[Tensor]:
        parts = values.split([self.members * (t.stop - t.start) for t in self.layout.tensors])
        views = [p.view(self.members, t.shape[0], -1).mT for p, t in zip(parts, self.layout.tensors, strict=True)]
        return [view[0] for view in views] if self.members == 1 else views


class Adam:
    """Adam on one flat tensor (Kingma and Ba 2015, Algorithm 1, in the order of its section 2)."""

    def __init__(self, values: Tensor, gradient: Tensor, learning_rate: float) -> None:
        self.values, self.gradient, self.learning_rate = values, gradient, learning_rate
        self.moment1 = torch.zeros_like(values)
        self.moment2 = torch.zeros_like(values)
        self.steps = 0

    def descend(self, loss: Tensor) -> Tensor:
        """Take a step down the gradient of `loss`, which depends on `values`; return the loss without its graph."""
        self.gradient.zero_()
        loss.backward()
        self.step()
        return loss.detach()

    def step(self) -> None:
        """Take a step against `gradient`."""
        self.steps += 1
        self.moment1.lerp_(self.gradient, 1 - BETA1)
        self.moment2.lerp_(self.gradient * self.gradient, 1 - BETA2)
        correction = math.sqrt(1 - BETA2**self.steps)
        rate = self.learning_rate * correction / (1 - BETA1**self.steps)
        self.values.addcdiv_(self.moment1, self.moment2.sqrt().add_(EPSILON * correction), value=-rate)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of the values and of what Adam remembers."""
        copies = {name: getattr(self, name).cpu().numpy().copy() for name in ("values", "moment1", "moment2")}
        return {**copies, "steps": np.array(self.steps)}

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another shape."""
        for name in ("values", "moment1", "moment2"):
            assign(getattr(self, name), arrays[name])
        self.steps = int(arrays["steps"])


def assign(tensor: Tensor, array: np.ndarray) -> None:
    """Copy an array into a tensor. Raises ValueError for another shape."""
    if tuple(tensor.shape) != array.shape:
        raise ValueError(f"learner parameters must be float32 {list(tensor.shape)}, got {array.dtype} {list(array.shape)}")
    tensor.copy_(torch.from_numpy(array))


def forward(tensors: Sequence[np.ndarray], activation: str, x: np.ndarray) -> np.ndarray:
    """Return the output [out] for one input x [in] by `Network.numpy()`, without torch's overhead at every step."""
    for weight, bias in zip(tensors[:-2:2], tensors[1:-2:2], strict=True):
        x = x @ weight + bias[0]
        x = np.maximum(x, 0.0) if activation == "relu" else np.tanh(x)
    return x @ tensors[-2] + tensors[-1][0]
