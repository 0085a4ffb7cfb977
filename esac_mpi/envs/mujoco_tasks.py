"""Gymnasium's MuJoCo tasks without Gymnasium's cost per step: the library's model, its state and its formulas, bit for bit.

Each function takes the library's environment and returns its `step`. Observation, reward and termination are those of
Gymnasium's documentation, in the order of operations and the types of its code, so that every bit agrees; resets remain the
library's. Left out is what changes no bit: wrappers, the info dictionary, copies in float64, and mj_rnePostConstraint but
where observation or reward read the contact forces cfrc_ext; the physics reads nothing of what it computes.

The formulas are those of Gymnasium 1.4. Another version, class, wrapper or parameter is left to the library.
"""

import inspect
from collections.abc import Callable
from math import isfinite, sqrt
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from mujoco import mj_rnePostConstraint, mj_step
from numpy import concatenate, maximum, minimum, square

from esac_mpi.envs import Step

VERSION = "1.4."
FLOAT32 = np.dtype(np.float32)
reduce_sum, accumulate = np.add.reduce, np.add.accumulate  # np.sum calls the first


def own_step(env: gymnasium.Env[Any, Any]) -> Step | None:
    """Return the step of an environment as `gymnasium.make` gives it; None where it is not exactly one of TASKS."""
    task: Any = env.unwrapped
    start = TASKS.get(f"{type(task).__module__}:{type(task).__name__}")
    bare = type(env) is TimeLimit and type(env.env) is OrderEnforcing and env.env.env is task
    if start is None or not bare or not _has_defaults(task) or not gymnasium.__version__.startswith(VERSION):
        return None
    return start(task)


def half_cheetah(env: Any) -> Step:
    """Step HalfCheetah-v5: observe all but x; the reward is the speed less the cost of control."""
    return _crawl(env, (env.data.qpos[1:], env.data.qvel))


def swimmer(env: Any) -> Step:
    """Step Swimmer-v5: observe all but x and y; the reward is the speed less the cost of control."""
    return _crawl(env, (env.data.qpos[2:], env.data.qvel))


def _crawl(env: Any, observed: tuple[np.ndarray, ...]) -> Step:
    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    forward, control = env._forward_reward_weight, env._ctrl_cost_weight
    qpos, ctrl = data.qpos, data.ctrl

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        x = qpos.item(0)
        ctrl[:] = action
        mj_step(model, data, frames)
        reward = forward * ((qpos.item(0) - x) / dt) - _control_cost(control, action)
        return concatenate(observed, dtype=FLOAT32), reward, False

    return step


def hopper(env: Any) -> Step:
    """Step Hopper-v5: pay for speed, less control; end when height, angle or any other part of the state leaves its range."""
    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    (z_min, z_max), (angle_min, angle_max) = env._healthy_z_range, env._healthy_angle_range
    state_min, state_max = env._healthy_state_range
    qpos, qvel, ctrl = data.qpos, data.qvel, data.ctrl
    place = qpos[1:]

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        before = qpos.item(0)
        ctrl[:] = action
        mj_step(model, data, frames)
        x, z, *state = qpos.tolist()
        healthy = z_min < z < z_max and angle_min < state[0] < angle_max
        healthy = healthy and _within(state, state_min, state_max) and _within(qvel.tolist(), state_min, state_max)
        reward = forward * ((x - before) / dt) + healthy * survival - _control_cost(control, action)
        return concatenate((place, _clip10(qvel)), dtype=FLOAT32), reward, not healthy

    return step


def walker2d(env: Any) -> Step:
    """Step Walker2d-v5: pay for speed, less control; end when height or angle leaves its range."""
    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    (z_min, z_max), (angle_min, angle_max) = env._healthy_z_range, env._healthy_angle_range
    qpos, qvel, ctrl = data.qpos, data.qvel, data.ctrl
    place = qpos[1:]

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        before = qpos.item(0)
        ctrl[:] = action
        mj_step(model, data, frames)
        x, z, angle, *_ = qpos.tolist()
        healthy = z_min < z < z_max and angle_min < angle < angle_max
        reward = forward * ((x - before) / dt) + healthy * survival - _control_cost(control, action)
        return concatenate((place, _clip10(qvel)), dtype=FLOAT32), reward, not healthy

    return step


def ant(env: Any) -> Step:
    """Step Ant-v5: pay for speed, less control and clipped contact forces; end when its height leaves its range."""
    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    contact, (force_min, force_max), (z_min, z_max) = env._contact_cost_weight, env._contact_force_range, env._healthy_z_range
    qpos, qvel, ctrl, forces, torso = data.qpos, data.qvel, data.ctrl, data.cfrc_ext, data.xpos[env._main_body]
    clipped = np.empty_like(forces)  # [body, 6]
    observed = (qpos[2:], qvel, clipped[1:].reshape(-1))

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        x = torso.item(0)
        ctrl[:] = action
        mj_step(model, data, frames)
        mj_rnePostConstraint(model, data)
        velocity = (torso.item(0) - x) / dt
        minimum(maximum(forces, force_min, out=clipped), force_max, out=clipped)
        position = qpos.tolist()
        healthy = z_min <= position[2] <= z_max and all(map(isfinite, position)) and all(map(isfinite, qvel.tolist()))
        costs = _control_cost(control, action) + contact * _square_sum(clipped)
        reward = velocity * forward + healthy * survival - costs
        return concatenate(observed, dtype=FLOAT32), reward, not healthy

    return step


def humanoid(env: Any) -> Step:
    """Step Humanoid-v5: pay for its centre of mass's speed, less control and contact; end when its height leaves its range."""
    model, data, frames, dt = env.model, env.data, env.frame_skip, env.dt
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    contact, (cost_min, cost_max), (z_min, z_max) = env._contact_cost_weight, env._contact_cost_range, env._healthy_z_range
    qpos, ctrl, forces, centres, masses = data.qpos, data.ctrl, data.cfrc_ext, data.xipos, model.body_mass
    mass = masses.sum().item()
    bodies = [field[1:].reshape(-1) for field in (data.cinert, data.cvel)]  # without the world
    observed = (qpos[2:], data.qvel, *bodies, data.qfrc_actuator[6:], forces[1:].reshape(-1))

    def centre() -> float:
        return accumulate(masses * centres[:, 0]).item(-1) / mass  # row after row, as the library's sum adds them

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        x = centre()
        ctrl[:] = action
        mj_step(model, data, frames)
        mj_rnePostConstraint(model, data)
        velocity = (centre() - x) / dt
        healthy = z_min < qpos.item(2) < z_max
        contact_cost = min(max(contact * _square_sum(forces), cost_min), cost_max)  # in this order a nan stays one
        costs = control * _square_sum(ctrl) + contact_cost
        reward = forward * velocity + healthy * survival - costs
        return concatenate(observed, dtype=FLOAT32), reward, not healthy

    return step


def inverted_pendulum(env: Any) -> Step:
    """Step InvertedPendulum-v5: 1 for each step with the pole within 0.2 rad of upright."""
    model, data, frames = env.model, env.data, env.frame_skip
    qpos, qvel, ctrl = data.qpos, data.qvel, data.ctrl

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        ctrl[:] = action
        mj_step(model, data, frames)
        healthy = abs(qpos.item(1)) <= 0.2 and all(map(isfinite, qpos.tolist())) and all(map(isfinite, qvel.tolist()))
        return concatenate((qpos, qvel), dtype=FLOAT32), float(healthy), not healthy

    return step


def inverted_double_pendulum(env: Any) -> Step:
    """Step InvertedDoublePendulum-v5: a bonus less distance and speed, until the tip is no higher than 1 m."""
    model, data, frames, survival = env.model, env.data, env.frame_skip, env._healthy_reward
    qvel, ctrl, tip = data.qvel, data.ctrl, data.site_xpos[0]
    cart, angles, rail = data.qpos[:1], data.qpos[1:], data.qfrc_constraint[:1]

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        ctrl[:] = action
        mj_step(model, data, frames)
        x, _, y = tip  # numpy's scalars, here and below: a Python power would raise where these overflow
        _, v1, v2 = qvel
        terminated = bool(y <= 1)
        distance_penalty = 0.01 * x**2 + (y - 2) ** 2
        velocity_penalty = 1e-3 * v1**2 + 5e-3 * v2**2
        reward = survival * (not terminated) - distance_penalty - velocity_penalty
        observed = (cart, np.sin(angles), np.cos(angles), _clip10(qvel), _clip10(rail))
        return concatenate(observed, dtype=FLOAT32), float(reward), terminated

    return step


def reacher(env: Any) -> Step:
    """Step Reacher-v5: the reward is less the distance of fingertip and target, less the cost of control."""
    model, data, frames = env.model, env.data, env.frame_skip
    near, control = env._reward_dist_weight, env._reward_control_weight
    ctrl, fingertip, target = data.ctrl, data.body("fingertip").xpos, data.body("target").xpos
    angles, goal, speeds = data.qpos[:2], data.qpos[2:], data.qvel[:2]

    def step(action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        ctrl[:] = action
        mj_step(model, data, frames)
        vector = fingertip - target
        reward = -sqrt(vector.dot(vector)) * near - _control_cost(control, action)
        observed = (np.cos(angles), np.sin(angles), goal, speeds, vector[:2])
        return concatenate(observed, dtype=FLOAT32), reward, False

    return step


TASKS: dict[str, Callable[[Any], Step]] = {
    "gymnasium.envs.mujoco.ant_v5:AntEnv": ant,
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": half_cheetah,
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": hopper,
    "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv": humanoid,
    "gymnasium.envs.mujoco.inverted_double_pendulum_v5:InvertedDoublePendulumEnv": inverted_double_pendulum,
    "gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv": inverted_pendulum,
    "gymnasium.envs.mujoco.reacher_v5:ReacherEnv": reacher,
    "gymnasium.envs.mujoco.swimmer_v5:SwimmerEnv": swimmer,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": walker2d,
}  # by entry point


def _has_defaults(task: Any) -> bool:
    """Return whether a task keeps the default of every parameter of its constructor, the camera's aside, and draws nothing."""
    from gymnasium.envs.mujoco.mujoco_env import expand_model_path  # here: a Box2D task need not wait for its imageio

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
    return task.render_mode is None


def _control_cost(weight: float, action: np.ndarray) -> float:
    """Return weight * |action|^2, in the action's float32 as in the library, and only then as a float."""
    squares = square(action)
    # numpy adds fewer than eight numbers one after another, which accumulate does too, 2 us sooner than a reduction
    return float(weight * (accumulate(squares)[-1] if len(squares) < 8 else reduce_sum(squares)))


def _square_sum(values: np.ndarray) -> float:
    return float(reduce_sum(square(values), axis=None))


def _clip10(values: np.ndarray) -> np.ndarray:
    """Return np.clip(values, -10, 10), which costs more than to see that there is nothing to clip."""
    return values if _within(values.tolist(), -10.0, 10.0) else np.clip(values, -10, 10)


def _within(values: list[float], low: float, high: float) -> bool:
    for value in values:  # noqa: SIM110 - a loop takes half the time of all(...), and of numpy
        if not low < value < high:
            return False
    return True
