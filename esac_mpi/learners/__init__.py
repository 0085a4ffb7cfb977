"""Gradient learners, one file per algorithm. Torch lives in them: this module imports it only when a learner is made."""

import gc
import sys
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Start:
    """What a learner begins with: all that any of them takes, of which each says what it needs."""

    config: Config
    layout: Layout  # of the policy
    theta: np.ndarray  # float32 [d] the initial actor
    reserve: int = 0  # transitions that its phases may add while its state is held
    discrete: bool = False  # whether the task's actions are choices


LEARNERS = {"sac": "SAC", "td3": "TD3", "ddpg": "DDPG", "erl": "ERL", "ppo": "PPO"}  # file here -> its class
EXTRAS = {"ppo": "baselines"}  # learner -> the extra of setup.cfg that brings its library


def load(name: str) -> ModuleType:
    """Return the module of the learner `name`. Raises NotInstalled."""
    first = "torch" not in sys.modules
    if first:
        gc.disable()  # what torch makes stays: to look through it for garbage, now and later, is a third of what it costs
    try:
        return import_module(f"esac_mpi.learners.{name}")
    except ModuleNotFoundError as error:
        if name not in EXTRAS:
            raise
        needs = f"algorithm = {name} needs {error.name}, which is not installed"
        raise NotInstalled(f"{needs}: pip install 'esac_mpi[{EXTRAS[name]}]'") from error
    finally:
        if first:
            gc.freeze()
            gc.enable()


def make(name: str, config: Config, layout: Layout, theta: np.ndarray, reserve: int = 0, discrete: bool = False) -> Any:
    """Return the learner `name`, a key of LEARNERS, that begins with these (see Start). Raises NotInstalled."""
    return getattr(load(name), LEARNERS[name])(Start(config, layout, theta, reserve, discrete))
