"""The numpy policy and the layout of the flat parameter vector theta.

theta holds, layer by layer, the weight matrix [out, in] row by row and then the bias [out].
theta_es, every offspring and the SAC mean share this layout (trunk + mean head), so a SAC copy
behaves the same in both roles.

With layer normalisation every hidden layer has a gain and a shift [out] after them, by which its
sums are normalised before the activation. It is torch.nn.LayerNorm's (Ba et al. 2016,
arXiv:1607.06450; biased variance, 1e-5 added to it), so that exports are plain modules, not the
public ERL code's own (unbiased standard deviation, 1e-6 added to that).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from esac_mpi.operators import kernels
from esac_mpi.operators.noise import Purpose, generator


@dataclass(frozen=True)
class Tensor:
    """One tensor in theta: a weight matrix, a bias, or what normalises a hidden layer's sums."""

    kind: Literal["weight", "bias", "gain", "shift"]
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """End of the tensor in theta (exclusive)."""
        return self.start + math.prod(self.shape)


class Layer(NamedTuple):
    """A layer's tensors, as arrays or torch's; gain and shift are None without normalisation."""

    weight: Any
    bias: Any
    gain: Any = None
    shift: Any = None


@dataclass(frozen=True)
class Layout:
    """Where the tensors of a multilayer perceptron lie in theta.

    `sizes` are [observation, hidden ..., action]; `tensors` has weight and bias of each layer,
    input layer first, and gain and shift after those of a hidden layer with `layer_norm`. With a
    `linear` path and hidden layers the last matrix has a column for each number of the observation,
    which counts `linear` times, after those of the last hidden units, which count 1 / `linear`
    times.
    """

    sizes: tuple[int, ...]
    layer_norm: bool = False
    linear: float = 0.0
    tensors: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        tensors: list[Tensor] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            if layer == len(self.sizes) - 2:
                fan_in += self.path
            shapes: dict[Any, tuple[int, ...]] = {"weight": (fan_out, fan_in), "bias": (fan_out,)}
            if self.layer_norm and layer < len(self.sizes) - 2:
                shapes |= {"gain": (fan_out,), "shift": (fan_out,)}
            for kind, shape in shapes.items():
                tensors.append(Tensor(kind, shape, tensors[-1].stop if tensors else 0))
        object.__setattr__(self, "tensors", tuple(tensors))

    @property
    def gains(self) -> tuple[float, float]:
        """Factors of the last hidden units and of the observation, where there is a linear path."""
        return 1 / self.linear, self.linear

    @property
    def path(self) -> int:
        """Inputs of the last layer that are the observation itself; 0 without a linear path."""
        return self.sizes[0] if self.linear and len(self.sizes) > 2 else 0

    def unscaled(self, last: np.ndarray) -> np.ndarray:
        """Unscale the last matrix: what multiplies units and observation themselves, [out, in]."""
        counts = self.sizes[-2], self.path
        return last * np.repeat(np.array(self.gains, np.float32), counts) if self.path else last

    @property
    def d(self) -> int:
        """Length of theta."""
        return self.tensors[-1].stop

    def scale(self, head: float) -> np.ndarray:
        """Return float32 [d]: `head` for the parameters of the last layer, 1 for the others."""
        found = np.ones(self.d, np.float32)
        found[self.tensors[-2].start :] = head
        return found

    def input_scale(self, factors: np.ndarray) -> np.ndarray:
        """Return float32 [d]: an observation's factor [o] for its weights, 1 for all others."""
        found = np.ones(self.d, np.float32)
        layers = self.layers(found)
        layers[0].weight[:, : self.sizes[0]] = factors
        if self.path:
            layers[-1].weight[:, -self.path :] = factors
        return found

    def views(self, theta: np.ndarray) -> list[np.ndarray]:
        """Return the tensors as views into theta [d]."""
        if theta.shape != (self.d,) or theta.dtype != np.float32:
            raise ValueError(
                f"theta must be float32 [{self.d}], got {theta.dtype} {list(theta.shape)}"
            )
        return [theta[t.start : t.stop].reshape(t.shape) for t in self.tensors]

    def grouped(self, of_tensors: Sequence[Any]) -> list[Layer]:
        """List every tensor, layer by layer."""
        starts = [i for i, tensor in enumerate(self.tensors) if tensor.kind == "weight"]
        return [Layer(*of_tensors[i:j]) for i, j in pairwise([*starts, len(self.tensors)])]

    def layers(self, theta: np.ndarray) -> list[Layer]:
        """Return the tensors of each layer as views into theta [d]."""
        return self.grouped(self.views(theta))

    def rows(self) -> np.ndarray:
        """The row boundaries in theta, of matrix rows and vector elements; int64 [rows + 1]."""
        lengths = np.concatenate(
            [np.full(t.shape[0], t.shape[1] if len(t.shape) == 2 else 1) for t in self.tensors]
        )
        return np.concatenate([[0], np.cumsum(lengths)])

    def initial(self, seed: int, network: int) -> np.ndarray:
        """Draw initial weights, float32 [d]: Xavier-uniform matrices, biases 0 (public ESAC code).

        Gains are 1 and shifts 0.
        """
        theta = np.zeros(self.d, np.float32)
        random = generator(seed, Purpose.INIT, member=network)
        for layer in self.layers(theta):
            bound = np.sqrt(6.0 / sum(layer.weight.shape))
            layer.weight[:] = random.uniform(-bound, bound, layer.weight.shape)
            if layer.gain is not None:
                layer.gain[:] = 1.0
        return theta


def round_inward(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round bounds of an action to float32 [action] that lie within them, if any do."""
    least, most = (np.asarray(np.ravel(end), np.float32) for end in (low, high))
    up = np.nextafter(least, np.float32(np.inf), where=least < np.ravel(low), out=least.copy())
    down = np.nextafter(most, np.float32(-np.inf), where=most > np.ravel(high), out=most.copy())
    return np.where(up <= down, up, least), np.where(up <= down, down, most)


# of outputs that stand for choices, lest the bound of others cut them off: which is largest stays
LOGIT_SCALE = 2.0**-16
CLIP = 5.0  # of standardised observations [standard deviations]; _kernels.c has it too
LEAST = 1e-2  # variance by which observations are standardised
SHRINKS = 1.0  # the same where that only shrinks them


@dataclass(frozen=True)
class Normaliser:
    """Standardisation of observations: clip((o - mean) / std, -5, 5). Source: OpenAI-ES."""

    mean: np.ndarray  # float32 [observation]
    std: np.ndarray  # float32 [observation]

    @classmethod
    def of(cls, sums: np.ndarray, least: float = LEAST) -> "Normaliser | None":
        """Standardise by sums over observations, float64 [3, observation]; None for sums over none.

        sums: count, sum and sum of squares, as `kernels.count_in` makes them. least: variance.
        """
        count, total, squares = sums
        if not count.any():
            return None
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, least))
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Return an observation [observation] as it is seen."""
        return np.clip((observation - self.mean) / self.std, -CLIP, CLIP)


class Policy:
    """A deterministic policy: observation [observation] to action [action] in the task's bounds."""

    def __init__(
        self,
        layout: Layout,
        activation: str,
        output: str,
        low: np.ndarray,
        high: np.ndarray,
        normaliser: Normaliser | None = None,
    ) -> None:
        self.layout = layout
        self.activation = activation
        self.output = output
        self.low = np.asarray(low, np.float32)  # [action] bounds of the task
        self.high = np.asarray(high, np.float32)
        self.normaliser = normaliser
        self.theta = np.zeros(layout.d, np.float32)  # write to it, then refresh()
        self._network = self._compiled()
        # copying it is the fastest way to a fresh array
        self._blank = np.zeros(layout.sizes[-1], np.float32)

    def _compiled(self) -> Any:
        """Return the network that acts, as yet without weights."""
        layout = self.layout
        bounds = self.low, self.high
        return kernels.Perceptron(
            layout.sizes, self.activation, self.output, *bounds, layout.layer_norm, layout.linear
        )

    def __getstate__(self) -> dict[str, Any]:
        """Keep for copy and pickle everything but the compiled network."""
        return {name: value for name, value in vars(self).items() if name != "_network"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the policy that was copied or pickled, with weights of its own."""
        vars(self).update(state, theta=state["theta"].copy())
        self._network = self._compiled()
        self.refresh()

    def set(self, theta: np.ndarray) -> "Policy":
        """Copy theta [d] into the policy; return the policy."""
        self.theta[:] = theta
        return self.refresh()

    def refresh(self) -> "Policy":
        """Act by what was written to `policy.theta` from now on; return the policy."""
        self._network.load(self.theta)
        return self

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Act on an observation [observation], float32 or float64: float32 [action] in bounds.

        Raises ValueError for anything else.
        """
        action, normaliser = self._blank.copy(), self.normaliser
        if normaliser is None:
            self._network.act(observation, action, True, None, None)
        else:
            self._network.act(observation, action, True, normaliser.mean, normaliser.std)
        return action

    def drive(self, loop: Any, *arrays: np.ndarray) -> None:
        """Act in a loop of `kernels`, as a call does at every step; arrays: those of its `run`."""
        normaliser = self.normaliser
        mean, std = (None, None) if normaliser is None else (normaliser.mean, normaliser.std)
        loop.run(self._network, mean, std, *arrays)
