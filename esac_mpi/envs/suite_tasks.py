"""Tasks of the DeepMind Control Suite without dm_control's cost per step: its model, state and formulas, bit for bit.

Each function takes the suite's environment of one domain and returns its `step`: acrobot and cartpole with the smooth reward,
cheetah, fish, humanoid but for its pure state, walker. Observation and reward are the suite's, in the order of operations
and the types of its code; resets remain its own. Left out is what changes no bit: named indexing, the dictionary of
observations, and the generality of `rewards.tolerance`. None of these tasks terminates.

The formulas are those of dm_control 1.0; anything else is left to the library.
"""

import math
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np
from dm_control.rl.control import Environment, PhysicsError
from dm_control.suite import acrobot, cartpole, cheetah, fish, humanoid, walker
from mujoco import mj_step, mj_step1, mj_step2
from numpy import concatenate

from esac_mpi.envs import Step

VERSIONS = ("1.0.50",)
FLOAT32 = np.dtype(np.float32)
GAUSSIAN = np.sqrt(-2 * np.log(0.1))  # the scale at which a tolerance falls to 0.1 at its margin


def own_step(env: Any) -> Step | None:
    """Return the step of an environment as `suite.load` gives it; None where it is not of one of DOMAINS."""
    start = DOMAINS.get((type(env.task), type(env.physics)))
    plain = type(env) is Environment and not env._flat_observation and env.physics.legacy_step
    variant = getattr(env.task, "_pure_state", False) or getattr(env.task, "_sparse", False)
    if start is None or not plain or variant or version("dm_control") not in VERSIONS:
        return None
    return start(env)


def acrobot_step(env: Any) -> Step:
    """Step acrobot-swingup: observe the arms' horizontal and vertical parts and velocities; pay for the tip at the target."""
    data, model, advance = env.physics.data.ptr, env.physics.model, _physics(env)
    upper, lower = (model.name2id(name, "body") for name in ("upper_arm", "lower_arm"))
    tip, target = (data.site_xpos[model.name2id(name, "site")] for name in ("tip", "target"))
    radius = float(model.site_size[model.name2id("target", "site"), 0])
    arms = data.xmat[upper : lower + 1]
    observed = (arms[:, 2], arms[:, 8], data.qvel)  # xz, zz

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        return concatenate(observed, dtype=FLOAT32), _gaussian(_norm(target - tip) - radius, 1), False

    return step


def cartpole_step(env: Any) -> Step:
    """Step cartpole-balance or -swingup: pay for the pole upright, the cart centred, and little control and speed."""
    data, advance = env.physics.data.ptr, _physics(env)
    poles, cart, speeds, ctrl = data.xmat[2:], data.qpos[:1], data.qvel[1:], data.ctrl
    cosines, orientations, velocity = poles[:, 8], poles[:, 8:1:-6], data.qvel  # zz; zz and xz

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        centred = (1 + _gaussian(abs(cart.item(0)), 2)) / 2
        little_control = (4 + max(1 - ctrl.item(0) * ctrl.item(0), 0.0)) / 5
        little_speed = (1 + float(_gaussians(speeds, 5).min())) / 2
        reward = _mean((cosines + 1) / 2) * little_control * little_speed * centred
        return concatenate((cart, orientations.ravel(), velocity), dtype=FLOAT32), reward, False

    return step


def fish_upright_step(env: Any) -> Step:
    """Step fish-upright: observe joints, uprightness and velocities; pay for being upright."""
    data, advance = env.physics.data.ptr, _physics(env)
    joints, upright = _positions(env, fish._JOINTS), data.xmat[env.physics.model.name2id("torso", "body"), 8:]  # zz

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        observed = (data.qpos[joints], upright, data.qvel)
        return concatenate(observed, dtype=FLOAT32), _gaussian(abs(1 - upright.item(0)), 1), False

    return step


def fish_swim_step(env: Any) -> Step:
    """Step fish-swim: observe joints, uprightness, the way to the target and velocities; pay for the mouth at the target."""
    data, model, advance = env.physics.data.ptr, env.physics.model, _physics(env)
    joints, upright = _positions(env, fish._JOINTS), data.xmat[model.name2id("torso", "body"), 8:]  # zz
    mouth, target = (model.name2id(name, "geom") for name in ("mouth", "target"))
    start, end, frame = data.geom_xpos[mouth], data.geom_xpos[target], data.geom_xmat[mouth].reshape(3, 3)
    radii = float(model.geom_size[mouth, 0] + model.geom_size[target, 0])

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        way = (end - start).dot(frame)  # in the mouth's frame
        reward = (7 * _gaussian(_norm(way) - radii, 2 * radii) + 0.5 * (upright.item(0) + 1)) / 8
        return concatenate((data.qpos[joints], upright, way, data.qvel), dtype=FLOAT32), reward, False

    return step


def cheetah_step(env: Any) -> Step:
    """Step cheetah-run: observe all but x; the reward is the speed over 10 m/s."""
    data, advance = env.physics.data.ptr, _physics(env)
    speed = _sensor(env, "torso_subtreelinvel")
    observed = (data.qpos[1:], data.qvel)

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        reward = _linear(cheetah._RUN_SPEED - speed.item(0), cheetah._RUN_SPEED, 0)
        return concatenate(observed, dtype=FLOAT32), reward, False

    return step


def walker_step(env: Any) -> Step:
    """Step walker-stand, -walk or -run: observe orientations, height and velocities; pay for standing upright, then for speed."""
    data, advance, target = env.physics.data.ptr, _physics(env), env.task._move_speed
    torso = env.physics.model.name2id("torso", "body")
    orientations, frame = data.xmat[1:, 0:3:2], data.xmat[torso]  # xx and xz of every body
    height, qvel, speed = data.xpos[torso, 2:], data.qvel, _sensor(env, "torso_subtreelinvel")

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        standing = _gaussian(walker._STAND_HEIGHT - height.item(0), walker._STAND_HEIGHT / 2)
        upright = (1 + frame.item(8)) / 2  # zz
        reward = (3 * standing + upright) / 4
        if target:
            reward = reward * (5 * _linear(target - speed.item(0), target / 2, 0.5) + 1) / 6
        return concatenate((orientations.ravel(), height, qvel), dtype=FLOAT32), reward, False

    return step


def humanoid_step(env: Any) -> Step:
    """Step humanoid-stand, -walk or -run: pay for standing upright, for little control, and for staying or for speed."""
    data, advance, target = env.physics.data.ptr, _physics(env), env.task._move_speed
    model, ctrl, velocity = env.physics.model, data.ctrl, _sensor(env, "torso_subtreelinvel")
    torso, head = (model.name2id(name, "body") for name in ("torso", "head"))
    limbs = [data.xpos[model.name2id(side + limb, "body")] for side in ("left_", "right_") for limb in ("hand", "foot")]
    place, frame, height = data.xpos[torso], data.xmat[torso].reshape(3, 3), data.xpos[head, 2:]
    before, after = (data.qpos[7:], height), (frame[2], velocity, data.qvel)
    horizontal, vertical = velocity[:2], frame[2]

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        advance(action)
        standing = _gaussian(humanoid._STAND_HEIGHT - height.item(0), humanoid._STAND_HEIGHT / 4)
        upright = _linear(0.9 - vertical.item(2), 1.9, 0)
        effort = np.maximum(1 - np.square(ctrl), 0.0)  # 1 at rest, 0 at and beyond full control
        little_control = (4 + _mean(effort)) / 5
        motion = (5 * _linear(target - _norm(horizontal), target, 0) + 1) / 6 if target else _mean(_gaussians(horizontal, 2))
        reward = little_control * (standing * upright) * motion
        extremities = [(limb - place).dot(frame) for limb in limbs]  # in the torso's frame
        return concatenate((*before, *extremities, *after), dtype=FLOAT32), reward, False

    return step


DOMAINS: dict[tuple[type, type], Callable[[Any], Step]] = {
    (acrobot.Balance, acrobot.Physics): acrobot_step,
    (cartpole.Balance, cartpole.Physics): cartpole_step,
    (cheetah.Cheetah, cheetah.Physics): cheetah_step,
    (fish.Upright, fish.Physics): fish_upright_step,
    (fish.Swim, fish.Physics): fish_swim_step,
    (walker.PlanarWalker, walker.Physics): walker_step,
    (humanoid.Humanoid, humanoid.Physics): humanoid_step,
}  # by task and physics


def _physics(env: Any) -> Callable[[np.ndarray], None]:
    """Return the function that applies an action for one control step, as dm_control's Physics.step does after set_control.

    It raises PhysicsError when MuJoCo warns.
    """
    model, data = env.physics.model.ptr, env.physics.data.ptr
    half = model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4
    whole = env._n_sub_steps - half
    ctrl, warnings = data.ctrl, data.warning.number

    def advance(action: np.ndarray) -> None:
        known = warnings.tolist()
        ctrl[:] = action
        if half:
            mj_step2(model, data)  # its first half was made by the last call, or the reset
        if whole:
            mj_step(model, data, whole)
        mj_step1(model, data)
        if warnings.tolist() != known:
            raised = [name for name, old, new in zip(mujoco.mjtWarning.__members__, known, warnings, strict=False) if new > old]
            raise PhysicsError(f"Physics state is invalid. Warning(s) raised: {', '.join(raised)}")

    return advance


def _sensor(env: Any, name: str) -> np.ndarray:
    """Return the live values of a sensor, a view [size of the sensor]."""
    sensor = env.physics.model.name2id(name, "sensor")
    start, size = (int(field[sensor]) for field in (env.physics.model.sensor_adr, env.physics.model.sensor_dim))
    return env.physics.data.ptr.sensordata[start : start + size]


def _positions(env: Any, joints: list[str]) -> np.ndarray:
    """Return where joints of one coordinate lie in qpos, int [joint]."""
    model = env.physics.model
    return np.array([model.jnt_qposadr[model.name2id(joint, "joint")] for joint in joints])


def _gaussian(outside: float, margin: float) -> float:
    """Return rewards.tolerance of a number that lies `outside` its bounds (within them: 0 or less) in its default form."""
    return 1.0 if outside <= 0 else float(np.exp(-0.5 * (outside / margin * GAUSSIAN) ** 2))


def _gaussians(values: np.ndarray, margin: float) -> np.ndarray:
    """Return rewards.tolerance(values, margin=margin)."""
    return np.exp(-0.5 * (np.abs(values) / margin * GAUSSIAN) ** 2)


def _linear(outside: float, margin: float, value_at_margin: float) -> float:
    """Return rewards.tolerance of a number that lies `outside` its bounds (within them: 0 or less) in its linear form."""
    if outside <= 0:
        return 1.0
    fall = outside / margin * (1 - value_at_margin)
    return 1 - fall if fall < 1 else 0.0


def _norm(vector: np.ndarray) -> float:
    return math.sqrt(vector.dot(vector))  # as np.linalg.norm


def _mean(values: np.ndarray) -> float:
    return float(np.add.reduce(values) / values.size)  # ndarray.mean without its Python
