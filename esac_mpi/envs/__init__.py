"""Environments: `make(id)` gives any task the same small interface; an adapter file per library.

May import: host, config, operators.
Begin with: `make` below, then gymnasium_env.py.

An episode is a function of its seed and the actions alone: it equals itself, bit by bit, in a fresh
environment and after ten other episodes. The adapters see to that where a library does not.
"""

import difflib
import logging
import math
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Protocol

import numpy as np

from esac_mpi.config.fields import as_text
from esac_mpi.host import process_state
from esac_mpi.host.errors import WrongUsage, describe_error
from esac_mpi.host.invocation import directory
from esac_mpi.host.stop import EndsRun, GivenUp
from esac_mpi.operators import kernels

OWN = ("CyclicMDP-v0", "CyclicMDPRepo-v0")  # tasks of ours, in no registry
NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
OURS = {  # keyword argument of a task: why it is not for a user to set
    "id": "task.id says it",
    "disable_env_checker": "the start has a check of its own (docs/reference/tasks.md)",
    "render_mode": "nothing is drawn in training; esac-mpi render draws",
    "random": "seeds are addressed by episode",
}
RETURNED = (
    "Gymnasium's reset returns observation and info, its step observation, reward, "
    "terminated, truncated and info"
)
LARGEST = float(np.finfo(np.float32).max)  # reward that a replay can hold
GL, OFF = "MUJOCO_GL", "disabled"  # by what MuJoCo draws, and that it does not
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


class TaskError(WrongUsage):
    """Refuse a task that is unknown or cannot be trained on: why, and the nearest valid id."""


class EditedTask(TaskError):
    """Refuse a task whose module was edited after its import: what is on disk would not run."""


def is_of(value: object, module: str, name: str) -> bool:
    """Whether a value is of a class, or a subclass, without importing that class."""
    return any((kind.__module__, kind.__name__) == (module, name) for kind in type(value).__mro__)


class UnstablePhysics(Exception):
    """A step that the physics could not make, or that gave an observation which is not finite."""


@contextmanager
def translate_errors(id: str, what: str) -> Iterator[None]:
    """Turn what a task's own code raises into a TaskError: the error, and in which line.

    what: is done with the task, after "cannot be".
    """
    try:
        yield
    except (TaskError, UnstablePhysics, KeyboardInterrupt, GivenUp):
        raise
    except EndsRun as error:  # its code ends the program
        raise TaskError(str(error)) from error
    except BaseException as error:
        said, where = describe_error(error)
        hint = f"; {RETURNED}" if "unpack" in said and "/gymnasium/envs/" not in where else ""
        if isinstance(error, FileNotFoundError) and not os.path.isabs(str(error.filename or "/")):
            place = f"{directory()}, to which a task is brought back"
            hint = f"; looked for in {place}: name the file in full"
        raise TaskError(f"{id} cannot be {what}: {said} ({where}){hint}") from error


@contextmanager
def refuse_errors(id: str, what: str = "played, so nothing was created") -> Iterator[None]:
    """Turn what a task's code raises, and no other code, into a TaskError, where no run goes on.

    what: as of `translate_errors`.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        here = os.path.dirname(__file__)
        frames = traceback.extract_tb(error.__traceback__)[1:]  # without this one
        if not any(os.path.dirname(frame.filename) == here for frame in frames):
            raise
        with translate_errors(id, what):
            raise


def check_finite(env: Any, what: str, numbers: np.ndarray) -> np.ndarray:
    """Return an observation, or an action, float32 [n], whose numbers are all finite.

    Raises UnstablePhysics for another one; `env.not_finite` then says which number it was.
    """
    if not kernels.finite(numbers):
        index = int(np.flatnonzero(~np.isfinite(numbers))[0])
        env.not_finite = f"{what}[{index}] is {numbers[index]}"
        raise UnstablePhysics(f"{env.id}: {env.not_finite}")
    return numbers


class Env(Protocol):
    """One environment, one episode at a time."""

    id: str
    observation_size: int
    action_size: int
    low: np.ndarray  # float32 [action] bounds of the task
    high: np.ndarray  # float32 [action]
    horizon: int  # steps after which an episode is truncated
    # the last reward, observation or action that was not finite, by its index; empty = all were
    not_finite: str

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode that `seed` names; return its first observation, float32 [observation].

        Raises UnstablePhysics, also in place of an observation that is not finite.
        """

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action, float32 [action]; return observation, reward, terminated, truncated.

        A time limit truncates and never terminates. Raises UnstablePhysics as `reset` does.
        """

    @property
    def unstable(self) -> bool:
        """Whether the simulator warned of a bad state or control since the reset."""


def half_range(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Halve the range of an action, the unit of its distance from the middle; 1 if empty."""
    half = (high - low) / 2
    return np.where(half > 0, half, half.dtype.type(1))


def transition(
    env: Env, action: np.ndarray, bounded: bool = True
) -> tuple[np.ndarray, float, bool, bool] | None:
    """Take an action in [-1, 1], scaled to the task's bounds; None if it cannot be learned from.

    bounded: whether rounding may not leave the bounds; else the task gets the action as it is,
    wherever noise has taken it.
    """
    scaled = (env.high + env.low) / 2 + (env.high - env.low) / 2 * action
    try:
        answer = env.step(np.minimum(np.maximum(scaled, env.low), env.high) if bounded else scaled)
    except UnstablePhysics:
        return None
    observation, reward, *_ = answer
    sound = abs(reward) <= LARGEST and kernels.finite(observation) and not env.unstable
    return answer if sound else None


def make(id: str, horizon: int = 0, kwargs: Mapping[str, Any] = NO_KWARGS) -> Env:
    """Make a task: a Gymnasium id, module:EnvId, dm_control/<domain>-<task>-v0 or a Cyclic MDP.

    `horizon` > 0 truncates episodes there, if that is sooner than the task's own limit [steps].
    kwargs: of gymnasium.make, or of the suite's function that makes a dm_control task. What its
    code changes of the process is put back. Raises TaskError.
    """
    if id in OWN:
        if kwargs:
            raise TaskError(f"{id} takes no task.kwargs, and {', '.join(kwargs)} was set.")
        from esac_mpi.envs.cyclic_mdp import RULES, CyclicMDP

        return CyclicMDP(id, task_horizon(id, RULES[id][1], horizon))
    for name in kwargs.keys() & OURS.keys():
        raise TaskError(f"{id}: task.kwargs.{name} cannot be set: {OURS[name]}.")
    adapter = _adapter(id)
    how = f"made with task.kwargs = {as_text(kwargs)}" if kwargs else "made"
    with translate_errors(id, how), process_state.preserve_state():
        return with_gl_or_not(lambda: adapter(id, horizon, kwargs))


def _adapter(id: str) -> Callable[..., Env]:
    """Import a task's adapter; without MUJOCO_GL, dm_control would look for a display."""
    if not id.startswith("dm_control/"):
        return with_gl_or_not(lambda: import_module("esac_mpi.envs.gymnasium_env").GymnasiumEnv)
    with mujoco_gl(os.environ.get(GL) or OFF):
        return with_gl_or_not(lambda: import_module("esac_mpi.envs.dm_control_env").DMControlEnv)


def with_gl_or_not(make: Callable[[], Any]) -> Any:
    """Make or import by MUJOCO_GL; where that fails, without drawing."""
    asked = os.environ.get(GL) or OFF
    # GLFW aborts the process where it has no display
    if asked.lower() != "glfw" or any(map(os.environ.get, DISPLAYS)):
        try:
            return make()
        except Exception:
            if asked == OFF:
                raise
    with mujoco_gl(OFF):
        return make()


@contextmanager
def mujoco_gl(by: str) -> Iterator[None]:
    """Set MUJOCO_GL inside the context."""
    chosen = os.environ.get(GL)
    os.environ[GL] = by
    try:
        yield
    finally:
        os.environ.pop(GL) if chosen is None else os.environ.update({GL: chosen})


def is_discrete(env: Env) -> bool:
    """Whether an action is a choice, by the index of its largest number, the first of equals.

    Such a task has bounds of -1 and 1, so that a network with one output a choice acts in it like
    in any other (policy.output = tanh keeps apart what clip makes equal beyond 1).
    """
    return bool(getattr(env, "discrete", False))


def refuse_discrete(env: Env, algorithm: str, able: Iterable[str]) -> None:
    """Raise TaskError for discrete actions and an algorithm that is not `able` to take them.

    The toy is for all of them: the paper itself runs DDPG on it, by argmax of the actor.
    """
    if is_discrete(env) and algorithm not in able and env.id not in OWN:
        raise TaskError(
            f"{env.id} has {env.action_size} discrete actions; {algorithm} needs continuous ones. "
            f"Take --algorithm {' or '.join(able)}.{getattr(env, 'continuous_form', '')}"
        )


def nearest(id: str, valid: Iterable[str], otherwise: str = "", module: str = "") -> str:
    """Name the valid id most like `id` in a sentence; where none is like it, `otherwise`.

    module: what goes before the id, "mine:".
    """
    near = difflib.get_close_matches(id, valid, 1)  # of a likeness of 0.6 and more
    return f"Did you mean '{module}{near[0]}'?" if near else otherwise


def task_horizon(id: str, own: float, requested: int, remedy: str = "") -> int:
    """The sooner of the task's time limit (inf = none) and the requested one (0 = none) [steps].

    remedy: another one where there is neither, for the TaskError.
    """
    limit = min(own, requested or math.inf)
    if limit == math.inf:
        found = f"{id} has no time limit. Evaluate it with --horizon; to train, set task.horizon"
        raise TaskError(f"{found}{remedy}.")
    if not 1 <= limit <= 10**12:  # nominal steps are counted by it, and are below 2**63
        raise TaskError(f"{id}: its time limit of {limit} steps must be from 1 to 10**12.")
    return int(limit)


def import_mujoco() -> ModuleType:
    """Import mujoco and keep its warnings off the disk, where it writes MUJOCO_LOG.TXT.

    To be called after the import of dm_control, which sets a handler of its own, and before a model
    is compiled.
    """
    import mujoco

    # counted through `warning_counts`, so not repeated by every rank
    mujoco.set_mju_user_warning(partial(logging.getLogger(__name__).debug, "MuJoCo: %s"))
    return mujoco


def warning_counts(data: Any) -> np.ndarray:
    """View live how often a MjData warned of a bad state or control since its reset, int32 [4]."""
    import mujoco

    kinds = mujoco.mjtWarning  # BADQPOS, BADQVEL, BADQACC, BADCTRL
    return data.warning.number[int(kinds.mjWARN_BADQPOS) : int(kinds.mjWARN_BADCTRL) + 1]
