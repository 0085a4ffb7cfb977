"""The discrete Cyclic MDP: Suri et al., ESAC, section 4. It needs no simulator.

Three states on a circle, start in S0. Clockwise pays +1, S0 -> S1 -> S2 -> S0; anticlockwise and
stay pay -1 and end the episode, which is otherwise truncated at 2000 steps, the optimum being
+2000. The three actions are discrete: a policy has three outputs, and the largest is the action
taken. The paper does not number the actions: clockwise is output 1, as in the public code; the
other two have the same effect.

Two ids, because they differ in the reward: CyclicMDP-v0 is the paper's; in CyclicMDPRepo-v0, the
public code's, the third transition, S2 -> S0, pays 2, and there is no time limit.
"""

import math

import numpy as np

from esac_mpi.envs import check_finite

# id: reward of S2 -> S0, time limit [steps]
RULES = {"CyclicMDP-v0": (1.0, 2000), "CyclicMDPRepo-v0": (2.0, math.inf)}
CLOCKWISE = 1  # which of the three outputs


class CyclicMDP:
    """The Cyclic MDP by the rules of an id, truncated at `horizon` [steps]."""

    discrete = True

    def __init__(self, id: str, horizon: int) -> None:
        self.id = id
        self.observation_size = 3  # one-hot state
        self.action_size = 3
        self.low, self.high = -np.ones(3, np.float32), np.ones(3, np.float32)
        self.horizon = horizon
        self.unstable, self.not_finite = False, ""
        self._rewards = (1.0, 1.0, RULES[id][0])  # of clockwise, by state
        self._observations = np.eye(3, dtype=np.float32)
        self.reset(0)

    def reset(self, seed: int) -> np.ndarray:
        """Start in S0, whatever the seed; return the observation, float32 [3]."""
        self._state = 0
        self._steps = 0
        return self._observations[0].copy()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take the largest output's action; return observation, reward, terminated, truncated."""
        outputs = check_finite(self, "action", np.asarray(action, np.float32))
        clockwise = np.argmax(outputs) == CLOCKWISE
        reward = self._rewards[self._state] if clockwise else -1.0
        if clockwise:
            self._state = (self._state + 1) % 3
        self._steps += 1
        observation = self._observations[self._state].copy()
        return observation, reward, not clockwise, self._steps >= self.horizon
