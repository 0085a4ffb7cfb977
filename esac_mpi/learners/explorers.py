"""A learner's own actions: by numpy, step by step, or in C, in the task's closed loop."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.envs import Env
from esac_mpi.learners.network import Network
from esac_mpi.operators.kernels import Perceptron, layer_normalised
from esac_mpi.operators.policy import Layer, Normaliser
from esac_mpi.play.rollout import SLICE
from esac_mpi.play.transitions import Recorder


class Taken(NamedTuple):
    """Steps that were taken in a row."""

    rewards: list[float]  # nan: of a step from which nothing can be learned
    observation: np.ndarray  # after them
    ended: bool  # whether the episode has


class Explorer:
    """What draws the actions of a learner's actor, in [-1, 1], by numpy.

    explored(output, random): draws an action by the network's output. The weights are those at the
    start, or at the last `refresh`.
    """

    # run(observation, most): takes up to so many steps in the task's closed loop, where there is
    # one; returns its Run, their actions, also of one that the physics could not make, and their
    # transitions, as rows
    run: Callable[[np.ndarray, int], tuple[Any, np.ndarray, np.ndarray]] | None = None

    def __init__(
        self,
        actor: Network,
        activation: str,
        normaliser: Normaliser | None,
        explored: Callable[[np.ndarray, np.random.Generator], np.ndarray],
        random: np.random.Generator,
    ) -> None:
        self._actor, self._activation, self._normaliser = actor, activation, normaliser
        self._explored, self.random = explored, random
        self.refresh()

    def refresh(self) -> None:
        """Act by the weights as they are now."""
        self._layers = self._actor.numpy()

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Draw an action, float32 [a]."""
        if self._normaliser is not None:
            observation = self._normaliser(observation)
        output = forward(self._layers, self._activation, observation, self._actor.layout.linear)
        return self._explored(output, self.random)


class CompiledExplorer(Explorer):
    """SAC's actor with relu in C: the formulas of Explorer, other bits.

    Normals are drawn in the order of the steps, however many these are at once.
    """

    def __init__(
        self,
        actor: Network,
        env: Env,
        normaliser: Normaliser | None,
        random: np.random.Generator,
    ) -> None:
        self._actor, self.random = actor, random
        layout = actor.layout
        self._network = Perceptron(
            layout.sizes, "relu", "tanh", env.low, env.high, False, layout.linear, True
        )
        self._standard = (None, None) if normaliser is None else (normaliser.mean, normaliser.std)
        self._normals = np.empty((0, env.action_size), np.float32)
        if getattr(env, "closed_loop", None) is not None:
            self._loop, self.run = Recorder(env, SLICE), self._run
        self.refresh()

    def refresh(self) -> None:
        """Act by the weights as they are now."""
        self._network.load(self._actor.values.numpy())

    def _drawn(self, count: int) -> np.ndarray:
        """Return the normals of the next steps, float32 [count, a], which stay the next ones."""
        missing = max(count - len(self._normals), 0)
        new = self.random.standard_normal((missing, self._normals.shape[1]), dtype=np.float32)
        self._normals = np.concatenate([self._normals, new])
        return self._normals[:count]

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Draw an action, float32 [a]."""
        action = self._drawn(1)[0].copy()
        self._normals = self._normals[1:]
        self._network.act(observation, action, False, *self._standard)
        return action

    def _run(self, observation: np.ndarray, most: int) -> tuple[Any, np.ndarray, np.ndarray]:
        self._loop.count = 0
        run = self._loop.run(self._drive, observation, min(most, SLICE))
        taken = len(run.rewards)
        self._normals = self._normals[taken:]
        return run, self._actions[:taken], self._loop.rows[: self._loop.count]

    def _drive(
        self, loop: Any, observations: np.ndarray, traces: np.ndarray, actions: np.ndarray
    ) -> None:
        self._actions = actions
        actions[:] = self._drawn(len(actions))
        loop.run(self._network, *self._standard, observations, traces, actions)


def forward(
    layers: Sequence[Layer], activation: str, x: np.ndarray, linear: float = 0.0
) -> np.ndarray:
    """Return the output [out] for one input x [in], without torch's overhead at every step.

    layers: by `Network.numpy()`. linear: of the network's layout.
    """
    seen = x
    for weight, bias, gain, shift in layers[:-1]:
        x = x @ weight + bias[0]
        if gain is not None:
            x = layer_normalised(x, gain[0], shift[0])
        x = np.maximum(x, 0.0) if activation == "relu" else np.tanh(x)
    if len(x) < len(layers[-1].weight):
        x = np.concatenate([np.float32(1 / linear) * x, np.float32(linear) * seen])
    return x @ layers[-1].weight + layers[-1].bias[0]
