"""DeepMind Control Suite: dm_control/<domain>-<task>-v0; suite_tasks.py steps some, bit for bit."""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from dm_control import suite

from esac_mpi import envs
from esac_mpi.envs.closed_loop import Stepped
from esac_mpi.envs.suite_tasks import own_loop

envs.import_mujoco()

TASKS = {f"dm_control/{domain}-{task}-v0": (domain, task) for domain, task in suite.ALL_TASKS}


class DMControlEnv(Stepped):
    """A dm_control environment, its observations flattened in the order of its observation_spec."""

    def __init__(self, id: str, horizon: int, kwargs: Mapping[str, Any]) -> None:
        if id not in TASKS:
            raise envs.TaskError(f"Unknown task '{id}'. {envs.nearest(id, TASKS)}")
        # A fixed seed, because lqr draws its model, and not only its start state, when it is built.
        domain, task = TASKS[id]
        self._env = suite.load(domain, task, task_kwargs={**deepcopy(dict(kwargs)), "random": 0})
        action = self._env.action_spec()
        observations = self._env.observation_spec()
        self.id = id
        ends = action.minimum, action.maximum
        self.bound(*(np.broadcast_to(end, action.shape) for end in ends))
        self.observation_size = sum(math.prod(spec.shape) for spec in observations.values())
        # a float, and there is no public name; the last step is the first not below it
        limit = self._env._step_limit
        own = limit if limit == math.inf else math.ceil(limit)
        self.horizon = envs.task_horizon(id, own, horizon)
        self._names = tuple(observations)
        self.closed_loop = own_loop(self._env)
        self._warnings = envs.warning_counts(self._env.physics.data.ptr)
        try:
            self.reset(0)
        except RuntimeError as error:  # quadruped-escape wants OpenGL
            raise envs.TaskError(f"{id} cannot start an episode: {error}") from error

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode that `seed` names; return its observation, float32 [observation]."""
        # in place: the suite's tasks keep no other state between episodes
        self._env.task.random.seed(seed)
        self._steps = 0
        try:
            return envs.check_finite(self, "observation", self._flat(self._env.reset().observation))
        except Exception as error:
            self._raise_known(error)
            raise

    @property
    def layers(self) -> list[Any]:
        """The library's environment, which has no wrappers, and its task."""
        return [self._env, self._env.task]

    def _library_step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        timestep = self._env.step(self.clip(action))
        terminated = timestep.last() and timestep.discount == 0.0
        truncated = timestep.last() and not terminated
        return self._flat(timestep.observation), float(timestep.reward), terminated, truncated

    def _flat(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        parts = [np.ravel(observation[name]) for name in self._names]
        return np.concatenate(parts, dtype=np.float32)
