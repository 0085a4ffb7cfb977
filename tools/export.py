"""Export a policy to other software, with its action bounds and normaliser inside, and check that it acts the same.

    python tools/export.py POLICY|RUN --format torchscript|onnx|npz|sb3 [--out FILE]

Every file is read back and asked for the actions of 1,000 observations, of a size from 0.1 to 10. Where one differs from ours
by more than TOLERANCE half ranges of the action (float32 sums in another order: 1e-5), the file is removed and the tool fails.
Cost: 1 s for npz, 5 to 15 s for the others, most of it imports.

torchscript   float32 [o] or [m, o] -> float32 [a] or [m, a] in the task's bounds; needs torch
onnx          "observation" float32 [m, o] -> "action" float32 [m, a]; needs torch, onnx and onnxscript
npz           the arrays; docs/policies.md has the formula; needs numpy
sb3           for stable_baselines3.SAC.load; sampled actions are the deterministic ones (standard deviation 2e-9, the least
              there), critics are untrained. Its actor squashes by tanh and cannot standardise: other policies are refused
"""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from esac_mpi.policies.torch_modules import module, sac

from esac_mpi import Policy
from esac_mpi.record import Unreadable

TOLERANCE = 1e-4  # largest difference of an action, in half ranges of the action
OBSERVATIONS = 1000
Actor = Callable[[np.ndarray], np.ndarray]  # float32 [m, o] -> [m, a]


class Unexportable(Exception):
    """A format has no place for something that the policy does."""


def npz(policy: Any, out: Path) -> Actor:
    """Write arrays; return how they act, in plain numpy."""
    views = policy.layout.views(policy.theta)
    arrays = {f"{kind}{layer}": views[2 * layer + k] for layer in range(len(views) // 2) for k, kind in enumerate("Wb")}
    if policy.normaliser is not None:
        arrays |= {"mean": policy.normaliser.mean, "std": policy.normaliser.std}
    arrays |= {name: np.array(getattr(policy, name)) for name in ("low", "high", "activation", "output", "task")}
    with out.open("wb") as file:  # savez appends a suffix to a name
        np.savez(file, **arrays)
    p = dict(np.load(out))
    hidden: Actor = np.tanh if p["activation"] == "tanh" else lambda x: np.maximum(x, 0)
    squash: Actor = np.tanh if p["output"] == "tanh" else lambda x: np.clip(x, -1, 1)

    def act(x: np.ndarray) -> np.ndarray:
        if "mean" in p:
            x = np.clip((x - p["mean"]) / p["std"], -5, 5)
        for layer in range(len(views) // 2):
            x = (hidden(x) if layer else x) @ p[f"W{layer}"].T + p[f"b{layer}"]
        return np.clip((p["high"] + p["low"]) / 2 + (p["high"] - p["low"]) / 2 * squash(x), p["low"], p["high"])

    return act


def torchscript(policy: Any, out: Path) -> Actor:
    """Write a traced module; return how it acts."""
    import torch

    traced = torch.jit.trace(module(policy), torch.zeros(1, policy.layout.sizes[0]))
    torch.jit.save(traced, out)
    read = torch.jit.load(out)
    return lambda x: read(torch.from_numpy(x)).numpy()


def onnx(policy: Any, out: Path) -> Actor:
    """Write an ONNX graph; return how onnx's own reference evaluator runs it."""
    import torch
    from onnx.reference import ReferenceEvaluator

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        module(policy), (torch.zeros(2, policy.layout.sizes[0]),), out, input_names=["observation"], output_names=["action"],
        dynamic_shapes=({0: torch.export.Dim("m")},), dynamo=True, external_data=False, verbose=False,
    )  # fmt: skip
    read: Any = ReferenceEvaluator(str(out))
    return lambda x: read.run(None, {"observation": x})[0]


def sb3(policy: Any, out: Path) -> Actor:
    """Write a stable-baselines3 SAC; return how it acts. Raises Unexportable."""
    if policy.output != "tanh" or policy.normaliser is not None:
        what = "clips its output" if policy.output != "tanh" else "standardises its observations"
        raise Unexportable(
            f"{policy.path}: this policy {what}, which stable-baselines3's SAC does not: take torchscript, onnx or npz"
        )
    from stable_baselines3 import SAC

    sac(policy).save(out)
    read = SAC.load(out, device="cpu")
    return lambda x: read.predict(x, deterministic=True)[0]


def difference(policy: Any, act: Actor) -> float:
    """Return the largest difference of an action from ours over random observations.

    In half ranges of the action, or in the largest of ours where all are smaller, as PPO's outputs in discrete tasks are.
    """
    random = np.random.default_rng(0)
    x = random.standard_normal((OBSERVATIONS, policy.layout.sizes[0])) * 10.0 ** random.uniform(-1, 1, (OBSERVATIONS, 1))
    if policy.normaliser is not None:
        x = policy.normaliser.mean + policy.normaliser.std * x
    x = x.astype(np.float32)
    ours, centre, half = policy(x), (policy.high + policy.low) / 2, (policy.high - policy.low) / 2
    largest = float((np.abs(ours - centre) / half).max())
    return float((np.abs(act(x) - ours) / half).max() / (min(1.0, largest) or 1.0))


FORMATS: dict[str, tuple[Callable[[Any, Path], Actor], str, str]] = {  # what writes it, suffix, what it needs
    "torchscript": (torchscript, ".pt", "torch"),
    "onnx": (onnx, ".onnx", "'esac_mpi[export]', or torch onnx onnxscript"),
    "npz": (npz, ".npz", ""),
    "sb3": (sb3, ".zip", "'esac_mpi[baselines]', or stable-baselines3"),
}


def main(argv: list[str]) -> int:
    """Write the file and print its path; return 1 if it acts otherwise, 2 if it cannot be written, 65 for no policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path, metavar="POLICY|RUN", help="policy.h5 or run directory")
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--out", type=Path, help="file; default: policy.pt, .onnx, .npz or .zip beside policy.h5")
    options = parser.parse_args(argv)
    write, suffix, needs = FORMATS[options.format]
    warnings.simplefilter("ignore")  # torch's, about TorchScript's age
    try:
        policy = Policy.load(options.policy)
        out = options.out or policy.path.with_suffix(suffix)
        if not os.access(out.parent, os.W_OK):
            raise Unexportable(f"{out.parent}: not a directory that can be written; choose another --out")
        found = difference(policy, write(policy, out))
    except ImportError as error:
        print(f"--format {options.format} needs {error.name}: pip install {needs}", file=sys.stderr)
        return 2
    except (Unreadable, Unexportable, OSError) as error:
        print(error, file=sys.stderr)
        return 65 if isinstance(error, Unreadable) else 2
    limit = f"{found:.1e} half ranges of the action on {OBSERVATIONS:,} observations (allowed: {TOLERANCE:.0e}, float32)"
    if not found <= TOLERANCE:
        out.unlink()
        print(f"{out} removed: it acts otherwise, by {limit}", file=sys.stderr)
        return 1
    print(f"{out}\nlargest difference {limit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
