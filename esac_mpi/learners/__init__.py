"""Gradient learners, a file an algorithm; torch lives in them, and is imported when one is made.

May import: host, config, operators, envs, record, comm, play.
Begin with: sac.py and sac_update.py; base.py has what they share.
"""

import gc
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from esac_mpi.config import Config
from esac_mpi.host.errors import INSTALL
from esac_mpi.host.stop import EndsRun
from esac_mpi.learners.cpu import NoDevice, prepare, resolve_auto
from esac_mpi.operators.policy import Layout

__all__ = ["NoDevice", "prepare", "resolve_auto"]  # from cpu.py


class LearnerNotFinite(EndsRun):
    """A learner's parameters, losses or actions are no longer finite: it cannot go on."""


@dataclass(frozen=True)
class Start:
    """What a learner begins with: all that any of them takes, of which each says what it needs."""

    config: Config
    layout: Layout  # of the policy
    theta: np.ndarray  # float32 [d] the initial actor
    reserve: int = 0  # transitions that its phases may add while its state is held
    discrete: bool = False  # whether the task's actions are choices
    rows: np.ndarray | None = None  # room for the replay that ranks share


# files here -> their classes
LEARNERS = {"sac": "SAC", "td3": "TD3", "ddpg": "DDPG", "erl": "ERL", "cem": "CEM", "ppo": "PPO"}
OPERATORS = {"offspring": "GeneticOperators", "individuals": "Individuals"}
EXTRAS = {"ppo": "baselines"}  # learner -> the extra of setup.cfg that brings its library


def make_operators(name: str, config: Config, layout: Layout) -> Any:
    """Return the operators `name`, a key of OPERATORS; layout: of the policy."""
    if config.learner.kernels == "compiled":  # SAC's alone: beside it torch makes these
        config = replace(config, learner=replace(config.learner, kernels="torch"))
    config = prepare(config, name)
    return getattr(load(name), OPERATORS[name])(config, layout)


def load(name: str) -> ModuleType:
    """Return the module of the learner `name`. Raises ImportError where its library is missing."""
    first = "torch" not in sys.modules
    if first:
        # what torch makes stays: collecting garbage in it, now and later, is a third of its cost
        gc.disable()
    try:
        return import_module(f"esac_mpi.learners.{name}")
    except ModuleNotFoundError as error:
        if name not in EXTRAS:
            raise
        needs = f"algorithm = {name} needs {error.name}, which is not installed"
        raise ImportError(f"{needs}: {INSTALL} '.[{EXTRAS[name]}]'") from error
    finally:
        if first:
            gc.freeze()
            gc.enable()


def clear() -> None:
    """Give back what learners that are no more have of memory, a device's too."""
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.empty_cache()


def make(name: str, *start: Any, **more: Any) -> Any:
    """Make the learner `name`, a key of LEARNERS, from `start` (see Start).

    Raises ImportError, NoDevice.
    """
    config = prepare(start[0], name)
    kind = getattr(load(name), LEARNERS[name])
    from torch.cuda import OutOfMemoryError

    from esac_mpi.learners import gpu

    try:
        return kind(Start(config, *start[1:], **more))
    except OutOfMemoryError as error:
        raise gpu.no_room(error) from error
