"""Gradient learners, one file per algorithm. Torch lives in them: this module imports it only when a learner is made."""

from importlib import import_module
from typing import Any

import numpy as np

from esac_mpi.config import Config
from esac_mpi.policy import Layout


class NoDevice(Exception):
    """The device that the configuration names is not there."""


class LearnerNotFinite(Exception):
    """A learner's parameters, losses or actions are no longer finite: it has nothing more to give."""


LEARNERS = {"sac": "SAC", "td3": "TD3", "ddpg": "DDPG"}  # file here -> its class


def make(name: str, config: Config, layout: Layout, theta: np.ndarray, reserve: int = 0) -> Any:
    """Return the learner `name`, a key of LEARNERS, with the initial actor theta, float32 [d].

    While its state is held, its phases may add `reserve` transitions.
    """
    return getattr(import_module(f"esac_mpi.learners.{name}"), LEARNERS[name])(config, layout, theta, reserve)
