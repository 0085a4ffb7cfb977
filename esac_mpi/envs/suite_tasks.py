"""DeepMind Control Suite tasks, bit for bit, without dm_control's cost per step.

Each function takes the suite's environment of one domain, its MjData and its MjModel, and returns
its closed loop: those of the suite's benchmark are here. Observation and reward are the suite's, in
the order of operations and the types of its code; resets remain its own. Left out is what changes
no bit: named indexing, the dictionary of observations, and the generality of `rewards.tolerance`.
No task here terminates.

The formulas are those of dm_control 1.0; anything else is left to the library.
"""

from collections.abc import Callable
from functools import reduce
from importlib.metadata import version
from typing import Any

import mujoco
import numpy as np
from dm_control import suite
from dm_control.rl.control import Environment, PhysicsError
from mujoco import mj_step, mj_step1, mj_step2

from esac_mpi.envs.closed_loop import Call, Calls, ClosedLoop, Parts, is_patched, power

# the reward of what is traced after a step and of its action, or of n steps: arrays [n]
Pay = Callable[[Any, np.ndarray], Any]
VERSIONS = ("1.0.50",)
VELOCITY = "torso_subtreelinvel"  # a sensor
LIMBS = ("left_hand", "left_foot", "right_hand", "right_foot")
PLANE = slice(0, 3, 2)  # x and z, of a place or an axis; w and y of a quaternion
TURNED = slice(8, 1, -6)  # zz and xz of an orientation
GAUSSIAN = np.sqrt(-2 * np.log(0.1))  # the scale at which a tolerance falls to 0.1 at its margin
LONG_TAIL = np.sqrt(1 / 0.1 - 1)  # the same of that form


def own_loop(env: Any) -> ClosedLoop | None:
    """Return the closed loop of an environment as `suite.load` gives it; None if not of DOMAINS."""
    start = DOMAINS.get((type(env.task), type(env.physics)))
    plain = type(env) is Environment and not env._flat_observation and env.physics.legacy_step
    variant = getattr(env.task, "_pure_state", False) or getattr(env.task, "_use_peg", False)
    if start is None or not plain or variant or version("dm_control") not in VERSIONS:
        return None
    if is_patched(env, env.task, env.physics):
        return None
    return start(env, env.physics.data.ptr, env.physics.model.ptr)


def acrobot_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play acrobot: pay for the tip at the target, or near it."""
    arms, sparse = data.xmat[1:], env.task._sparse
    radius = model.site("target").size[0]
    calls, _, squared = _difference(data.site("target").xpos, data.site("tip").xpos)

    def pay(after: Any, actions: np.ndarray) -> Any:
        outside = np.sqrt(after[0]) - radius
        return _inside(outside) if sparse else _gaussian(outside, 1)

    return _loop(env, [arms[:, 2], arms[:, 8], data.qvel], [squared], pay, calls)


def ball_in_cup_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play ball_in_cup: pay for the ball in the cup."""
    room = model.site("target").size[PLANE] - model.geom("ball").size[0]
    traced = [data.site("target").xpos[PLANE], data.body("ball").xpos[PLANE]]

    def pay(after: Any, actions: np.ndarray) -> Any:
        inside = (abs(after[0] - after[2]) < room[0]) & (abs(after[1] - after[3]) < room[1])
        return 1.0 * inside

    return _loop(env, [data.qpos, data.qvel], traced, pay)


def cartpole_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play cartpole: pay for the pole upright, the cart centred, and little control and speed."""
    poles, cart = data.xmat[2:], data.qpos[:1]
    last = 1 + len(poles)

    def pay(after: Any, actions: np.ndarray) -> Any:
        upright = [(cosine + 1) / 2 for cosine in after[1:last]]
        centred = (1 + _gaussian(abs(after[0]), 2)) / 2
        little_speed = (1 + reduce(np.minimum, [_bell(speed, 5) for speed in after[last:]])) / 2
        return sum(upright) / len(poles) * _little_control(actions) * little_speed * centred

    def pay_sparsely(after: Any, actions: np.ndarray) -> Any:
        low, high = env.task._ANGLE_COSINE_RANGE
        upright = [_inside(low - cosine) * _inside(cosine - high) for cosine in after[1:last]]
        return _inside(abs(after[0]) - env.task._CART_RANGE[1]) * reduce(np.multiply, upright)

    traced = [cart, poles[:, 8], data.qvel[1:]]
    observed = [cart, poles[:, TURNED], data.qvel]
    return _loop(env, observed, traced, pay_sparsely if env.task._sparse else pay)


def finger_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play finger: pay for spinning fast, or for the tip at the target."""
    sensors = data.sensordata
    tip, target, spinner = (data.sensor(n).data[PLANE] for n in ("tip", "target", "spinner"))
    touch, place = np.zeros(2), np.zeros(2)
    calls: list[Call] = [(np.log1p, sensors[14:16], touch), (np.subtract, tip, spinner, place)]
    observed = [sensors[:2], place, sensors[2:5], touch]  # two angles, three velocities
    if isinstance(env.task, suite.finger.Spin):
        fast = suite.finger._SPIN_VELOCITY
        return _loop(
            env, observed, [sensors[4:5]], lambda after, _: _inside(after[0] + fast), calls
        )

    goal, away = np.zeros(2), np.zeros(1)
    to_target, _, squared = _difference(goal, place)
    calls += [
        (np.subtract, target, spinner, goal),
        *to_target,
        (np.sqrt, squared, away),
        (np.subtract, away, model.site("target").size[:1], away),
    ]
    return _loop(env, [*observed, goal, away], [away], lambda after, _: _inside(after[0]), calls)


def fish_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play fish: pay for being upright, and where it swims for the mouth at the target."""
    upright = data.body("torso").xmat[8:]  # zz
    joints = [data.joint(name).qpos for name in suite.fish._JOINTS]
    if isinstance(env.task, suite.fish.Upright):
        observed = [*joints, upright, data.qvel]
        return _loop(env, observed, [upright], lambda after, _: _gaussian(abs(1 - after[0]), 1))

    mouth = data.geom("mouth")
    radii = model.geom("mouth").size[0] + model.geom("target").size[0]
    calls, local, squared = _difference(data.geom("target").xpos, mouth.xpos, mouth.xmat)

    def pay(after: Any, actions: np.ndarray) -> Any:
        there = _gaussian(np.sqrt(after[0]) - radii, 2 * radii)
        return (7 * there + 0.5 * (after[1] + 1)) / 8

    return _loop(env, [*joints, upright, local, data.qvel], [squared, upright], pay, calls)


def hopper_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play hopper: pay for standing, with little control or at a speed."""
    speed, stand = suite.hopper._HOP_SPEED, suite.hopper._STAND_HEIGHT
    torso, foot = (data.body(name).xipos[2:] for name in ("torso", "foot"))
    touch, hops = np.zeros(2), env.task._hopping

    def pay(after: Any, actions: np.ndarray) -> Any:
        height = after[0] - after[1]
        standing = _inside(stand - height) * _inside(height - 2)
        more = _linear(speed - after[2], speed / 2, 0.5) if hops else _little_control(actions)
        return standing * more

    traced = [torso, foot, data.sensor(VELOCITY).data[:1]]
    calls = [(np.log1p, data.sensordata[3:], touch)]
    return _loop(env, [data.qpos[1:], data.qvel, touch], traced, pay, calls)


def manipulator_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play manipulator with its ball: pay for the ball at the target, or near it."""
    close = suite.manipulator._CLOSE
    joints = [data.joint(name) for name in suite.manipulator._ARM_JOINTS]
    order = np.array([model.joint(name).qposadr[0] for name in suite.manipulator._ARM_JOINTS])
    angles, turned, touch = np.zeros(len(order)), np.zeros((2, len(order))), np.zeros(5)
    calls, _, squared = _difference(data.site("ball").xpos, data.site("target_ball").xpos)
    calls = [
        (data.qpos.take, order, 0, angles),
        (np.sin, angles, turned[0]),
        (np.cos, angles, turned[1]),
        (np.log1p, data.sensordata, touch),
        *calls,
    ]

    def pay(after: Any, actions: np.ndarray) -> Any:
        return _gaussian(np.sqrt(after[0]) - close, 2 * close)

    hand, ball, target = (
        [data.body(name).xpos[PLANE], data.body(name).xquat[PLANE]]
        for name in ("hand", "ball", "target_ball")
    )
    speeds = [joint.qvel for joint in joints]
    of_ball = [data.joint(name).qvel for name in env.task._object_joints]
    observed = [turned.T, *speeds, touch, *hand, *ball, *of_ball, *target]
    return _loop(env, observed, [squared], pay, calls)


def pendulum_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play pendulum: pay for the pole within some degrees of upright."""
    pole, bound = data.body("pole").xmat, suite.pendulum._COSINE_BOUND

    def pay(after: Any, actions: np.ndarray) -> Any:
        return _inside(bound - after[0]) * _inside(after[0] - 1)

    return _loop(env, [pole[TURNED], data.qvel], [pole[8:]], pay)


def point_mass_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play point_mass: pay for the mass near the target, and little control."""
    size = model.geom("target").size[0]
    calls, _, squared = _difference(data.geom("target").xpos, data.geom("pointmass").xpos)

    def pay(after: Any, actions: np.ndarray) -> Any:
        return _gaussian(np.sqrt(after[0]) - size, size) * _little_control(actions)

    return _loop(env, [data.qpos, data.qvel], [squared], pay, calls)


def reacher_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play reacher: pay for the finger at the target."""
    radii = env.task._target_size + model.geom("finger").size[0]
    target, tip = (data.geom(name).xpos[:2] for name in ("target", "finger"))
    calls, vector, squared = _difference(target, tip)

    def pay(after: Any, actions: np.ndarray) -> Any:
        return _inside(np.sqrt(after[0]) - radii)

    return _loop(env, [data.qpos, vector, data.qvel], [squared], pay, calls)


def swimmer_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play swimmer: pay for the nose at the target, or near it."""
    size = model.geom("target").size[0]
    target, nose = (data.geom(name).xpos for name in ("target", "nose"))
    calls, local, squared = _difference(target, nose, data.body("head").xmat, 2)
    bodies = data.sensordata[12:].reshape(-1, 6)

    def pay(after: Any, actions: np.ndarray) -> Any:
        outside = np.sqrt(after[0]) - size
        return _within(outside, 1 / (power(outside / (5 * size) * LONG_TAIL) + 1))

    # of each body vx, vy and wz
    speeds = [part for body in bodies for part in (body[:2], body[5:])]
    return _loop(env, [data.qpos[3:], local, *speeds], [squared], pay, calls)


def cheetah_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play cheetah-run: observe all but x; the reward is the speed over 10 m/s."""
    fast = suite.cheetah._RUN_SPEED

    def pay(after: Any, actions: np.ndarray) -> Any:
        return _linear(fast - after[0], fast, 0)

    return _loop(env, [data.qpos[1:], data.qvel], [data.sensor(VELOCITY).data], pay)


def walker_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play walker-stand, -walk or -run: pay for standing upright, then for speed."""
    target, stand = env.task._move_speed, suite.walker._STAND_HEIGHT
    torso, speed = data.body("torso"), data.sensor(VELOCITY).data[:1]
    # xx and xz of every body; zz
    orientations, upward, height = data.xmat[1:, PLANE], torso.xmat[8:], torso.xpos[2:]

    def pay(after: Any, actions: np.ndarray) -> Any:
        height, upward, speed = after
        standing = _gaussian(stand - height, stand / 2)
        upright = (1 + upward) / 2
        reward = (3 * standing + upright) / 4
        if target:
            reward = reward * (5 * _linear(target - speed, target / 2, 0.5) + 1) / 6
        return reward

    return _loop(env, [orientations, height, data.qvel], [height, upward, speed], pay)


def humanoid_loop(env: Any, data: Any, model: Any) -> ClosedLoop:
    """Play humanoid: pay for standing upright, little control, and staying or speed."""
    target, stand = env.task._move_speed, suite.humanoid._STAND_HEIGHT
    velocity, torso = data.sensor(VELOCITY).data, data.body("torso")
    frame, height = torso.xmat.reshape(3, 3), data.body("head").xpos[2:]
    horizontal, squared = velocity[:2], np.zeros(1)
    limbs = [_difference(data.body(name).xpos, torso.xpos, torso.xmat) for name in LIMBS]
    calls = [call for derived, *_ in limbs for call in derived[:-1]]  # their squares are not asked
    calls.append((np.dot, horizontal, horizontal, squared.reshape(())))

    def pay(after: Any, actions: np.ndarray) -> Any:
        height, upward, squared, x, y = after
        standing = _gaussian(stand - height, stand / 4)
        upright = _linear(0.9 - upward, 1.9, 0)
        reward = _little_control(actions) * (standing * upright)
        if target:
            return reward * ((5 * _linear(target - np.sqrt(squared), target, 0) + 1) / 6)
        return reward * ((_bell(x, 2) + _bell(y, 2)) / 2)

    extremities = [local for _, local, _ in limbs]
    observed = [data.qpos[7:], height, *extremities, frame[2], velocity, data.qvel]
    return _loop(env, observed, [height, frame[2, 2:], squared, horizontal], pay, calls)


DOMAINS: dict[tuple[type, type], Callable[[Any, Any, Any], ClosedLoop]] = {
    (suite.acrobot.Balance, suite.acrobot.Physics): acrobot_loop,
    (suite.ball_in_cup.BallInCup, suite.ball_in_cup.Physics): ball_in_cup_loop,
    (suite.cartpole.Balance, suite.cartpole.Physics): cartpole_loop,
    (suite.cheetah.Cheetah, suite.cheetah.Physics): cheetah_loop,
    (suite.finger.Spin, suite.finger.Physics): finger_loop,
    (suite.finger.Turn, suite.finger.Physics): finger_loop,
    (suite.fish.Swim, suite.fish.Physics): fish_loop,
    (suite.fish.Upright, suite.fish.Physics): fish_loop,
    (suite.hopper.Hopper, suite.hopper.Physics): hopper_loop,
    (suite.humanoid.Humanoid, suite.humanoid.Physics): humanoid_loop,
    (suite.manipulator.Bring, suite.manipulator.Physics): manipulator_loop,
    (suite.pendulum.SwingUp, suite.pendulum.Physics): pendulum_loop,
    (suite.point_mass.PointMass, suite.point_mass.Physics): point_mass_loop,
    (suite.reacher.Reacher, suite.reacher.Physics): reacher_loop,
    (suite.swimmer.Swimmer, suite.swimmer.Physics): swimmer_loop,
    (suite.walker.PlanarWalker, suite.walker.Physics): walker_loop,
}  # by task and physics


def _loop(env: Any, observed: Parts, traced: Parts, pay: Pay, derive: Calls = ()) -> ClosedLoop:
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

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, bool]:
        return pay(after, actions), True

    return ClosedLoop(data, advance, observed, traced, judge)


def _difference(
    end: np.ndarray, start: np.ndarray, frame: np.ndarray | None = None, size: int = 3
) -> tuple[list[Call], np.ndarray, np.ndarray]:
    """Return calls that make end - start, in a frame's coordinates if any, and its square.

    And where they put the difference, cut to `size`, and its squared length.
    """
    vector, local, squared = np.zeros(len(end)), np.zeros(3), np.zeros(1)
    calls: list[Call] = [(np.subtract, end, start, vector)]
    if frame is not None:
        calls.append((np.dot, vector, frame.reshape(3, 3), local))
        vector = local[:size]
    return [*calls, (np.dot, vector, vector, squared.reshape(()))], vector, squared


def _within(outside: Any, beyond: Any) -> Any:
    """Return rewards.tolerance of what lies `outside` bounds (within: 0 or less), else beyond."""
    if isinstance(outside, float):
        return 1.0 if outside <= 0 else beyond
    return np.where(outside <= 0, 1.0, beyond)


def _inside(outside: Any) -> Any:
    """Return rewards.tolerance without a margin."""
    return _within(outside, 0.0)


def _gaussian(outside: Any, margin: float) -> Any:
    """Return rewards.tolerance in its default form."""
    return _within(outside, np.exp(-0.5 * power(outside / margin * GAUSSIAN)))


def _bell(value: Any, margin: float) -> Any:
    """Return rewards.tolerance(value, margin=margin) as of an array: its square is the product."""
    scaled = abs(value) / margin * GAUSSIAN
    return np.exp(-0.5 * (scaled * scaled))


def _linear(outside: Any, margin: float, value_at_margin: float) -> Any:
    """Return rewards.tolerance in its linear form."""
    return _within(outside, np.maximum(1 - outside / margin * (1 - value_at_margin), 0.0))


def _little_control(actions: np.ndarray) -> Any:
    """Pay for little control, as the suite does: from 0.8 to 1, at rest."""
    effort = np.maximum(1 - np.square(actions.astype(float)), 0.0)
    return (4 + np.add.reduce(effort, axis=-1) / effort.shape[-1]) / 5
