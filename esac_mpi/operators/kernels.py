"""What an evaluating rank spends its time on: numbers, policies, sums over observations, its loop.

Compiled in _kernels.c, which ordinary `pip install` builds where there is a C compiler; in numpy otherwise. `NAME` says
which. The normal numbers, and the sums over observations, are the same bits either way. The forward passes differ in the last
bits: the compiled one adds the terms of an output in the order of the inputs, after the bias, and leaves out inputs that are zero
(so a weight that is nan or inf shows only when its input is not zero), and sums over the units of a layer, for its normalisation,
in sixteen float32 parts: every sixteenth unit in order, then the parts in order. numpy's orders are the BLAS library's.
"""

import importlib
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from esac_mpi.host.data_files import other_source

BUILT = (
    importlib.util.find_spec("esac_mpi.operators._kernels") is not None
)  # a build that does not load is an error
_kernels: Any = importlib.import_module("esac_mpi.operators._kernels") if BUILT else None

INTERFACE = 5  # what _kernels.c takes and returns
NAME = "numpy" if _kernels is None else "compiled"
LAYER_NORM_EPSILON = (
    1e-5  # added to the variance of a layer's sums: torch.nn.LayerNorm's; _kernels.c has it too
)
COUNTERS = 256  # Philox counters of a chunk, four numbers each; a constant, because the order of the numbers depends on it


def normal(
    seed: int,
    purpose: int,
    generation: int,
    member: int,
    block: int,
    size: int,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the `size` standard normals of an address, float32 [size], written to `out` if given.

    Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with key `seed` [64 bits] and counter
    (purpose [8 bits] and index [24 bits], block, member, generation [32 bits each]), then Box-Muller in float32. They reach
    6.76. Raises ValueError if a part of the address does not fit or the size exceeds 2**26.
    """
    small = 0 <= block < 2**32 and 0 <= member < 2**32 and 0 <= generation < 2**32
    if not (small and 0 <= purpose < 2**8 and 0 <= seed < 2**64 and 0 <= size <= 2**26):
        raise ValueError(
            "an address is seed < 2**64, purpose < 2**8, generation, member, block < 2**32, size <= 2**26, none negative; got "
            f"{seed}, {int(purpose)}, {generation}, {member}, {block}, {size}"
        )
    out = np.empty(size, np.float32) if out is None else out
    if out.shape != (size,) or out.dtype != np.float32:
        raise ValueError(f"out must be float32 [{size}], got {out.dtype} {list(out.shape)}")
    if _kernels is None:
        out[:] = numpy_normal(seed, purpose, generation, member, block, size)
    else:
        _kernels.normal(seed, purpose, generation, member, block, out)
    return out


def numpy_normal(
    seed: int, purpose: int, generation: int, member: int, block: int, size: int
) -> np.ndarray:
    """Return what normal() returns, bit for bit, made by numpy: float32 [size]."""
    chunks = -(-size // (4 * COUNTERS))
    pairs = np.arange(chunks * COUNTERS, dtype=np.uint64).reshape(chunks, 2, COUNTERS // 2)
    index = pairs.transpose(0, 2, 1).reshape(
        chunks, COUNTERS
    )  # a chunk's counters in the order 0, 128, 1, 129, ...
    first = np.uint64(int(purpose) << 24) + index
    words = philox((first, block, member, generation), (int(seed) & 0xFFFFFFFF, int(seed) >> 32))
    words = words.transpose(1, 0, 2).reshape(
        chunks, 2, 2, COUNTERS
    )  # [chunk, pair, radius or angle, counter]
    radius, (cosine, sine) = radii(words[:, :, 0]), directions(words[:, :, 1])
    return np.stack([radius * cosine, radius * sine], axis=2).reshape(-1)[:size]


def philox(counter: Sequence[Any], key: tuple[int, int]) -> np.ndarray:
    """Return the words of Philox 4x32-10 at counters (four numbers or arrays of one shape): uint32 [4, ...]."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, np.uint64) for c in counter))
    for r in range(10):
        k0, k1 = (
            np.uint64((key[0] + r * 0x9E3779B9) & 0xFFFFFFFF),
            np.uint64((key[1] + r * 0xBB67AE85) & 0xFFFFFFFF),
        )
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def numpy_count_in(sums: np.ndarray, observation: np.ndarray) -> None:
    """Add an observation, float32 [o], to sums, float64 [3, o], in place: count, sum, sum of squares."""
    sums[0] += 1.0
    sums[1] += observation
    sums[2] += np.square(observation, dtype=np.float64)


def numpy_finite(numbers: np.ndarray) -> bool:
    """Return whether all numbers, float32 [n], are finite."""
    return bool(np.isfinite(numbers).all())


def radii(words: np.ndarray) -> np.ndarray:
    """Return sqrt(-2 log u) of words [...] read as u in [2**-33, 1], float32 [...]."""
    one = np.float32
    u = words.astype(np.float32) * one(2.0**-32) + one(2.0**-33)
    return np.sqrt(one(-2) * logarithm(u))


def logarithm(u: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of normal float32 numbers in (0, 1]; polynomial of Cephes logf."""
    one = np.float32
    t = u.view(np.int32) - np.int32(0x3F3504F3)
    f = ((t & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - one(1)
    p = np.full_like(f, one(7.0376836292e-2))
    for c in (
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
    ):
        p = p * f + one(c)
    for c in (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1):
        p = p * f + one(c)
    return (t >> np.int32(23)).astype(np.float32) * one(0.693147182) + (
        f + (p * f - one(0.5)) * (f * f)
    )


def directions(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (cosine, sine) of uniform angles from words [...], float32 [...] each; polynomials of Cephes sinf and cosf."""
    one = np.float32
    a = (words & np.uint32(0xFFFFFFFC)).view(np.int32).astype(np.float32) * one(
        math.pi / 4 * 2.0**-31
    )  # [-pi/4, pi/4)
    a2 = a * a
    s = a + a * a2 * (
        one(-1.6666654611e-1) + a2 * (one(8.3321608736e-3) + a2 * one(-1.9515295891e-4))
    )
    tail = one(4.166664568298827e-2) + a2 * (
        one(-1.388731625493765e-3) + a2 * one(2.443315711809948e-5)
    )
    c = one(1) - one(0.5) * a2 + a2 * a2 * tail
    c = np.where(words & 2, -c, c)
    exchanged = (words & 1).astype(bool)
    return np.where(exchanged, s, c), np.where(exchanged, c, s)


def layer_normalised(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return the sums x of a layer, float32 [units], at mean 0 and variance 1, times gain plus shift: torch.nn.LayerNorm's."""
    centred = x - x.mean()
    return (
        centred * (1 / np.sqrt(np.mean(centred * centred) + np.float32(LAYER_NORM_EPSILON))) * gain
        + shift
    )


class NumpyPerceptron:
    """The forward pass of a policy: `sizes` are (observation, hidden ..., action); low and high float32 [action].

    With layer_norm the sums of the hidden layers are normalised before the activation. Where linear is not 0, the inputs of the
    last layer are the last hidden units over linear and then the observation times linear.
    """

    def __init__(
        self, sizes: tuple[int, ...], activation: str, output: str, low: np.ndarray, high: np.ndarray,
        layer_norm: bool = False, linear: float = 0.0,
    ) -> None:  # fmt: skip
        self._sizes, self._activation, self._output, self._layer_norm = (
            sizes,
            activation,
            output,
            layer_norm,
        )
        self._linear = np.float32(linear if len(sizes) > 2 else 0)
        self._units = np.float32(1 / linear if linear else 1)
        self._low, self._high, self._centre, self._half = (
            low,
            high,
            (high + low) / 2,
            (high - low) / 2,
        )
        shapes = [list(shape) for shape in pairwise(sizes)]
        shapes[-1][0] += sizes[0] if self._linear else 0
        normed = 2 * sum(sizes[1:-1]) if layer_norm else 0
        self._theta = np.zeros(sum(o * (i + 1) for i, o in shapes) + normed, np.float32)
        self._layers, start = (
            [],
            0,
        )  # views into theta: matrix [out, in], then bias, gain and shift [vectors, out]
        for layer, (fan_in, fan_out) in enumerate(shapes):
            vectors = 3 if layer_norm and layer < len(sizes) - 2 else 1
            middle, stop = start + fan_out * fan_in, start + fan_out * (fan_in + vectors)
            matrix, rest = (
                self._theta[start:middle].reshape(fan_out, fan_in),
                self._theta[middle:stop].reshape(vectors, fan_out),
            )
            self._layers.append((matrix, *rest))
            start = stop

    def load(self, theta: np.ndarray) -> None:
        """Take over theta, float32 [d]: per layer the matrix [out, in], the bias [out], gain and shift [out] if normalised."""
        if theta.shape != self._theta.shape or theta.dtype != np.float32:
            raise ValueError(
                f"theta must be float32 {list(self._theta.shape)}, got {theta.dtype} {list(theta.shape)}"
            )
        self._theta[:] = theta

    def act(
        self,
        observation: np.ndarray,
        out: np.ndarray,
        scale: bool,
        mean: np.ndarray | None,
        std: np.ndarray | None,
    ) -> None:
        """Write the action [action] to `out`, in the bounds if `scale` else in [-1, 1].

        The observation is float32 or float64 [observation]; it is standardised if mean and std are given.
        """
        if observation.shape != self._sizes[:1] or observation.dtype not in (
            np.float32,
            np.float64,
        ):
            got = f"{observation.dtype} {list(observation.shape)}"
            raise ValueError(
                f"the observation must be float32 or float64 [{self._sizes[0]}], got {got}"
            )
        x = observation.astype(np.float32, copy=False)
        if mean is not None:
            x = np.clip((x - mean) / std, -5.0, 5.0)
        seen = x
        for i, (weight, bias, *normed) in enumerate(self._layers):
            if i:
                x = np.maximum(x, 0.0) if self._activation == "relu" else np.tanh(x)
            if self._linear and i == len(self._layers) - 1:
                x = np.concatenate([self._units * x, self._linear * seen])
            x = np.dot(weight, x)
            x += bias
            if normed:
                x = layer_normalised(x, *normed)
        y = np.tanh(x) if self._output == "tanh" else np.clip(x, -1.0, 1.0)
        out[:] = (
            np.clip(self._centre + self._half * y, self._low, self._high) if scale else y
        )  # rounding may leave the bounds


@dataclass
class NumpyLoop:
    """Policy and physics in turn; what both need is read where the simulator holds it.

    A run calls `begin`, each step `advance`: tuples of (function, *arguments). The first `sees`
    numbers of `views` are observed, clipped to `ranges`; the rest are traced.
    """

    ctrl: np.ndarray  # float64 [action]
    begin: tuple[Any, ...]
    advance: tuple[Any, ...]
    sees: int
    views: tuple[np.ndarray, ...]  # live, float64
    ranges: np.ndarray  # float64 [2, numbers]
    alarms: np.ndarray  # int32 [any]
    steps: int = 0
    within: bool = True

    def run(
        self, network: Any, mean: np.ndarray | None, std: np.ndarray | None,
        observations: np.ndarray, traces: np.ndarray, actions: np.ndarray,
    ) -> None:  # fmt: skip
        """Take n steps, or fewer: `steps`; `within` says whether the last trace was in range.

        observations float32 [n + 1, seen], whose row 0 is acted on first, traces float64
        [n + 1, traced], actions float32 [n, action], which a network writes; None: they are given.
        A trace at an end of its range or beyond ends a run, and so does an observation that is not
        finite, or an alarm. Of no steps, row 0 observes the state as it is.
        """
        self.steps = 0
        self._call(self.begin)
        observed, traces[0] = self._read()
        if not len(actions):
            observations[0] = observed
        for i, action in enumerate(actions.reshape(-1, self.ctrl.size)):
            if network is not None:
                network.act(observations[i], action, True, mean, std)
            self.ctrl[:] = action
            self.steps += 1
            self._call(self.advance)
            observations[i + 1], traced = self._read()
            traces[i + 1] = traced
            low, high = self.ranges[:, self.sees :]
            self.within = all(((low < traced) & (traced < high)).tolist())
            calm = self.within and numpy_finite(observations[i + 1])
            if not calm or any(self.alarms.tolist()):
                return

    def _call(self, calls: tuple[Any, ...]) -> None:
        for function, *arguments in calls:
            function(*arguments)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.concatenate(self.views, axis=None)
        low, high = self.ranges[:, : self.sees]
        return np.minimum(np.maximum(numbers[: self.sees], low), high), numbers[self.sees :]


Loop: Any = NumpyLoop if _kernels is None else getattr(_kernels, "Loop", None)
Perceptron: Any = NumpyPerceptron if _kernels is None else _kernels.Perceptron
count_in: Any = numpy_count_in if _kernels is None else getattr(_kernels, "count_in", None)
finite: Any = numpy_finite if _kernels is None else getattr(_kernels, "finite", None)


def _saturated(perceptron: Any) -> bytes:
    """Return the bits of the greatest action in bounds whose centre and half range add up to more."""
    low, high = np.array([[-0.7], [0.1]], np.float32)
    network, action = perceptron((1, 1), "relu", "clip", low, high), np.zeros(1, np.float32)
    network.load(np.array([0, 2], np.float32))
    network.act(np.zeros(1), action, True, None, None)
    return action.tobytes()


if _kernels is not None and (
    getattr(_kernels, "INTERFACE", 1) != INTERFACE
    or normal(2**63, 2, 3, 4, 5, 7).tobytes() != numpy_normal(2**63, 2, 3, 4, 5, 7).tobytes()
    or _saturated(_kernels.Perceptron) != _saturated(NumpyPerceptron)
):
    raise other_source(_kernels.__file__, "kernels.py")
