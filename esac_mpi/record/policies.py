"""A policy taken home: policy.h5 read back, ready to act. Needs numpy and h5py alone."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config.bounds import PLAIN, is_plain
from esac_mpi.host.errors import Absent, Unreadable
from esac_mpi.host.log import figures
from esac_mpi.host.paths import read_path
from esac_mpi.host.run_directory import POLICY, is_of_run, is_run, is_there
from esac_mpi.operators import policy
from esac_mpi.operators.policy import Layout, Normaliser, round_inward
from esac_mpi.record.files import image, read, replace

NEEDED = {
    "sizes", "activation", "output", "low", "high", "task", "policy", "generation",
    "episodic_return",
}  # fmt: skip
STANDARD = ("normaliser_mean", "normaliser_std")  # by which it standardises, if it does


class Policy(policy.Policy):
    """A policy from a file: `Policy.load(path)`. It acts, and says what it is.

    path: its file. task: the id of the task it was trained on. kind: theta_es, sac for the SAC
    mean, td3, ddpg or ppo for that actor, mean of a distribution, champion or learner of ERL,
    imported for one of `create`. generation: which one made it. episodic_return: mean over the
    episodes that confirmed it. task_kwargs: the keyword arguments with which its task was made.
    horizon: where training truncated its episodes [steps]; 0 at the task's own limit, and in older
    files. versions: what trained it. discrete: whether its task's actions are choices; None in
    older files.
    """

    def __init__(self, path: Path, theta: np.ndarray, about: Mapping[str, Any]) -> None:
        sizes = tuple(int(size) for size in about["sizes"])
        layer_norm, linear = bool(about.get("layer_norm")), float(about.get("linear", 0.0))
        layout = Layout(sizes, layer_norm, linear)
        layout.views(theta)  # raises ValueError for another size
        found = [np.asarray(about[name], np.float32) for name in STANDARD if name in about]
        standard = [part.reshape(sizes[0]) for part in found]  # raises ValueError for others
        normaliser = Normaliser(*standard) if standard else None
        bounds = about["low"], about["high"]
        super().__init__(layout, about["activation"], about["output"], *bounds, normaliser)
        self.set(theta)
        self.task_kwargs: dict[str, Any] = json.loads(about.get("task_kwargs", "{}"))
        self.horizon = int(about.get("horizon", 0))
        self.path, self.task, self.kind = path, str(about["task"]), str(about["policy"])
        self.generation = int(about["generation"])
        self.episodic_return = float(about["episodic_return"])
        self.versions = str(about.get("versions", ""))
        self.discrete = bool(about["discrete"]) if "discrete" in about else None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        layers: Sequence[np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        task: str,
        activation: str = "relu",
        output: str = "tanh",
        normaliser: tuple[np.ndarray, np.ndarray] | None = None,
        task_kwargs: Mapping[str, Any] | None = None,
    ) -> "Policy":
        """Write weights from elsewhere as a policy.h5, to begin from or to play; return the policy.

        layers: weight [out, in] and bias [out] of each layer, input first. low, high: bounds of the
        task's actions [action]. task: its id. activation, output: as in [policy]. normaliser: mean
        and standard deviation [observation] of what the network sees standardised. task_kwargs: as
        [task.kwargs]. Raises ValueError, also for a file of a run, and Unsaved.
        """
        path = read_path(path, ValueError)
        if is_of_run(path):
            raise ValueError(f"{path}: a file of a run, which stays; choose another")
        if not isinstance(task, str) or not task:
            raise ValueError(f"task must be the id of a task, got {task!r}")
        shapes = [np.atleast_1d(layer).shape for layer in layers]
        sizes = [*(weight[-1] for weight in shapes[:1]), *(bias[0] for bias in shapes[1::2])]
        wanted = [shape for i, o in pairwise(sizes) for shape in ((o, i), (o,))]
        if not layers or shapes != wanted:
            got = " ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"layers must be weight [out, in] and bias [out] of each; got {got}")
        ranges = {"low": _vector(low, sizes[-1], "low"), "high": _vector(high, sizes[-1], "high")}
        if not (ranges["low"] < ranges["high"]).all():
            raise ValueError("low must be below high")
        ranges = dict(zip(ranges, round_inward(low, high), strict=True))
        if not is_plain(kwargs := dict(task_kwargs or {})):
            raise ValueError(f"task_kwargs must be {PLAIN}")
        about: dict[str, Any] = {
            "sizes": sizes,
            "activation": activation,
            "output": output,
            "task": task,
            "task_kwargs": json.dumps(kwargs),
        }
        about |= {**ranges, "policy": "imported", "generation": 0, "episodic_return": math.nan}
        if normaliser is not None:
            mean, std = (_vector(part, sizes[0], "a normaliser") for part in normaliser)
            if not (std > 0).all():
                raise ValueError("a normaliser's standard deviations must be above 0")
            about |= zip(STANDARD, (mean, std), strict=True)
        theta = np.concatenate([np.ravel(layer) for layer in layers])
        theta = _vector(theta, theta.size, "layers")
        policy = cls(path, theta, about)
        arrays = {name: about.pop(name) for name in STANDARD if name in about}
        replace(policy.path, image({"theta": theta, **arrays}, about).parts)
        return policy

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Policy":
        """Read a policy.h5, or the one in a run directory. Raises Unreadable, Absent for none."""
        path = read_path(path, Unreadable)
        try:
            if path.is_dir():
                why = "a run writes one at its first evaluation" if is_run(path) else "it is no run"
                path = path / POLICY
                if not path.exists():
                    raise Absent(f"{path.parent}: no {POLICY} in it; {why}")
            elif not is_there(path):
                raise Absent(f"{path}: No such file or directory")
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from error
        arrays, about = read(path)
        if missing := sorted(NEEDED - about.keys() | {"theta"} - arrays.keys()):
            lacks = ", ".join(missing)
            raise Unreadable(f"{path}: a file of esac_mpi, but not a policy: it has no {lacks}")
        # the normaliser: once attributes
        about |= {name: array for name, array in arrays.items() if name != "theta"}
        try:
            return cls(path, arrays["theta"], about)
        except (TypeError, ValueError, IndexError) as error:
            raise Unreadable(f"{path}: not a policy that fits together: {error}") from error

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Act: float32 [action] in the task's bounds, or [m, action] for observations [m, o].

        A row gets the bits that it gets alone. Raises ValueError for anything but float32 or
        float64 [observation] or [m, observation].
        """
        kind, size = type(observation).__name__, self.layout.sizes[0]
        try:
            observation = np.asarray(observation)
        except ValueError:  # arrays of several shapes
            observation = np.empty(0, object)
        fits = observation.ndim in (1, 2) and observation.shape[-1] == size
        if not fits or observation.dtype not in (np.float32, np.float64):
            numbers = observation.dtype != object
            got = f"{observation.dtype} {list(observation.shape)}" if numbers else kind
            raise ValueError(
                f"the observation must be float32 or float64 [{size}], or [m, {size}] for many; "
                f"got {got}; gymnasium.spaces.flatten(env.observation_space, observation) "
                "flattens a task's own"
            )
        if observation.ndim == 1:
            return super().__call__(observation)
        actions = np.zeros((len(observation), self.layout.sizes[-1]), np.float32)
        for action, row in zip(actions, observation, strict=True):
            action[:] = super().__call__(row)
        return actions

    def __repr__(self) -> str:
        forms = [form for form in ("layer_norm", "linear") if getattr(self.layout, form)]
        sizes = "-".join(map(str, self.layout.sizes))
        network = " ".join([sizes, *forms, self.activation, self.output])
        made = f"{self.kind} of generation {self.generation}"
        return f"Policy({self.task}, return {figures(self.episodic_return)}, {made}, {network})"


def _vector(values: np.ndarray, size: int, name: str) -> np.ndarray:
    """Return finite numbers as float32 [size]. Raises ValueError."""
    found = np.asarray(values, np.float32)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite numbers [{size}], got {list(found.shape)}")
    return found
