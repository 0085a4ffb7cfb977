"""The closed loop of a task whose formulas are ours: policy and physics in turn, then rewards.

The loop is `kernels.Loop`. The rewards of a run are made at once, of what it traced, so that its
steps share numpy's cost of a call. The same formulas take the numbers of a single step.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any, NamedTuple

import mujoco
import numpy as np

from esac_mpi.envs import LARGEST, TaskError, UnstablePhysics, check_finite, is_of, warning_counts
from esac_mpi.host.cooperative import LONGEST
from esac_mpi.operators import kernels

Call = tuple[Any, ...]  # a function and its arguments
Calls = Sequence[Call]
Part = np.ndarray | tuple[np.ndarray, float, float]  # a live view, float64, alone or with its range
Parts = Sequence[Part]
Judge = Callable[[Any, Any, np.ndarray, Any], tuple[Any, Any]]
FLOAT32 = np.dtype(np.float32)  # sooner than the type
OVERFLOWS = math.sqrt(sys.float_info.max)


class Run(NamedTuple):
    """What n steps gave, and the reward nan of a last one that the physics could not make."""

    observations: np.ndarray  # float32 [n + 1, observation]; only the last may be not finite
    actions: np.ndarray  # float32 [n, action]
    rewards: list[float]
    terminated: bool


class ClosedLoop:
    """A task in MuJoCo: what advances it, what is observed (clipped to its range), how it pays.

    traced: what `judge` reads, number by number. judge(before, after, actions, healthy) returns
    reward and whether the task goes on. It is given the floats of a single step, or arrays [n] of a
    run, actions float32 [action] or [n, action]. A number at an end of its range or beyond, or nan,
    ends a run, and nothing else can terminate: healthy = all numbers lie inside after the step.
    data: MjData, whose warnings end a run, too. begin: calls before the first step of a run.
    restart(seed): puts the simulator in a start state; None = the library must.
    """

    def __init__(
        self, data: Any, advance: Calls, observed: Parts, traced: Parts, judge: Judge,
        begin: Calls = (), restart: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        parts = [
            part if isinstance(part, tuple) else (part, -np.inf, np.inf)
            for part in (*observed, *traced)
        ]  # fmt: skip
        views = tuple(view for view, _, _ in parts)
        ranges = np.hstack([np.full((view.size, 2), ends).T for view, *ends in parts])
        self._sees = sum(view.size for view in views[: len(observed)])
        calls, alarms = (tuple(begin), tuple(advance)), warning_counts(data)
        self._loop = kernels.Loop(data.ctrl, *calls, self._sees, views, ranges.copy(), alarms)
        self._judge = judge
        self._acts = data.ctrl.size
        self._pair = np.empty((2, ranges.shape[1] - self._sees))  # what a single step traces
        self._most = 1  # steps that take LONGEST, by the last run
        self.restart = restart

    def look(self) -> np.ndarray:
        """Observe the state as it is."""
        observations = np.empty((1, self._sees), np.float32)
        nothing = np.empty((0, self._acts), np.float32)
        self._loop.run(None, None, None, observations, self._pair[:1], nothing)
        return observations[0]

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Take an action, float32 [action]; return observation, reward and termination."""
        action = np.ascontiguousarray(action, FLOAT32)
        observations = np.empty((2, self._sees), FLOAT32)
        self._loop.run(None, None, None, observations, self._pair, action)
        before, after = self._pair.tolist()
        reward, goes_on = self._judge(before, after, action, self._loop.within)
        return observations[1], float(reward), not goes_on

    def run(self, drive: Callable[..., None], observation: np.ndarray, most: int) -> Run:
        """Take up to `most` steps by a policy's `drive`, fewer where these would take too long.

        A step that the physics cannot make terminates.
        """
        most = min(most, self._most)
        observations = np.empty((most + 1, self._sees), np.float32)
        traces = np.empty((most + 1, self._pair.shape[1]))
        actions = np.empty((most, self._acts), np.float32)
        observations[0] = observation
        loop = self._loop
        start = time.monotonic()
        failed = False
        try:
            drive(loop, observations, traces, actions)
        except Exception as error:
            if not is_unstable(error):
                raise
            failed = True
        self._most = 1 + int(LONGEST * loop.steps / (time.monotonic() - start + 1e-9))
        n = loop.steps - failed
        rewards: list[float] = []
        goes_on: Any = True
        if n:
            healthy = np.ones(n, bool)
            healthy[-1] = loop.within
            numbers = traces[: n + 1].T
            found, goes_on = self._judge(numbers[:, :-1], numbers[:, 1:], actions[:n], healthy)
            rewards = found.tolist()
        if failed:
            rewards.append(np.nan)
        terminated = failed or not np.all(goes_on)
        return Run(observations[: n + 1], actions[:n], rewards, terminated)


class Stepped:
    """What an adapter adds to the library's steps: the closed loop, bounds, the horizon's end."""

    id: str
    horizon: int
    low: np.ndarray
    high: np.ndarray
    action_size: int
    closed_loop: ClosedLoop | None
    not_finite = ""
    _library_step: Callable[[np.ndarray], tuple[np.ndarray, float, bool, bool]]
    _steps = 0
    _warnings: np.ndarray  # int32 [any], live
    # the task's own where a float32 one lies beyond them, as that of 0.1 does
    own_bounds: tuple[np.ndarray, np.ndarray] | None

    def bound(self, low: np.ndarray, high: np.ndarray) -> None:
        """Take a task's bounds of an action. Raises TaskError for none, or some beyond float32."""
        self.low, self.high = (np.asarray(end, np.float32).ravel() for end in (low, high))
        if not (np.abs((self.low, self.high)) <= LARGEST / 2).all():
            raise TaskError(
                f"{self.id} has an unbounded action: a policy's output in [-1, 1] cannot be scaled "
                "to it. A wrapper such as ClipAction takes the bounds away: leave it out."
            )
        self.action_size = self.low.size
        beyond = (self.low < np.ravel(low)).any() or (self.high > np.ravel(high)).any()
        self.own_bounds = (low, high) if beyond else None

    def clip(self, action: np.ndarray) -> np.ndarray:
        """Clip an action to the task's own bounds, if any, unless it is beyond those in float32."""
        own = self.own_bounds
        if own is None or (action.ravel() < self.low).any() or (action.ravel() > self.high).any():
            return action
        return np.clip(action, *own)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take an action, float32 [action]; return observation, reward, terminated, truncated."""
        truncated = False
        try:
            if self.closed_loop is not None:
                observation, reward, terminated = self.closed_loop.step(action)
            else:
                observation, reward, terminated, truncated = self._library_step(action)
                if not abs(reward) <= LARGEST:
                    self.not_finite = f"reward is {reward}"
        except (Exception, SystemExit) as error:
            self._raise_known(error)
            raise
        self._steps += 1
        truncated = truncated or self._steps >= self.horizon
        return check_finite(self, "observation", observation), reward, terminated, truncated

    @property
    def unstable(self) -> bool:
        """Whether MuJoCo warned of a bad state or control since the reset."""
        return any(self._warnings.tolist())

    def _raise_known(self, error: BaseException) -> None:
        """Raise what an error of the library's environment means, where that is known."""
        if is_unstable(error):
            raise UnstablePhysics(f"{self.id}: {error}") from error


def is_unstable(error: BaseException) -> bool:
    """Whether an error is MuJoCo's about its physics, or dm_control's (not imported)."""
    of_suite = is_of(error, "dm_control.rl.control", "PhysicsError")
    return of_suite or isinstance(error, mujoco.FatalError)


def is_patched(*parts: Any) -> bool:
    """Whether objects, or their classes, have functions in place of the library's."""
    for part in parts:
        kind = type(part)
        if any(callable(value) and hasattr(kind, name) for name, value in vars(part).items()):
            return True
        for base in kind.__mro__:
            found = (getattr(value, "fget", value) for value in vars(base).values())
            if any(isfunction(each) and each.__module__ != base.__module__ for each in found):
                return True
    return False


def power(value: Any) -> Any:
    """Square a number, or each of an array, by C's power, as the libraries do: not the product."""
    if isinstance(value, float):
        return math.inf if abs(value) > OVERFLOWS else value**2  # where Python's raises
    return np.array([power(one) for one in value.tolist()])
