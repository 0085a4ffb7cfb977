"""Policy files as runs leave them."""

import os
from pathlib import Path

import numpy as np
from conftest import environment
from run_files import publish

from esac_mpi import envs

#                  W1 [2, 2]             b1 [2]      W2 [1, 2]  b2
THETA = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 0.5, -0.25, 0.125], np.float32)
#                  W1 [2, 2]             b1 [2]      gain [2]  shift [2]  W2 [1, 2]  b2
NORMED = np.array(
    [1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 2.0, 0.5, 3.0, -1.0, 0.5, -0.25, 0.125], np.float32
)
#                  W1 [2, 2]             b1 [2]      W2 [1, 2 units and 2 numbers]  b2
LINEAR = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 0.5, -0.25, 0.125, -0.5, 0.125], np.float32)
NORMALISER = {
    "normaliser_mean": np.array([1.0, 0.0], np.float32),
    "normaliser_std": np.array([2.0, 0.001], np.float32),
}


def save(
    path: Path, theta=THETA, sizes=(2, 2, 1), task="Nowhere-v0", bounds=(-1.0, 3.0), **about
) -> Path:
    low, high = (np.full(sizes[-1], bound, np.float32) for bound in bounds)
    made = {"policy": "sac", "generation": 7, "episodic_return": 12.5, "versions": "numpy 2"}
    known = {"sizes": np.array(sizes), "task": task, "low": low, "high": high}
    form = {"activation": "relu", "output": "tanh"}
    publish(path, {"theta": theta}, {**made, **known, **form, **about})
    return path


def constant(path: Path, task: str, actions, low=-1.0, high=1.0) -> Path:
    """Write a policy that takes the same action, in [-1, 1], whatever it observes."""
    size = envs.make(task).observation_size
    theta = np.concatenate([np.zeros(size * len(actions)), actions]).astype(np.float32)
    return save(path, theta, (size, len(actions)), task, (low, high), output="clip")


def hidden(folder: Path, *modules: str) -> str:
    """Return a PYTHONPATH on which these modules cannot be imported."""
    for name in modules:
        (folder / name).mkdir(parents=True)
        text = f"raise ModuleNotFoundError('No module named {name}', name='{name}')"
        (folder / name / "__init__.py").write_text(text)
    return f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"
