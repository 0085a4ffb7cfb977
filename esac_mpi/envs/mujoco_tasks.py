"""Gymnasium's MuJoCo tasks without Gymnasium's cost per step: the library's model, its state and its formulas, bit for bit.

Each function takes the library's environment and returns its closed loop. Observation, reward and termination are those of
Gymnasium's documentation, in the order of operations and the types of its code, so that every bit agrees; resets remain the
library's. Left out is what changes no bit: wrappers, the info dictionary, copies in float64, and mj_rnePostConstraint but
where observation or reward read the contact forces cfrc_ext; the physics reads nothing of what it computes.

The formulas are those of Gymnasium 1.4. Another version, class, wrapper or parameter is left to the library.
"""

import inspect
from collections.abc import Callable, Sequence
from math import inf, nextafter, sqrt
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from mujoco import mj_rnePostConstraint, mj_step
from numpy import maximum, minimum, square

from esac_mpi.envs.closed_loop import Call, ClosedLoop, Part, healthy, powers

VERSION = "1.4."
reduce_sum, accumulate = np.add.reduce, np.add.accumulate  # np.sum calls the first


def own_loop(env: gymnasium.Env[Any, Any]) -> ClosedLoop | None:
    """Return the closed loop of an environment as `gymnasium.make` gives it; None where it is not exactly one of TASKS."""
    task: Any = env.unwrapped
    start = TASKS.get(f"{type(task).__module__}:{type(task).__name__}")
    bare = type(env) is TimeLimit and type(env.env) is OrderEnforcing and env.env.env is task
    if start is None or not bare or not _has_defaults(task) or not gymnasium.__version__.startswith(VERSION):
        return None
    return start(task)


def half_cheetah(env: Any) -> ClosedLoop:
    """Play HalfCheetah-v5: observe all but x; the reward is the speed less the cost of control."""
    return _crawl(env, 1)


def swimmer(env: Any) -> ClosedLoop:
    """Play Swimmer-v5: observe all but x and y; the reward is the speed less the cost of control."""
    return _crawl(env, 2)


def _crawl(env: Any, unseen: int) -> ClosedLoop:
    forward, control, dt, qpos = env._forward_reward_weight, env._ctrl_cost_weight, env.dt, env.data.qpos

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        return forward * ((traces[1:, 0] - traces[:-1, 0]) / dt) - _control_cost(control, actions), False

    return ClosedLoop(env.data.ctrl, _steps(env), [qpos[unseen:], env.data.qvel], [qpos[:1]], judge)


def hopper(env: Any) -> ClosedLoop:
    """Play Hopper-v5: pay for speed, less control; end when height, angle or any other part of the state leaves its range."""
    return _hop(env, [(part, *env._healthy_state_range) for part in (env.data.qpos[2:], env.data.qvel)])


def walker2d(env: Any) -> ClosedLoop:
    """Play Walker2d-v5: pay for speed, less control; end when height or angle leaves its range."""
    return _hop(env, [])


def _hop(env: Any, ranges: Sequence[Part]) -> ClosedLoop:
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    dt, qpos, qvel = env.dt, env.data.qpos, env.data.qvel
    traced: list[Part] = [qpos[:1], (qpos[1:2], *env._healthy_z_range), (qpos[2:3], *env._healthy_angle_range), *ranges]

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        speed = (traces[1:, 0] - traces[:-1, 0]) / dt
        bonus = healthy(len(actions), within) * survival
        return forward * speed + bonus - _control_cost(control, actions), not within

    return ClosedLoop(env.data.ctrl, _steps(env), [qpos[1:], (qvel, -10, 10)], traced, judge)


def ant(env: Any) -> ClosedLoop:
    """Play Ant-v5: pay for speed, less control and clipped contact forces; end when its height leaves its range."""
    data, dt = env.data, env.dt
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    contact, (force_min, force_max), (z_min, z_max) = env._contact_cost_weight, env._contact_force_range, env._healthy_z_range
    forces, clipped, cost = data.cfrc_ext, np.empty_like(data.cfrc_ext), np.zeros(1)  # [body, 6] twice

    def feel() -> None:
        minimum(maximum(forces, force_min, out=clipped), force_max, out=clipped)
        cost[0] = contact * _square_sum(clipped)

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        velocity = (traces[1:, 0] - traces[:-1, 0]) / dt
        costs = _control_cost(control, actions) + traces[1:, 1]
        return velocity * forward + healthy(len(actions), within) * survival - costs, not within

    height = (data.qpos[2:3], nextafter(z_min, -inf), nextafter(z_max, inf))  # its bounds are healthy
    traced: list[Part] = [data.xpos[env._main_body, :1], cost, height, (data.qpos, -inf, inf), (data.qvel, -inf, inf)]
    advance = [*_steps(env), (mj_rnePostConstraint, env.model, data)]
    return ClosedLoop(data.ctrl, advance, [data.qpos[2:], data.qvel, clipped[1:]], traced, judge, [(feel,)])


def humanoid(env: Any) -> ClosedLoop:
    """Play Humanoid-v5: pay for its centre of mass's speed, less control and contact; end when its height leaves its range."""
    data, dt, masses = env.data, env.dt, env.model.body_mass
    forward, control, survival = env._forward_reward_weight, env._ctrl_cost_weight, env._healthy_reward
    contact, (cost_min, cost_max) = env._contact_cost_weight, env._contact_cost_range
    mass, forces, ctrl, centres = masses.sum().item(), data.cfrc_ext, data.ctrl, data.xipos
    centre, costs = np.zeros(1), np.zeros(1)

    def weigh() -> None:
        centre[0] = accumulate(masses * centres[:, 0]).item(-1) / mass  # row after row, as the library's sum adds them

    def feel() -> None:
        contact_cost = min(max(contact * _square_sum(forces), cost_min), cost_max)  # in this order a nan stays one
        costs[0] = control * _square_sum(ctrl) + contact_cost

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        velocity = (traces[1:, 0] - traces[:-1, 0]) / dt
        return forward * velocity + healthy(len(actions), within) * survival - traces[1:, 1], not within

    bodies = [field[1:] for field in (data.cinert, data.cvel)]  # without the world
    observed = [data.qpos[2:], data.qvel, *bodies, data.qfrc_actuator[6:], forces[1:]]
    advance = [*_steps(env), (mj_rnePostConstraint, env.model, data), (feel,)]
    traced: list[Part] = [centre, costs, (data.qpos[2:3], *env._healthy_z_range)]
    return ClosedLoop(ctrl, advance, observed, traced, judge, [(weigh,)])


def inverted_pendulum(env: Any) -> ClosedLoop:
    """Play InvertedPendulum-v5: 1 for each step with the pole within 0.2 rad of upright."""
    qpos, qvel, beyond = env.data.qpos, env.data.qvel, nextafter(0.2, inf)

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        return healthy(len(actions), within).astype(float), not within

    traced: list[Part] = [(qpos[1:2], -beyond, beyond), (qpos, -inf, inf), (qvel, -inf, inf)]
    return ClosedLoop(env.data.ctrl, _steps(env), [qpos, qvel], traced, judge)


def inverted_double_pendulum(env: Any) -> ClosedLoop:
    """Play InvertedDoublePendulum-v5: a bonus less distance and speed, until the tip is no higher than 1 m."""
    data, survival = env.data, env._healthy_reward
    angles, sines, cosines = data.qpos[1:], np.zeros(2), np.zeros(2)

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        low = traces[1:, 1] <= 1
        traces[:, 1] -= 2
        x, y, v1, v2 = powers(traces[1:]).T
        distance_penalty = 0.01 * x + y
        velocity_penalty = 1e-3 * v1 + 5e-3 * v2
        return survival * ~low - distance_penalty - velocity_penalty, bool(low[-1])

    observed = [data.qpos[:1], sines, cosines, (data.qvel, -10, 10), (data.qfrc_constraint[:1], -10, 10)]
    traced: list[Part] = [data.site_xpos[0, :1], (data.site_xpos[0, 2:], 1, inf), data.qvel[1:]]
    return ClosedLoop(data.ctrl, _steps(env), observed, traced, judge, [(np.sin, angles, sines), (np.cos, angles, cosines)])


def reacher(env: Any) -> ClosedLoop:
    """Play Reacher-v5: the reward is less the distance of fingertip and target, less the cost of control."""
    data, near, control = env.data, env._reward_dist_weight, env._reward_control_weight
    angles, cosines, sines, vector = data.qpos[:2], np.zeros(2), np.zeros(2), np.zeros(3)

    def judge(traces: np.ndarray, actions: np.ndarray, within: bool) -> tuple[np.ndarray, bool]:
        distances = np.array([sqrt(vector.dot(vector)) for vector in traces[1:]])
        return -distances * near - _control_cost(control, actions), False

    apart = (np.subtract, data.body("fingertip").xpos, data.body("target").xpos, vector)
    observed = [cosines, sines, data.qpos[2:], data.qvel[:2], vector[:2]]
    derive = [(np.cos, angles, cosines), (np.sin, angles, sines), apart]
    return ClosedLoop(data.ctrl, _steps(env), observed, [vector], judge, derive)


TASKS: dict[str, Callable[[Any], ClosedLoop]] = {
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


def _steps(env: Any) -> list[Call]:
    return [(mj_step, env.model, env.data, env.frame_skip)]


def _control_cost(weight: float, actions: np.ndarray) -> np.ndarray:
    """Return weight * |action|^2 of actions [n, action], in their float32 as in the library, and only then as float64 [n]."""
    squares = square(actions)
    # numpy adds fewer than eight numbers one after another, which accumulate does too, 2 us sooner than a reduction
    sums = accumulate(squares, axis=1)[:, -1] if squares.shape[1] < 8 else reduce_sum(squares, axis=1)
    return (weight * sums).astype(float)


def _square_sum(values: np.ndarray) -> float:
    return float(reduce_sum(square(values), axis=None))
