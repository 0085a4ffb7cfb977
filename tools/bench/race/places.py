"""Where peers train: a task as Gymnasium makes it, or one of dm_control as ours, in Gymnasium's terms."""

from typing import Any

import numpy as np

from esac_mpi import envs

SUITE = "dm_control/"


def training_env(task: str) -> Any:
    """Return an environment for a peer to train in."""
    if not task.startswith(SUITE):
        import gymnasium

        return gymnasium.make(task)
    return adapted(envs.make(task))


def adapted(env: envs.Env) -> Any:
    """Return an environment of ours in Gymnasium's terms: seeded at the first reset, later episodes from its own generator."""
    import gymnasium
    from gymnasium.spaces import Box

    from esac_mpi.envs import spaces

    class Adapted(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space, action_space = (
            spaces.observations(env.observation_size),
            Box(env.low, env.high),
        )

        def reset(
            self, *, seed: int | None = None, options: Any = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed)
            self.observation = env.reset(int(self.np_random.integers(2**31)))
            return self.observation, {}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            try:
                self.observation, reward, terminated, truncated = env.step(
                    np.asarray(action, np.float32)
                )
            except envs.UnstablePhysics:  # an end of the episode without a reward
                return self.observation, 0.0, False, True, {}
            return self.observation, reward, terminated, truncated, {}

    return Adapted()
