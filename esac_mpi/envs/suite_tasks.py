"""DeepMind Control Suite tasks, bit for bit, without dm_control's cost per step.

Each function takes the suite's environment of one domain and returns its closed loop: cartpole
with the smooth reward, cheetah, fish-upright, humanoid but for its pure state, walker. Observation
and reward are the suite's, in the order of operations and the types of its code; resets remain its
own. Left out is what changes no bit: named indexing, the dictionary of observations, and the
generality of `rewards.tolerance`. None of these tasks terminates.

The formulas are those of dm_control 1.0; anything else is left to the library.
"""

import math
from collections.abc import Callable
from functools import reduce
from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np
from dm_control.rl.control import Environment, PhysicsError
from dm_control.suite import cartpole, cheetah, fish, humanoid, walker
from mujoco import mj_step, mj_step1, mj_step2

from esac_mpi.envs.closed_loop import Call, Calls, ClosedLoop, Judge, Parts, power

VERSIONS = ("1.0.50",)
VELOCITY = "torso_subtreelinvel"  # a sensor
LIMBS = ("left_hand", "left_foot", "right_hand", "right_foot")
GAUSSIAN = np.sqrt(-2 * np.log(0.1))  # the scale at which a tolerance falls to 0.1 at its margin


def own_loop(env: Any) -> ClosedLoop | None:
    """Return the closed loop of an environment as `suite.load` gives it; None if not of DOMAINS."""
    start = DOMAINS.get((type(env.task), type(env.physics)))
    plain = type(env) is Environment and not env._flat_observation and env.physics.legacy_step
    variant = getattr(env.task, "_pure_state", False) or getattr(env.task, "_sparse", False)
    if start is None or not plain or variant or version("dm_control") not in VERSIONS:
        return None
    return start(env)


def cartpole_loop(env: Any) -> ClosedLoop:
    """Play cartpole: pay for the pole upright, the cart centred, and little control and speed."""
    data = env.physics.data.ptr
    poles, cart = data.xmat[2:], data.qpos[:1]
    orientations, cosines = poles[:, 8:1:-6], poles[:, 8]  # zz and xz; zz
    last = 2 + len(poles)

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        place, ctrl = after[0], after[1]
        upright = [(cosine + 1) / 2 for cosine in after[2:last]]
        centred = (1 + _gaussian(abs(place), 2)) / 2
        little_control = (4 + _positive(1 - ctrl * ctrl)) / 5
        little_speed = (1 + reduce(np.minimum, [_bell(speed, 5) for speed in after[last:]])) / 2
        return sum(upright) / len(poles) * little_control * little_speed * centred, True

    traced = [cart, data.ctrl, cosines, data.qvel[1:]]
    return _loop(env, [cart, orientations, data.qvel], traced, judge)


def fish_upright_loop(env: Any) -> ClosedLoop:
    """Play fish-upright: observe joints, uprightness and velocities; pay for being upright."""
    data = env.physics.data.ptr
    upright = data.body("torso").xmat[8:]  # zz

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return _gaussian(abs(1 - after[0]), 1), True

    joints = [data.joint(name).qpos for name in fish._JOINTS]
    return _loop(env, [*joints, upright, data.qvel], [upright], judge)


def cheetah_loop(env: Any) -> ClosedLoop:
    """Play cheetah-run: observe all but x; the reward is the speed over 10 m/s."""
    data = env.physics.data.ptr

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return _linear(cheetah._RUN_SPEED - after[0], cheetah._RUN_SPEED, 0), True

    return _loop(env, [data.qpos[1:], data.qvel], [data.sensor(VELOCITY).data], judge)


def walker_loop(env: Any) -> ClosedLoop:
    """Play walker-stand, -walk or -run: pay for standing upright, then for speed."""
    data, target = env.physics.data.ptr, env.task._move_speed
    torso, speed = data.body("torso"), data.sensor(VELOCITY).data[:1]
    # xx and xz of every body; zz
    orientations, upward, height = data.xmat[1:, 0:3:2], torso.xmat[8:], torso.xpos[2:]

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        height, upward, speed = after
        standing = _gaussian(walker._STAND_HEIGHT - height, walker._STAND_HEIGHT / 2)
        upright = (1 + upward) / 2
        reward = (3 * standing + upright) / 4
        if target:
            reward = reward * (5 * _linear(target - speed, target / 2, 0.5) + 1) / 6
        return reward, True

    return _loop(env, [orientations, height, data.qvel], [height, upward, speed], judge)


def humanoid_loop(env: Any) -> ClosedLoop:
    """Play humanoid: pay for standing upright, little control, and staying or speed."""
    data, target = env.physics.data.ptr, env.task._move_speed
    velocity, torso = data.sensor(VELOCITY).data, data.body("torso")
    place, frame, height = torso.xpos, torso.xmat.reshape(3, 3), data.body("head").xpos[2:]
    limbs = [data.body(name).xpos for name in LIMBS]
    extremities, horizontal, speed = np.zeros((len(limbs), 3)), velocity[:2], np.zeros(1)
    reached = list(zip(limbs, extremities, strict=True))

    def reach() -> None:
        for limb, extremity in reached:
            (limb - place).dot(frame, extremity)  # in the torso's frame
        speed[0] = math.sqrt(horizontal.dot(horizontal))  # as np.linalg.norm

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        height, upward, speed, x, y = after
        standing = _gaussian(humanoid._STAND_HEIGHT - height, humanoid._STAND_HEIGHT / 4)
        upright = _linear(0.9 - upward, 1.9, 0)
        effort = np.maximum(1 - np.square(actions.astype(float)), 0.0)  # 1 at rest
        little_control = (4 + np.add.reduce(effort, axis=-1) / effort.shape[-1]) / 5
        reward = little_control * (standing * upright)
        if target:
            return reward * ((5 * _linear(target - speed, target, 0) + 1) / 6), True
        return reward * ((_bell(x, 2) + _bell(y, 2)) / 2), True

    observed = [data.qpos[7:], height, extremities, frame[2], velocity, data.qvel]
    return _loop(env, observed, [height, frame[2, 2:], speed, horizontal], judge, [(reach,)])


DOMAINS: dict[tuple[type, type], Callable[[Any], ClosedLoop]] = {
    (cartpole.Balance, cartpole.Physics): cartpole_loop,
    (cheetah.Cheetah, cheetah.Physics): cheetah_loop,
    (fish.Upright, fish.Physics): fish_upright_loop,
    (walker.PlanarWalker, walker.Physics): walker_loop,
    (humanoid.Humanoid, humanoid.Physics): humanoid_loop,
}  # by task and physics


def _loop(env: Any, observed: Parts, traced: Parts, judge: Judge, derive: Calls = ()) -> ClosedLoop:
    """Close the loop over control steps as of dm_control's Physics.step after set_control.

    It raises PhysicsError when MuJoCo warns. derive: calls that make what is observed or traced of
    the simulator's state.
    """
    model, data = env.physics.model.ptr, env.physics.data.ptr
    whole = env._n_sub_steps - 1
    counts = data.warning.number.tolist  # since the reset

    def check() -> None:
        if any(counts()):
            pairs = zip(mujoco.mjtWarning.__members__, counts(), strict=False)
            raised = ", ".join(name for name, count in pairs if count)
            raise PhysicsError(f"Physics state is invalid. Warning(s) raised: {raised}")

    # the first half of a step was made by the last call, or the reset
    first: list[Call] = [(mj_step2, model, data)]
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        first = [  # the suite makes that half again, to the same bits
            (mujoco.mj_checkPos, model, data),
            (mujoco.mj_checkVel, model, data),
            (mujoco.mj_forwardSkip, model, data, int(mujoco.mjtStage.mjSTAGE_VEL), 0),
            (mujoco.mj_checkAcc, model, data),
            (mujoco.mj_RungeKutta, model, data, 4),
        ]
    rest = [(mj_step, model, data, whole)] if whole else []
    advance = [*first, *rest, (mj_step1, model, data), (check,), *derive]
    return ClosedLoop(data, advance, observed, traced, judge)


def _gaussian(outside: Any, margin: float) -> Any:
    """Return rewards.tolerance, default form, of what lies `outside` bounds (within: 0 or less)."""
    if isinstance(outside, float):
        return 1.0 if outside <= 0 else np.exp(-0.5 * (outside / margin * GAUSSIAN) ** 2)
    return np.where(outside <= 0, 1.0, np.exp(-0.5 * power(outside / margin * GAUSSIAN)))


def _bell(value: Any, margin: float) -> Any:
    """Return rewards.tolerance(value, margin=margin) as of an array: its square is the product."""
    scaled = abs(value) / margin * GAUSSIAN
    return np.exp(-0.5 * (scaled * scaled))


def _linear(outside: Any, margin: float, value_at_margin: float) -> Any:
    """Return rewards.tolerance as `_gaussian` does, in its linear form."""
    fall = outside / margin * (1 - value_at_margin)
    if isinstance(outside, float):
        return 1.0 if outside <= 0 else 1 - fall if fall < 1 else 0.0
    return np.where(outside <= 0, 1.0, np.where(fall < 1, 1 - fall, 0.0))


def _positive(value: Any) -> Any:
    return max(value, 0.0) if isinstance(value, float) else np.maximum(value, 0.0)
