"""A task as its library makes it, without us, and its physics."""

from typing import Any

import numpy as np


class Plain:
    """A task as its library makes it, without us, and its physics."""

    def __init__(self, task: str) -> None:
        import mujoco

        self._mujoco = mujoco
        self._dm = task.startswith("dm_control/")
        if self._dm:
            from dm_control import suite

            domain, name = task.removeprefix("dm_control/").removesuffix("-v0").split("-", 1)
            self._env: Any = suite.load(
                domain.replace("-", "_"), name.replace("-", "_"), task_kwargs={"random": 0}
            )
            physics, self._substeps = self._env.physics, int(self._env._n_sub_steps)
            self._model, self._data = physics.model.ptr, physics.data.ptr
        else:
            import gymnasium

            self._env = gymnasium.make(task)
            plain: Any = self._env.unwrapped
            self._model, self._data, self._substeps = plain.model, plain.data, plain.frame_skip
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode of a seed; return its observation."""
        if not self._dm:
            return self._env.reset(seed=seed)[0]
        self._env.task.random.seed(seed)
        return _concatenated(self._env.reset().observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Take an action; return the observation and whether the episode has ended."""
        if not self._dm:
            observation, _, terminated, truncated, _ = self._env.step(action)
            return observation, terminated or truncated
        timestep = self._env.step(action)
        return _concatenated(timestep.observation), timestep.last()

    def state(self) -> np.ndarray:
        """Return all that the physics goes on from."""
        state = np.zeros(self._mujoco.mj_stateSize(self._model, self._kind))
        self._mujoco.mj_getState(self._model, self._data, state, self._kind)
        return state

    def restore(self, state: np.ndarray) -> None:
        """Put the physics back."""
        self._mujoco.mj_setState(self._model, self._data, state, self._kind)

    def bare_step(self, action: np.ndarray) -> None:
        """Advance the physics by one control step, and nothing else."""
        self._data.ctrl[:] = action
        self._mujoco.mj_step(self._model, self._data, nstep=self._substeps)


def _concatenated(observation: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()])
