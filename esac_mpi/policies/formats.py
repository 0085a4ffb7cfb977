"""A policy in the formats of other software, and how far what was read back acts from ours."""

import logging
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.envs import half_range
from esac_mpi.operators.kernels import LAYER_NORM_EPSILON

TOLERANCE = 1e-4  # of the difference of an action, in half ranges of the action
ROUNDING = 10  # times what float32 costs the policy itself are tolerated, too
OBSERVATIONS = 1000
Actor = Callable[[np.ndarray], np.ndarray]  # float32 [m, o] -> [m, a]


def arrays_of(policy: Any) -> dict[str, Any]:
    """Return the arrays of an npz."""
    layers = policy.layout.layers(policy.theta)
    layers[-1] = layers[-1]._replace(weight=policy.layout.unscaled(layers[-1].weight))
    arrays = {
        f"{name}{i}": array
        for i, layer in enumerate(layers)
        for name, array in zip(("W", "b", "gain", "shift"), layer, strict=True)
        if array is not None
    }
    if policy.normaliser is not None:
        arrays |= {"mean": policy.normaliser.mean, "std": policy.normaliser.std}
    names = ("low", "high", "activation", "output", "task")
    return arrays | {name: np.array(getattr(policy, name)) for name in names}


def actor(p: dict[str, np.ndarray]) -> Actor:
    """Return how the arrays of an npz act, in plain numpy, as exactly as their observations are."""
    hidden: Actor = np.tanh if p["activation"] == "tanh" else lambda x: np.maximum(x, 0)
    squash: Actor = np.tanh if p["output"] == "tanh" else lambda x: np.clip(x, -1, 1)

    def act(x: np.ndarray) -> np.ndarray:
        if "mean" in p:
            x = np.clip((x - p["mean"]) / p["std"], -5, 5)
        seen = x
        for i in range(sum(name[0] == "W" for name in p)):
            x = hidden(x) if i else x
            if x.shape[-1] < p[f"W{i}"].shape[1]:  # the linear path
                x = np.concatenate([x, seen], -1)
            x = x @ p[f"W{i}"].T + p[f"b{i}"]
            if f"gain{i}" in p:
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
                x = x * p[f"gain{i}"] + p[f"shift{i}"]
        low, high = p["low"], p["high"]
        return np.clip((high + low) / 2 + (high - low) / 2 * squash(x), low, high)

    return act


def npz(policy: Any, out: Path) -> Actor:
    """Write arrays; return how they act."""
    with out.open("wb") as file:  # savez appends a suffix to a name
        np.savez(file, **arrays_of(policy))
    return actor(dict(np.load(out)))


def module(policy: Any) -> Any:
    """Return the policy as a torch module, all of its constants inside."""
    import torch
    from torch import nn

    views, normaliser = policy.layout.views(policy.theta), policy.normaliser
    views[-2] = policy.layout.unscaled(views[-2])
    parts: list[Any] = []
    for layer in policy.layout.grouped(views):
        parts.append(nn.Linear(layer.weight.shape[1], layer.weight.shape[0]))
        if layer.gain is not None:
            parts.append(nn.LayerNorm(len(layer.gain), eps=LAYER_NORM_EPSILON))
        parts.append(nn.ReLU() if policy.activation == "relu" else nn.Tanh())
    parts[-1] = nn.Tanh() if policy.output == "tanh" else nn.Hardtanh()  # which clips to [-1, 1]
    low, high = policy.low, policy.high
    constants = {"low": low, "high": high, "centre": (high + low) / 2, "span": (high - low) / 2}
    if normaliser is not None:
        constants |= {"mean": normaliser.mean, "std": normaliser.std}

    class Actor(nn.Module):
        low: Any
        high: Any

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*parts)
            arrays = zip(self.layers.state_dict(), map(torch.tensor, views), strict=True)
            self.layers.load_state_dict(dict(arrays))
            for name, values in constants.items():
                self.register_buffer(name, torch.tensor(values))

        def forward(self, x: Any) -> Any:
            if normaliser is not None:
                x = torch.clamp((x - self.mean) / self.std, -5.0, 5.0)
            if policy.layout.path:
                x = torch.cat([self.layers[:-2](x), x], -1)
            y = self.layers[-2:](x) if policy.layout.path else self.layers(x)
            return torch.clamp(self.centre + self.span * y, self.low, self.high)

    return Actor().requires_grad_(False).eval()


def torchscript(policy: Any, out: Path) -> Actor:
    """Write a traced module; return how it acts."""
    import torch

    traced = torch.jit.trace(module(policy), torch.zeros(1, policy.layout.sizes[0]))
    content = BytesIO()  # what torch itself cannot write is a RuntimeError
    torch.jit.save(traced, content)
    out.write_bytes(content.getvalue())
    read = torch.jit.load(out)
    return lambda x: read(torch.from_numpy(x)).numpy()


def onnx(policy: Any, out: Path) -> Actor:
    """Write an ONNX graph; return how onnx's own reference evaluator runs it."""
    from onnx.reference import ReferenceEvaluator  # isort: split

    # which torch needs, and both may be missing: before torch, which takes seconds
    import onnxscript  # noqa: F401
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        module(policy),
        (torch.zeros(2, policy.layout.sizes[0]),),
        out,
        input_names=["observation"],
        output_names=["action"],
        dynamic_shapes=({0: torch.export.Dim("m")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    read: Any = ReferenceEvaluator(str(out))
    return lambda x: read.run(None, {"observation": x})[0]


def difference(policy: Any, act: Actor) -> float:
    """Return the largest difference of an action from ours over random observations.

    In half ranges of the action, or in the largest of ours where all are smaller, as PPO's outputs
    in discrete tasks are.
    """
    random = np.random.default_rng(0)
    x = random.standard_normal((OBSERVATIONS, policy.layout.sizes[0]))
    x = x * 10.0 ** random.uniform(-1, 1, (OBSERVATIONS, 1))
    if policy.normaliser is not None:
        x = policy.normaliser.mean + policy.normaliser.std * x
    x = x.astype(np.float32)
    ours, half = policy(x), half_range(policy.low, policy.high)
    centre = (policy.high + policy.low) / 2
    largest = float((np.abs(ours - centre) / half).max())
    return float((np.abs(act(x) - ours) / half).max() / (min(1.0, largest) or 1.0))


def allowed(policy: Any) -> float:
    """Return the difference that is tolerated: sums in another order are more off if larger."""
    exact = actor(arrays_of(policy))
    return max(TOLERANCE, ROUNDING * difference(policy, lambda x: exact(x.astype(np.float64))))


# what writes it, and the suffix of its file
FORMATS: dict[str, tuple[Callable[[Any, Path], Actor], str]] = {
    "torchscript": (torchscript, ".pt"),
    "onnx": (onnx, ".onnx"),
    "npz": (npz, ".npz"),
}
