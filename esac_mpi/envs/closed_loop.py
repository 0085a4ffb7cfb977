"""The closed loop of a task whose formulas are ours: policy and physics in turn, rewards afterwards.

The loop is `kernels.Loop`. Rewards are made for many steps at once, of what it traced, so that they
share numpy's cost of a call. Single steps, as learners and recorders take them, go through the same
loop and formulas.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np

from esac_mpi import kernels
from esac_mpi.envs import is_of

Call = tuple[Any, ...]  # a function and its arguments
Part = np.ndarray | tuple[np.ndarray, float, float]  # a live view, float64, alone or with its range
Judge = Callable[[np.ndarray, np.ndarray, bool], tuple[np.ndarray, bool]]


class ClosedLoop:
    """A task in MuJoCo: what advances it, what is observed (clipped to its range), how it pays.

    traced: what `judge` reads. judge(traces [n + 1, traced], actions float32 [n, action], within)
    returns the rewards [n] and whether the last step terminates; row 0 is from before the first step.
    A number at an end of its range or beyond, or nan, ends a run, and nothing else can terminate:
    within = every traced number lay inside after the last step. derive: calls that make what is
    observed or traced of the simulator's state. begin: calls before the first step of a run.
    """

    def __init__(
        self, ctrl: np.ndarray, advance: Sequence[Call], observed: Sequence[Part], traced: Sequence[Part],
        judge: Judge, derive: Sequence[Call] = (), begin: Sequence[Call] = (),
    ) -> None:  # fmt: skip
        seen = [_with_range(part) for part in observed]
        parts = [*seen, *(_with_range(part) for part in traced)]
        low, high = (np.concatenate([np.full(part[0].size, part[side]) for part in parts]) for side in (1, 2))
        self._sees = sum(view.size for view, _, _ in seen)
        views = tuple(view for view, _, _ in parts)
        first, each = (*begin, *derive), (*advance, *derive)
        self._loop = kernels.Loop(ctrl, first, each, self._sees, views, low, high)
        self._judge = judge
        self._acts = ctrl.size
        self._traced = low.size - self._sees

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Take an action, float32 [action]; return observation, reward and termination."""
        actions = np.ascontiguousarray(action, np.float32)[None]
        observations = np.empty((2, self._sees), np.float32)
        traces = np.empty((2, self._traced))
        self._loop.run(None, None, None, observations, traces, actions)
        rewards, terminated = self._judge(traces, actions, self._loop.within)
        return observations[1], float(rewards[0]), terminated

    def run(self, drive: Callable[..., None], observation: np.ndarray, most: int) -> tuple[np.ndarray, list[float], bool]:
        """Take up to `most` steps by a policy's `drive`; return observations, rewards, termination.

        observations: float32 [n + 1, observation], first the one that is given; only the last may be
        not finite. A step that the physics cannot make has no observation, the reward nan, and
        terminates.
        """
        observations = np.empty((most + 1, self._sees), np.float32)
        traces = np.empty((most + 1, self._traced))
        actions = np.empty((most, self._acts), np.float32)
        observations[0] = observation
        loop = self._loop
        failed = False
        try:
            drive(loop, observations, traces, actions)
        except Exception as error:
            if not is_unstable(error):
                raise
            failed = True
        n = loop.steps - failed
        rewards, terminated = np.zeros(0), False
        if n:
            rewards, terminated = self._judge(traces[: n + 1], actions[:n], loop.within)
        return observations[: n + 1], [*rewards.tolist(), *[np.nan] * failed], terminated or failed


def is_unstable(error: BaseException) -> bool:
    """Return whether an error is MuJoCo's about its physics, or dm_control's (not imported for that)."""
    return isinstance(error, mujoco.FatalError) or is_of(error, "dm_control.rl.control", "PhysicsError")


def healthy(n: int, within: bool) -> np.ndarray:
    """Return which of n steps kept within range, bool [n]: all but perhaps the last."""
    found = np.ones(n, bool)
    found[-1] = within
    return found


def powers(values: np.ndarray) -> np.ndarray:
    """Return squares as the libraries have a single number's: C's power, not always the product."""
    return np.array([value**2 for value in values.flat]).reshape(values.shape)


def _with_range(part: Part) -> tuple[np.ndarray, float, float]:
    return part if isinstance(part, tuple) else (part, -np.inf, np.inf)
