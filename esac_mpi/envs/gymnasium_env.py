"""Gymnasium tasks: array observations, a bounded Box of actions or n choices; module:EnvId too.

n choices (a Discrete space) are seen as n numbers in [-1, 1], of which the largest is the choice
taken; of equals, the first.

Your own environment must draw every random number from `self.np_random` (or from `seed` in `reset`)
and keep nothing from one episode to the next. The MuJoCo tasks of mujoco_tasks.py are stepped
there, to the same bits.
"""

import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from esac_mpi import envs
from esac_mpi.envs.closed_loop import Stepped
from esac_mpi.envs.identity import origin
from esac_mpi.envs.mujoco_tasks import own_loop
from esac_mpi.host import process_state
from esac_mpi.host.errors import describe_error
from esac_mpi.host.stop import EndsRun

mujoco = envs.import_mujoco()

OWN_ID = (
    "One of your own is named module:EnvId, by the module that registers it with Gymnasium "
    "(docs/start/own-robot.md); the Control Suite's are dm_control/<domain>-<task>-v0."
)
REGISTERED = ", or max_episode_steps in gymnasium.register"
MOST = 10  # ids of a module that one sentence lists
SIDE = 32  # an array with two sides of so many numbers may be an image


class GymnasiumEnv(Stepped):
    """A Gymnasium environment with flat observations and actions."""

    def __init__(self, id: str, horizon: int, kwargs: Mapping[str, Any]) -> None:
        self.id = id
        self._kwargs = kwargs
        self._process = os.getpid()
        self._env = _build(id, kwargs)
        self._rebuild = _keeps_world(self._env)
        space: Any = self._env.action_space
        self._choices = space if isinstance(space, spaces.Discrete) else None
        self.discrete = self._choices is not None
        other = id.replace("-v", "Continuous-v")
        self.continuous_form = f" Did you mean '{other}'?" if other in gymnasium.registry else ""
        self.bound(*_bounds(id, space))
        observed: Any = self._env.observation_space  # a Box, by _build
        self.observation_size = math.prod(observed.shape)
        for what, size in (("observations", self.observation_size), ("actions", self.action_size)):
            if not size:
                raise envs.TaskError(
                    f"{id} has {what} of no number at all; nothing can be learned there."
                )
        # the spec has the outermost one's alone
        limits = [each._max_episode_steps for each in self.layers if isinstance(each, TimeLimit)]
        self.horizon = envs.task_horizon(id, min(limits, default=math.inf), horizon, REGISTERED)
        self._action_shape, self._action_dtype = space.shape, space.dtype
        self.closed_loop = own_loop(self._env)  # whose views show that its data stays
        self._warnings = np.zeros(0, np.int32)
        if self.closed_loop is not None:
            self._warnings = envs.warning_counts(self._data())

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode that `seed` names; return its observation, float32 [observation]."""
        if self._rebuild:
            self._env.close()
            self._env = _build(self.id, self._kwargs)
        self._steps = 0
        self._warnings[:] = 0  # where a task's own reset leaves them
        try:
            if self.closed_loop is not None and self.closed_loop.restart is not None:
                self.closed_loop.restart(seed)
                return envs.check_finite(self, "observation", self.closed_loop.look())
            observation, _ = self._env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            self._raise_known(error)
            raise
        if self.closed_loop is None and (data := self._data()) is not None:
            self._warnings = envs.warning_counts(data)
        try:
            flat = self._flat(observation)
        except (TypeError, ValueError, OverflowError) as error:
            raise envs.TaskError(
                f"{self.id}: reset answers no array of its space: {error}"
            ) from error
        return envs.check_finite(self, "observation", flat)

    def close(self) -> None:
        """Close the library's environment."""
        self._env.close()

    @property
    def layers(self) -> list[Any]:
        """The library's environment, from its outermost wrapper to the environment itself."""
        layers: list[Any] = [self._env]
        while isinstance(layers[-1], gymnasium.Wrapper):
            layers.append(layers[-1].env)
        return layers

    def _raise_known(self, error: BaseException) -> None:
        """Raise what an error of the library's environment means, where that is known."""
        if isinstance(error, SystemExit):
            process_state.end_child(self._process)
            raise EndsRun(
                f"{self.id} cannot be played: its code ends the program, sys.exit({error.code!r}); "
                "a task must raise an error"
            ) from error
        super()._raise_known(error)

    def _data(self) -> Any:
        """Find the simulator's state that the environment holds; None where it has none."""
        own = self._env.unwrapped
        held = [getattr(own, "data", None), *getattr(own, "__dict__", {}).values()]
        return next((value for value in held if isinstance(value, mujoco.MjData)), None)

    def _library_step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        observation, reward, terminated, truncated, _ = self._env.step(self._native(action))
        try:
            truths = terminated in (False, True) and truncated in (False, True)
            if not truths or isinstance(reward, str | bytes) or _is_partial(reward):
                raise TypeError(f"the last three are {reward!r}, {terminated!r}, {truncated!r}")
            return self._flat(observation), float(reward), bool(terminated), bool(truncated)
        except (TypeError, ValueError, OverflowError) as error:
            raise envs.TaskError(
                f"{self.id}: a step must answer an array of numbers, one number, and twice True or "
                f"False: observation, reward, terminated and truncated; {error}"
            ) from error

    def _flat(self, observation: Any) -> np.ndarray:
        if _is_partial(observation):
            raise TypeError(f"the observation has complex or masked numbers: {observation!r:.80}")
        # a copy: an environment may return its own buffer
        seen = np.array(observation, np.float32).reshape(-1)
        if seen.size != (space := self.observation_size):
            raise ValueError(f"the observation has {seen.size} numbers, its space {space}")
        return seen

    def _native(self, action: np.ndarray) -> Any:
        """Convert an action to the library's: an array of its shape and type, or a choice."""
        envs.check_finite(self, "action", np.asarray(action, np.float32))
        if self._choices is not None:
            return self._choices.dtype.type(self._choices.start + np.argmax(action))
        return self.clip(action.astype(self._action_dtype, copy=False).reshape(self._action_shape))


def _is_partial(numbers: Any) -> bool:
    """Whether a conversion would take a part of these: not what is imaginary, nor the mask."""
    kind = getattr(getattr(numbers, "dtype", None), "kind", "")
    return kind == "c" or np.ma.is_masked(numbers)


def _import_module(id: str) -> None:
    """Import the module of module:EnvId, without dm_control's warning on every rank."""
    module, colon, _ = id.rpartition(":")
    if colon and re.search(r"^$|^\.|/|\.py$", module):
        named = "that of mine.py here is mine, that of arms/mine.py is arms.mine"
        raise envs.TaskError(f"{id}: '{module}' is no module's name; {named}.")
    if module and module not in sys.modules:
        # GLFW's: there is no display, which dm_control looks for
        warnings.filterwarnings("ignore", message=r"\(65550\)")
        import_module(module)
        envs.import_mujoco()  # again: dm_control has set its own handler


def _build(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        _import_module(id)
        env: gymnasium.Env[Any, Any] = gymnasium.make(
            id, disable_env_checker=True, **deepcopy(dict(kwargs))
        )
    except gymnasium.error.UnregisteredEnv as error:
        raise envs.TaskError(f"Unknown task '{id}'. {_suggest(id)}") from error
    except ModuleNotFoundError as error:
        missing = str(error).partition(". ")[0]  # the rest is Gymnasium's advice
        here = f"in the current directory ({Path.cwd()}), on PYTHONPATH or installed"
        if sys.flags.safe_path:
            why = "Python looks in no current directory (PYTHONSAFEPATH, -P or -I)"
            here = f"on PYTHONPATH or installed; {why}"
        raise envs.TaskError(f"{id} cannot be made: {missing}: not {here}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise envs.TaskError(f"{id} cannot be made: {error}") from error
    _refuse_pixels(id, env.observation_space)
    if isinstance(env.observation_space, spaces.Box):
        return env
    space = env.observation_space
    if not getattr(space, "is_np_flattenable", False):
        raise envs.TaskError(
            f"{id} has the observations {space}; they cannot be flattened to an array."
        )
    flat = gymnasium.wrappers.FlattenObservation(env)
    flat.func = partial(_flatten, id, space)
    return flat


def _flatten(id: str, space: spaces.Space[Any], observation: Any) -> Any:
    """Flatten an observation. Raises TaskError for one that is not of its space."""
    try:
        _check_parts(space, observation)
        return spaces.flatten(space, observation)
    except Exception as error:
        raise envs.TaskError(
            f"{id}: an observation is not of its space, {space}: {describe_error(error)[0]}"
        ) from error


def _check_parts(space: spaces.Space[Any], observation: Any) -> None:
    """Raise ValueError for what `flatten` would take for something else, or take a part of."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space if isinstance(space, spaces.Dict) else dict(enumerate(space))
        for name, part in parts.items():
            _check_parts(part, observation[name])
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        place = np.asarray(observation) - space.start
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        if not ((place >= 0) & (place < count)).all():
            raise ValueError(f"{observation} is no choice of {space}")
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        seen, whole = np.asanyarray(observation), np.issubdtype(space.dtype, np.integer)
        cut = whole and seen.dtype != space.dtype and (seen != seen.astype(space.dtype)).any()
        if cut or _is_partial(seen) or seen.size != math.prod(space.shape):
            raise ValueError(f"not of {space}: {observation!r:.80}")


def _suggest(id: str) -> str:
    """Name the task that an unknown id may mean, of those that its module registers, if any."""
    module, colon, name = id.rpartition(":")
    if not module:
        meant = envs.nearest(id, [*gymnasium.registry, *envs.OWN], OWN_ID)
        return meant if meant == OWN_ID or "/" in id else f"{meant} {OWN_ID}"
    package = module.partition(".")[0]
    registered = gymnasium.registry.items()
    there = [known for known, spec in registered if origin(spec).partition(".")[0] == package]
    listed = f"{module} registers {', '.join(there[:MOST])}{', ...' if there[MOST:] else '.'}"
    return envs.nearest(name, there, listed if there else OWN_ID, module + colon)


def _refuse_pixels(id: str, space: spaces.Space[Any]) -> None:
    """Raise TaskError for an image: large arrays of bytes in 2 dimensions, or anything in 3."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.values() if isinstance(space, spaces.Dict) else space:
            _refuse_pixels(id, part)
    elif isinstance(space, spaces.Box):
        shape, least = space.shape, 2 if space.dtype == np.uint8 else 3
        if len(shape) >= least and sorted(shape)[-2] >= SIDE:
            raise envs.TaskError(
                f"{id} observes images ({space.dtype}, {' x '.join(map(str, shape))}), and there "
                "is no convolutional network here: wrap it so that it observes numbers, such as "
                "joint angles or features of the image."
            )


def _bounds(id: str, space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Give the actions' bounds, [-1, 1] for choices. Raises TaskError for another space."""
    if isinstance(space, spaces.Discrete):
        return -np.ones(int(space.n), np.float32), np.ones(int(space.n), np.float32)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return space.low, space.high
    raise envs.TaskError(
        f"{id} has the actions {space}; continuous ones are needed, or n choices (Discrete)."
    )


def _keeps_world(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether a reset keeps the Box2D world, as BipedalWalker's does and LunarLander's does not.

    A kept world remembers earlier episodes: measured on BipedalWalker-v3, other bits from the fifth
    step on. The cure is to build the environment anew at each reset (4 ms).
    """
    world = getattr(env.unwrapped, "world", None)
    env.reset(seed=0)
    return type(world).__name__ == "b2World" and getattr(env.unwrapped, "world", None) is world
