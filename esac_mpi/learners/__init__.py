"""Gradient learners, one file per algorithm. Torch lives in them: this module imports it only when a learner is made."""

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from esac_mpi.config import Config
from esac_mpi.policy import Layout


class NoDevice(Exception):
    """The device that the configuration names is not there."""


class NotInstalled(Exception):
    """The library of a learner is not installed."""


class LearnerNotFinite(Exception):
    """A learner's parameters, losses or actions are no longer finite: it has nothing more to give."""


LEARNERS = {"sac": "SAC", "td3": "TD3", "ddpg": "DDPG", "ppo": "PPO"}  # file here -> its class
EXTRAS = {"ppo": "baselines"}  # learner -> the extra of setup.cfg that brings its library


def load(name: str) -> ModuleType:
    """Return the module of the learner `name`. Raises NotInstalled."""
    try:
        return import_module(f"esac_mpi.learners.{name}")
    except ModuleNotFoundError as error:
        if name not in EXTRAS:
            raise
        needs = f"algorithm = {name} needs {error.name}, which is not installed"
        raise NotInstalled(f"{needs}: pip install 'esac_mpi[{EXTRAS[name]}]'") from error


def make(name: str, config: Config, layout: Layout, theta: np.ndarray, reserve: int = 0, **more: Any) -> Any:
    """Return the learner `name`, a key of LEARNERS, with the initial actor theta, float32 [d].

    While its state is held, its phases may add `reserve` transitions. more: what its class alone wants to know.
    Raises NotInstalled.
    """
    return getattr(load(name), LEARNERS[name])(config, layout, theta, reserve, **more)
