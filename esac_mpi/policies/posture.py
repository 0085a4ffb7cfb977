"""What can fall, how it is tilted, and how it stands."""

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.envs import Env, UnstablePhysics
from esac_mpi.policies.stage import library, simulator

NOISE = 0.1  # joints are within this of the model's own pose [rad]
FREE, SLIDE, HINGE = 0, 2, 3  # mjtJoint
PLANE = 0  # mjtGeom


class Body:
    """What can fall: the body of the first joint that turns, about a horizontal axis or freely.

    standing: height of its centre of mass in the model's own pose, the lowest part on the floor
    [m]. Raises Unusable.
    """

    def __init__(self, env: Env) -> None:
        state = simulator(env)
        if state is None:
            raise Unusable(f"{env.id} is not a MuJoCo task: there is no body to tilt")
        import mujoco  # here: MUJOCO_GL must have been chosen

        self._mujoco, self._env, (self._model, self._data) = mujoco, env, state
        kinds, axes = self._model.jnt_type, self._model.jnt_axis
        self._joint = next((j for j, kind in enumerate(kinds) if kind in (FREE, HINGE)), -1)
        if self._joint < 0 or (kinds[self._joint] == HINGE and abs(axes[self._joint, 1]) < 0.9):
            root = "its root does not turn about a horizontal axis"
            raise Unusable(f"{env.id}: {root}: there is nothing to tilt")
        self._free = kinds[self._joint] == FREE
        self._body = int(self._model.jnt_bodyid[self._joint])
        try:
            start = env.reset(0)
        except UnstablePhysics as error:
            raise Unusable(f"{env.id}: no start to tilt: {env.not_finite or error}") from error
        try:
            known = np.array_equal(start, self._observation())
        except Exception:  # its _get_obs takes something, gives no numbers, or does something else
            known = False
        if not known:
            told = f"{env.id}: what it observes of a state that was set is not known"
            raise Unusable(f"{told}; give it a method _get_obs() that returns its observation")
        self.tilt(0.0, np.random.default_rng(0), noise=0.0)
        self._upright = self._data.xmat[self._body].reshape(3, 3).copy()
        self.standing = float(self._data.xipos[self._body, 2])

    def tilt(self, degrees: float, random: np.random.Generator, noise: float = NOISE) -> np.ndarray:
        """Start at rest with the body leaning forward; return the observation, float32."""
        model, data, place = self._model, self._data, self._model.jnt_qposadr
        data.qpos[:], data.qvel[:] = model.qpos0, 0.0
        for joint in range(self._joint + 1, model.njnt):
            if model.jnt_type[joint] == HINGE:
                limited = model.jnt_limited[joint]
                low, high = model.jnt_range[joint] if limited else (-np.inf, np.inf)
                angle = data.qpos[place[joint]] + random.uniform(-noise, noise)
                data.qpos[place[joint]] = np.clip(angle, low, high)
        angle, root = np.radians(degrees), place[self._joint]
        if self._free:
            about_y = np.array([np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0])  # a quaternion
            part = slice(root + 3, root + 7)
            self._mujoco.mju_mulQuat(data.qpos[part], about_y, model.qpos0[part])
        else:
            data.qpos[root] += angle * np.sign(model.jnt_axis[self._joint, 1])
        self._mujoco.mj_forward(model, data)
        self._put_on_floor()
        self._mujoco.mj_forward(model, data)
        return self._observation()

    def _put_on_floor(self) -> None:
        """Let the body's lowest part touch the floor; what hangs on a rail stays."""
        model, data, first = self._model, self._data, self._model.body_jntadr[self._body]
        places = [
            model.jnt_qposadr[j]
            for j in range(first, self._joint)
            if model.jnt_type[j] == SLIDE and model.jnt_axis[j, 2] == 1
        ]
        if self._free:
            places = [model.jnt_qposadr[self._joint] + 2]
        floors = np.flatnonzero(model.geom_type == PLANE)
        touching = (model.geom_contype | model.geom_conaffinity) > 0
        parts = np.flatnonzero((model.geom_bodyid > 0) & touching)
        if places and len(floors) and len(parts):
            distance = self._mujoco.mj_geomDistance
            gaps = (distance(model, data, floors[0], part, 10.0, None) for part in parts)
            data.qpos[places[0]] -= min(gaps)

    def _observation(self) -> np.ndarray:
        env, task = self._env, library(self._env)
        if not hasattr(task, "_get_obs"):
            return env._flat(task.task.get_observation(task.physics))  # type: ignore[attr-defined]
        seen = task._get_obs()
        if isinstance(seen, dict):
            from gymnasium.spaces import flatten

            seen = flatten(task.observation_space, seen)
        return np.array(seen, np.float32).reshape(-1)

    def posture(self) -> tuple[float, float]:
        """Return (lean, forward positive [degrees], height of the body's centre of mass [m])."""
        turn = self._data.xmat[self._body].reshape(3, 3) @ self._upright.T
        lean = np.degrees(np.arccos(np.clip(turn[2, 2], -1, 1)))
        return float(np.copysign(lean, turn[0, 2])), float(self._data.xipos[self._body, 2])
