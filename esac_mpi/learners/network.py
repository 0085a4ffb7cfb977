"""Multilayer perceptrons in one flat tensor, passes through them by hand, and Adam.

A network of 2x32 units spends its time on the number of operations, a larger one on its matrix
products. Hence: all parameters of a network are in one flat tensor and their gradients in another,
so that Adam is six operations and Polyak averaging one; twin critics are two members of one
network, so that a layer of both is one operation; and forward and backward are written out, into
buffers allocated once, as a list of operations whose views are made once.
"""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esac_mpi.operators.kernels import LAYER_NORM_EPSILON
from esac_mpi.operators.policy import Layer, Layout

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's own
SUBNORMAL = np.float32(1e-39)
RELU_BACKWARD = torch.ops.aten.threshold_backward.grad_input
TANH_BACKWARD = torch.ops.aten.tanh_backward.grad_input
ELU_BACKWARD = torch.ops.aten.elu_backward.grad_input
LAYER_NORM = torch.ops.aten.native_layer_norm.out
LAYER_NORM_BACKWARD = torch.ops.aten.native_layer_norm_backward.out


def elu_backward(delta: Tensor, output: Tensor, grad_input: Tensor) -> None:
    """Write the gradient by ELU's input to `grad_input`, given ELU's output and that by it."""
    ELU_BACKWARD(delta, 1, 1, 1, True, output, grad_input=grad_input)


# in place, and back through it by its output
ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (torch.relu_, partial(RELU_BACKWARD, threshold=0)),
    "tanh": (torch.tanh_, TANH_BACKWARD),
    "elu": (torch.ops.aten.elu_, elu_backward),
}


class Operations(list[Callable[[], Any]]):
    """Operations on fixed tensors: noted once, made at every `run` or captured (chunks.py).

    `adams`: who takes a step in them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.adams: list[Adam] = []

    def note(self, operation: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Append operation(*arguments, **options)."""
        self.append(partial(operation, *arguments, **options))

    def step(self, adam: "Adam") -> None:
        """Append a step of an Adam."""
        self.adams.append(adam)
        self.note(adam.step)

    @torch.inference_mode()
    def run(self) -> None:
        """Make the operations in their order, without autograd's bookkeeping.

        On a CPU subnormal numbers are taken and made as 0 in them, as in _learner.c.
        """
        before = bool(SUBNORMAL == 0)  # whether the process has chosen that already
        torch.set_flush_denormal(True)
        try:
            for operation in self:
                operation()
        finally:
            torch.set_flush_denormal(before)


class Network:
    """Equal perceptrons, side by side: `values` [members * d] has all parameters, by `layout`.

    `layers` are what a pass multiplies by and adds, views [members, in, out] of a weight and
    [members, 1, out] of a bias, gain or shift; `gradients` get their gradients, [members, out, in]
    and [members, 1, out]. With one member all lack the first axis. With `products` = bfloat16 they
    are views into copies in that type, but for gain and shift, which stay float32: `refresh` copies
    `values` there, `collect` copies the gradients to `gradient`.
    """

    def __init__(
        self,
        layout: Layout,
        members: Sequence[np.ndarray],
        activation: str,
        device: torch.device,
        products: torch.dtype = torch.float32,
        memory: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """memory: where `values` and `gradient` lie; None: where there is room."""
        self.layout = layout
        self.members = len(members)
        self.products = products
        self.activate_, self.deactivate = ACTIVATIONS[activation]
        self.affine: Callable[..., Tensor] = torch.addmm if self.members == 1 else torch.baddbmm
        self.product: Callable[..., Tensor] = torch.mm if self.members == 1 else torch.bmm
        # each one's, of all members
        tensors = zip(*(layout.views(theta) for theta in members), strict=True)
        values = torch.tensor(
            np.concatenate([np.ravel(tensor) for tensor in tensors]), device=device
        )
        self.values, self.gradient = memory or (values, torch.zeros_like(values))
        self.values.copy_(values)
        self._copied = products != torch.float32
        self._values = self.values.to(products)  # itself, or a copy
        self._gradient = self.gradient.to(products)
        self.tensors = self._views(self.values)
        kinds, copied = [t.kind for t in layout.tensors], self._views(self._values)
        used = [
            own if kind in ("gain", "shift") else c
            for kind, own, c in zip(kinds, self.tensors, copied, strict=True)
        ]
        left = zip(kinds, self._views(self._gradient), strict=True)
        self.layers = layout.grouped(used)
        self.gradients = layout.grouped(
            [view.mT if kind == "weight" else view for kind, view in left]
        )

    def member(self, i: int) -> "Network":
        """Return member i alone, in the same memory, for passes without parameter gradients."""
        one = copy.copy(self)
        one.layers = [
            Layer(*(None if tensor is None else tensor[i] for tensor in layer))
            for layer in self.layers
        ]
        one.gradients = []
        one.members, one.affine, one.product = 1, torch.addmm, torch.mm
        return one

    def vector(self, i: int) -> np.ndarray:
        """Return a copy of the parameters of member i, float32 [d], in the order of `layout`."""
        parts = self.values.cpu().split(
            [self.members * (t.stop - t.start) for t in self.layout.tensors]
        )
        return np.concatenate([part.view(self.members, -1)[i].numpy() for part in parts])

    def refresh(self) -> None:
        """Make `layers` follow `values`."""
        if self._copied:
            self._values.copy_(self.values)

    def collect(self) -> None:
        """Make `gradient` follow `gradients`."""
        if self._copied:
            self.gradient.copy_(self._gradient)

    def numpy(self) -> list[Layer]:
        """Return a single member's layers, weights [in, out] and vectors [1, out].

        Views on a CPU, else copies.
        """
        here = self.values.device.type == "cpu"
        # one copy: an interleaved phase asks at every step
        tensors = self.tensors if here else self._views(self.values.cpu())
        return self.layout.grouped([view.numpy() for view in tensors])

    def _views(self, values: Tensor) -> list[Tensor]:
        parts = values.split([self.members * (t.stop - t.start) for t in self.layout.tensors])
        views = [
            p.view(self.members, t.shape[0], -1).mT
            for p, t in zip(parts, self.layout.tensors, strict=True)
        ]
        return [view[0] for view in views] if self.members == 1 else views


class Normalisation:
    """Buffers of a hidden layer's normalisation: in float32, also between bfloat16 products.

    `hidden` [members, rows, size] is that layer's buffer in the pass, and holds the normalised sums
    after `forward`; `affine` takes the sums before it. Gradients of gain and shift are rounded to
    the others' type at the end.
    """

    def __init__(self, hidden: Tensor) -> None:
        self._rounded = hidden.dtype != torch.float32
        self.hidden, self._sums = hidden, torch.empty_like(hidden, dtype=torch.float32)
        self._normal = torch.empty_like(self._sums) if self._rounded else hidden
        self._by_sums = torch.empty_like(self._sums)
        self.affine = hidden if self._rounded else self._sums
        self._mean = self._sums[..., :1].clone()
        self._scale = self._sums[..., :1].clone()  # 1 / standard deviation

    def tail(self, rows: int) -> "Normalisation":
        """Return the part that belongs to the last `rows` rows, in the same memory."""
        part = copy.copy(self)
        for name in ("hidden", "affine", "_sums", "_normal", "_by_sums", "_mean", "_scale"):
            setattr(part, name, getattr(self, name)[..., -rows:, :])
        return part

    def forward(self, do: Operations, layer: Layer) -> None:
        """Note the normalisation of `affine` to `hidden`."""
        if self._rounded:
            do.note(self._sums.copy_, self.hidden)
        vectors = layer.gain[..., 0, :], layer.shift[..., 0, :]
        for x, gain, shift, y, mean, scale in _each(
            self._sums, *vectors, self._normal, self._mean, self._scale
        ):
            given = x, gain.shape, gain, shift, LAYER_NORM_EPSILON
            do.note(LAYER_NORM, *given, out0=y, out1=mean, out2=scale)
        if self._rounded:
            do.note(self.hidden.copy_, self._normal)

    def backward(
        self, do: Operations, layer: Layer, delta: Tensor, gradients: Layer | None
    ) -> Tensor:
        """Return the gradient by the sums, given `delta` by the output.

        Leaves those of gain and shift in `gradients`.
        """
        vectors = layer.gain[..., 0, :], layer.shift[..., 0, :]
        kept = [gradients.gain[..., 0, :], gradients.shift[..., 0, :]] if gradients else []
        made = (
            kept if kept and not self._rounded else [torch.empty_like(vector) for vector in vectors]
        )
        given = cast(do, delta, torch.float32), self._sums, self._mean, self._scale
        for d, x, mean, scale, gain, shift, out, by_gain, by_shift in _each(
            *given, *vectors, self._by_sums, *made
        ):
            known = d, x, gain.shape, mean, scale, gain, shift, [True] * 3
            do.note(LAYER_NORM_BACKWARD, *known, out0=out, out1=by_gain, out2=by_shift)
        for into, float32 in zip(kept, made, strict=False):
            if into is not float32:
                do.note(into.copy_, float32)
        return cast(do, self._by_sums, delta.dtype)


def cast(do: Operations, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x, or what will be a copy of it in another type."""
    if x.dtype == dtype:
        return x
    copied = torch.empty_like(x, dtype=dtype)
    do.note(copied.copy_, x)
    return copied


def _each(*tensors: Tensor) -> Any:
    """Return the tensors of each member in turn; the first has an axis of rows."""
    return zip(*tensors, strict=True) if tensors[0].dim() == 3 else (tensors,)


class Pass:
    """Buffers of forward and backward through `network`, or one of its form, for so many rows.

    Inputs are [members, rows, in], outputs [members, rows, out]; with one member both lack the
    first axis. Every method notes operations in `do`. A layer of one output uses matrix-vector
    products, many times faster than a batch of thin matrices.
    """

    def __init__(self, network: Network, rows: int) -> None:
        lead = (network.members,) if network.members > 1 else ()
        *hidden, out = network.layout.sizes[1:]
        new = partial(network.values.new_empty, dtype=network.products)
        *self.hidden, self._last = (new((*lead, rows, size)) for size in (*hidden, out))
        self.output = self._last.float()  # itself, or a copy; the next pass overwrites it
        self.deltas = [torch.empty_like(x) for x in self.hidden]
        self.normal = [Normalisation(x) if network.layout.layer_norm else None for x in self.hidden]
        self.thin = out == 1 and bool(hidden)
        self.inputs = list(self.hidden)  # of every layer but the first
        if path := network.layout.path:  # the last layer sees the observation beside these units
            self.inputs[-1] = new((*lead, rows, hidden[-1] + path))

    def tail(self, rows: int) -> "Pass":
        """Return the part of a pass that belongs to the last `rows` rows, in the same memory."""
        part = object.__new__(Pass)
        part.thin = self.thin
        for name in ("hidden", "deltas", "inputs"):
            setattr(part, name, [x[..., -rows:, :] for x in getattr(self, name)])
        part.normal = [normal and normal.tail(rows) for normal in self.normal]
        part.output, part._last = self.output[..., -rows:, :], self._last[..., -rows:, :]
        return part

    def forward(self, do: Operations, network: Network, x: Tensor) -> Tensor:
        """Return `output`, which then holds the outputs for inputs x, float32."""
        x = seen = cast(do, x, self._last.dtype)
        for layer, hidden, normal in zip(network.layers, self.hidden, self.normal, strict=False):
            sums = normal.affine if normal else hidden
            do.note(network.affine, layer.bias, x, layer.weight, out=sums)
            if normal:
                normal.forward(do, layer)
            do.note(network.activate_, hidden)
            x = hidden
        if network.layout.path:
            x, units = self.inputs[-1], x.shape[-1]
            of_units, of_seen = network.layout.gains
            do.note(torch.mul, self.hidden[-1], of_units, out=x[..., :units])
            do.note(torch.mul, seen, of_seen, out=x[..., units:])
        weight, bias, *_ = network.layers[-1]
        if self.thin:
            for h, b, w, out in _each(x, bias[..., 0], weight[..., 0], self._last[..., 0]):
                do.note(torch.addmv, b, h, w, out=out)
        else:
            do.note(network.affine, bias, x, weight, out=self._last)
        if self._last is not self.output:
            do.note(self.output.copy_, self._last)
        return self.output

    def backward(self, do: Operations, network: Network, x: Tensor, delta: Tensor) -> Tensor:
        """Leave a sum's gradient in `network.gradient`, given `delta` by the outputs.

        Returns that by the first layer's sums.
        """
        dtype = self._last.dtype
        delta, inputs = cast(do, delta, dtype), [cast(do, x, dtype), *self.inputs]
        last = len(self.hidden)
        for i in range(last, -1, -1):
            weight, bias, *_ = network.gradients[i]
            if i == last and self.thin:
                for h, d, g in _each(inputs[i].mT, delta[..., 0], weight[..., 0, :]):
                    do.note(torch.mv, h, d, out=g)
            else:
                do.note(network.product, delta.mT, inputs[i], out=weight)
            do.note(torch.sum, delta, -2, keepdim=True, out=bias)
            if i:
                delta = self._back(do, network, i, delta, network.gradients[i - 1])
        if network.products != torch.float32:
            do.note(network.collect)
        return delta

    def inputs_backward(self, do: Operations, network: Network, delta: Tensor) -> Tensor:
        """Return the gradient by the first layer's sums; leave `network.gradient` alone."""
        delta = cast(do, delta, self._last.dtype)
        for i in range(len(self.hidden), 0, -1):
            delta = self._back(do, network, i, delta)
        return delta

    def _back(
        self,
        do: Operations,
        network: Network,
        i: int,
        delta: Tensor,
        gradients: Layer | None = None,
    ) -> Tensor:
        """Return the gradient by the sums of layer i - 1, given that by the sums of layer i.

        gradients: where to leave those of what normalises layer i - 1.
        """
        # one output: an outer product
        product = torch.mul if self.thin and i == len(self.hidden) else network.product
        out = self.deltas[i - 1]
        do.note(product, delta, network.layers[i].weight[..., : out.shape[-1], :].mT, out=out)
        if network.layout.path and i == len(self.hidden):
            do.note(out.mul_, network.layout.gains[0])
        do.note(network.deactivate, out, self.hidden[i - 1], grad_input=out)
        normal = self.normal[i - 1]
        return normal.backward(do, network.layers[i - 1], out, gradients) if normal else out


class Adam:
    """Adam on one flat tensor (Kingma and Ba 2015, Algorithm 1, in the order of its section 2).

    `step` counts its steps. A captured one cannot count on the host: after `take_rates`, what
    `rates` counts and returns has to be where it says before each step.
    """

    def __init__(self, values: Tensor, gradient: Tensor, learning_rate: float) -> None:
        self.values, self.gradient, self.learning_rate = values, gradient, learning_rate
        self.moment1 = torch.zeros_like(values)
        self.moment2 = torch.zeros_like(values)
        self._scratch = torch.zeros_like(values)
        self.steps = 0
        self._given: Tensor | None = None

    def rates(self) -> tuple[float, float]:
        """Count a step; return minus its rate, and what keeps its divisor from 0."""
        self.steps += 1
        correction = math.sqrt(1 - BETA2**self.steps)
        return -(self.learning_rate * correction / (1 - BETA1**self.steps)), EPSILON * correction

    def take_rates(self, given: Tensor) -> None:
        """Take what `rates` returns from a tensor [2] in every step."""
        self._given = given
        self._scaled = torch.empty_like(self.values)

    def step(self) -> None:
        """Take a step against `gradient`."""
        scratch = self._scratch
        self.moment1.lerp_(self.gradient, 1 - BETA1)
        torch.mul(self.gradient, self.gradient, out=scratch)
        self.moment2.lerp_(scratch, 1 - BETA2)
        torch.sqrt(self.moment2, out=scratch)
        if self._given is None:
            rate, small = self.rates()
            self.values.addcdiv_(self.moment1, scratch.add_(small), value=rate)
        else:  # by one operation more; a CPU's bits are the same
            torch.mul(self.moment1, self._given[0], out=self._scaled)
            self.values.addcdiv_(self._scaled, scratch.add_(self._given[1]))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of the values and of what Adam remembers."""
        copies = {
            name: getattr(self, name).cpu().numpy().copy()
            for name in ("values", "moment1", "moment2")
        }
        return {**copies, "steps": np.array(self.steps)}

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what `arrays` returned. Raises ValueError for another shape."""
        for name in ("values", "moment1", "moment2"):
            assign(getattr(self, name), arrays[name])
        self.steps = int(arrays["steps"])


def assign(tensor: Tensor, array: np.ndarray) -> None:
    """Copy an array into a tensor. Raises ValueError for another shape."""
    if tuple(tensor.shape) != array.shape:
        raise ValueError(
            f"learner parameters must be float32 {list(tensor.shape)}, "
            f"got {array.dtype} {list(array.shape)}"
        )
    tensor.copy_(torch.from_numpy(array))
