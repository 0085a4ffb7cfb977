"""Gymnasium's MuJoCo tasks, bit for bit, without Gymnasium's cost per step.

Each function takes the library's environment and returns its closed loop. Observation, reward and
termination are those of Gymnasium's documentation, in the order of operations and the types of
its code, so that every bit agrees; a reset draws the library's numbers. Left out is what changes
no bit: wrappers, the info dictionary, copies in float64, and mj_rnePostConstraint but where
observation or reward read the contact forces cfrc_ext; the physics reads nothing that it computes.

The formulas are those of Gymnasium 1.4. Another version, class, wrapper or parameter is left to the
library.
"""

import inspect
from collections.abc import Callable
from functools import partial
from math import inf, nextafter, sqrt
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from mujoco import mj_forward, mj_resetData, mj_rnePostConstraint, mj_step
from numpy import maximum, minimum, square
from numpy.random import PCG64, Generator

from esac_mpi.envs.closed_loop import Call, Calls, ClosedLoop, Judge, Part, Parts, is_patched, power

VERSION = "1.4."
reduce_sum, accumulate = np.add.reduce, np.add.accumulate  # np.sum calls the first


def own_loop(env: gymnasium.Env[Any, Any]) -> ClosedLoop | None:
    """Return the closed loop of an environment of `gymnasium.make`; None if it is not of TASKS."""
    task: Any = env.unwrapped
    start = TASKS.get(f"{type(task).__module__}:{type(task).__name__}")
    bare = type(env) is TimeLimit and type(env.env) is OrderEnforcing and env.env.env is task
    if start is None or not bare or not gymnasium.__version__.startswith(VERSION):
        return None
    return start(task) if _has_defaults(task) else None


def crawl(env: Any, unseen: int, normal: bool = False) -> ClosedLoop:
    """Play HalfCheetah-v5 or Swimmer-v5: pay for speed, less the cost of control.

    unseen: positions that are not observed, x or x and y. normal: see `_loop`.
    """
    forward, control, dt = env._forward_reward_weight, env._ctrl_cost_weight, env.dt
    qpos = env.data.qpos

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return forward * ((after[0] - before[0]) / dt) - _control_cost(control, actions), True

    return _loop(env, [qpos[unseen:], env.data.qvel], [qpos[:1]], judge, normal=normal)


def hop(env: Any) -> ClosedLoop:
    """Play Hopper-v5 or Walker2d-v5: pay for speed, less control; end outside healthy ranges."""
    forward, control, survival = _weights(env)
    dt, qpos, qvel = env.dt, env.data.qpos, env.data.qvel
    healthy = [(qpos[1:2], *env._healthy_z_range), (qpos[2:3], *env._healthy_angle_range)]
    if hasattr(env, "_healthy_state_range"):  # Hopper's
        low, high = env._healthy_state_range
        healthy += [(qpos[2:], low, high), (qvel, low, high)]

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        gain = forward * ((after[0] - before[0]) / dt) + healthy * survival
        return gain - _control_cost(control, actions), healthy

    return _loop(env, [qpos[1:], (qvel, -10, 10)], [qpos[:1], *healthy], judge)


def ant(env: Any) -> ClosedLoop:
    """Play Ant-v5: pay for speed, less control and contact; end when height leaves its range."""
    data, dt = env.data, env.dt
    forward, control, survival = _weights(env)
    contact, (force_min, force_max) = env._contact_cost_weight, env._contact_force_range
    z_min, z_max = env._healthy_z_range
    forces, clipped, cost = data.cfrc_ext, np.empty_like(data.cfrc_ext), np.zeros(1)

    def feel() -> None:
        minimum(maximum(forces, force_min, out=clipped), force_max, out=clipped)
        cost[0] = contact * _square_sum(clipped)

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        costs = _control_cost(control, actions) + after[1]
        return (after[0] - before[0]) / dt * forward + healthy * survival - costs, healthy

    # its bounds are healthy
    height = (data.qpos[2:3], nextafter(z_min, -inf), nextafter(z_max, inf))
    traced = [data.xpos[env._main_body, :1], cost, height, data.qpos, data.qvel]
    observed = [data.qpos[2:], data.qvel, clipped[1:]]
    return _loop(env, observed, traced, judge, [(feel,)], forces=True, normal=True)


def humanoid(env: Any) -> ClosedLoop:
    """Play Humanoid-v5: pay for its centre's speed, less control and contact; end as Ant-v5."""
    data, dt, masses = env.data, env.dt, env.model.body_mass
    forward, control, survival = _weights(env)
    contact, (cost_min, cost_max) = env._contact_cost_weight, env._contact_cost_range
    mass, forces, ctrl, centres = masses.sum().item(), data.cfrc_ext, data.ctrl, data.xipos
    centre, cost = np.zeros(1), np.zeros(1)

    def weigh() -> None:
        # row after row, as the library's sum adds them
        centre[0] = accumulate(masses * centres[:, 0]).item(-1) / mass

    def feel() -> None:
        # in this order a nan stays one
        contact_cost = min(max(contact * _square_sum(forces), cost_min), cost_max)
        cost[0] = control * _square_sum(ctrl) + contact_cost

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return forward * ((after[0] - before[0]) / dt) + healthy * survival - after[1], healthy

    bodies = [field[1:] for field in (data.cinert, data.cvel)]  # without the world
    observed = [data.qpos[2:], data.qvel, *bodies, data.qfrc_actuator[6:], forces[1:]]
    traced: list[Part] = [centre, cost, (data.qpos[2:3], *env._healthy_z_range)]
    return _loop(env, observed, traced, judge, [(weigh,), (feel,)], [(weigh,)], forces=True)


def inverted_pendulum(env: Any) -> ClosedLoop:
    """Play InvertedPendulum-v5: 1 for each step with the pole within 0.2 rad of upright."""
    qpos, qvel, beyond = env.data.qpos, env.data.qvel, nextafter(0.2, inf)

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return 1.0 * healthy, healthy

    return _loop(env, [qpos, qvel], [(qpos[1:2], -beyond, beyond), qpos, qvel], judge)


def inverted_double_pendulum(env: Any) -> ClosedLoop:
    """Play InvertedDoublePendulum-v5: a bonus less distance and speed, while the tip is up."""
    data, survival = env.data, env._healthy_reward
    angles, sines, cosines = data.qpos[1:], np.zeros(2), np.zeros(2)

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        x, y, v1, v2 = after
        upright = 1 - (y <= 1)
        distance_penalty = 0.01 * power(x) + power(y - 2)
        velocity_penalty = 1e-3 * power(v1) + 5e-3 * power(v2)
        return survival * upright - distance_penalty - velocity_penalty, upright

    rail = data.qfrc_constraint[:1]
    observed = [data.qpos[:1], sines, cosines, (data.qvel, -10, 10), (rail, -10, 10)]
    traced = [data.site_xpos[0, :1], (data.site_xpos[0, 2:], 1, inf), data.qvel[1:]]
    derive = [(np.sin, angles, sines), (np.cos, angles, cosines)]
    return _loop(env, observed, traced, judge, derive, normal=True)


def reacher(env: Any) -> ClosedLoop:
    """Play Reacher-v5: pay less the distance of fingertip and target, less the cost of control."""
    data, near, control = env.data, env._reward_dist_weight, env._reward_control_weight
    fingertip, target = data.body("fingertip").xpos, data.body("target").xpos
    angles, cosines, sines = data.qpos[:2], np.zeros(2), np.zeros(2)
    vector, distance = np.zeros(3), np.zeros(1)

    def measure() -> None:
        np.subtract(fingertip, target, vector)
        distance[0] = sqrt(vector.dot(vector))

    def judge(before: Any, after: Any, actions: np.ndarray, healthy: Any) -> tuple[Any, Any]:
        return -after[0] * near - _control_cost(control, actions), True

    observed = [cosines, sines, data.qpos[2:], data.qvel[:2], vector[:2]]
    derive = [(np.cos, angles, cosines), (np.sin, angles, sines), (measure,)]
    return _loop(env, observed, [distance], judge, derive)


_DOUBLE = "gymnasium.envs.mujoco.inverted_double_pendulum"
TASKS: dict[str, Callable[[Any], ClosedLoop]] = {
    "gymnasium.envs.mujoco.ant_v5:AntEnv": ant,
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": partial(crawl, unseen=1, normal=True),
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": hop,
    "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv": humanoid,
    f"{_DOUBLE}_v5:InvertedDoublePendulumEnv": inverted_double_pendulum,
    "gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv": inverted_pendulum,
    "gymnasium.envs.mujoco.reacher_v5:ReacherEnv": reacher,
    "gymnasium.envs.mujoco.swimmer_v5:SwimmerEnv": partial(crawl, unseen=2),
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": hop,
}  # by entry point


def _has_defaults(task: Any) -> bool:
    """Whether a task keeps every default of its constructor but the camera's, and draws nothing."""
    # here: a Box2D task need not wait for its imageio
    from gymnasium.envs.mujoco.mujoco_env import expand_model_path

    for name, parameter in inspect.signature(type(task).__init__).parameters.items():
        if parameter.default is inspect.Parameter.empty or name == "default_camera_config":
            continue
        if name == "xml_file":
            same = task.fullpath == expand_model_path(parameter.default)
        else:
            value = getattr(task, f"_{name}", getattr(task, name, None))
            same = value == parameter.default and type(value) is type(parameter.default)
        if not same:
            return False
    return task.render_mode is None and not is_patched(task)


def _loop(
    env: Any, observed: Parts, traced: Parts, judge: Judge, derive: Calls = (), begin: Calls = (),
    forces: bool = False, normal: bool = False,
) -> ClosedLoop:  # fmt: skip
    """Close the loop.

    derive: calls that make what is observed or traced of the simulator's state. begin: those that
    make what `judge` reads of before a step. forces: those of contacts are read. normal: a start's
    velocities are, not uniform.
    """
    model, data = env.model, env.data
    advance: list[Call] = [(mj_step, model, data, env.frame_skip)]
    if forces:
        advance.append((mj_rnePostConstraint, model, data))
    advance += derive
    scale: Any = getattr(env, "_reset_noise_scale", None)
    qpos, qvel, nq, nv = data.qpos, data.qvel, model.nq, model.nv

    def restart(seed: int) -> None:
        random = Generator(PCG64(seed))
        mj_resetData(model, data)
        qpos[:] = env.init_qpos + random.uniform(-scale, scale, nq)
        noise = scale * random.standard_normal(nv) if normal else random.uniform(-scale, scale, nv)
        qvel[:] = env.init_qvel + noise
        mj_forward(model, data)
        for function, *arguments in derive:
            function(*arguments)

    own = None if scale is None else restart  # Reacher's draws until its target is near
    return ClosedLoop(data, advance, observed, traced, judge, begin, own)


def _weights(env: Any) -> tuple[float, float, float]:
    return env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward


def _control_cost(weight: float, actions: np.ndarray) -> Any:
    """Weight |action|^2 [action] or [n, action], in its float32 as in the library, then float64."""
    squares = square(actions)
    # numpy adds fewer than eight numbers one after another, which accumulate does too, 2 us sooner
    few = squares.shape[-1] < 8
    cost = weight * (accumulate(squares.T)[-1] if few else reduce_sum(squares, axis=-1))
    return cost.astype(float) if actions.ndim > 1 else float(cost)


def _square_sum(values: np.ndarray) -> float:
    return float(reduce_sum(square(values), axis=None))
