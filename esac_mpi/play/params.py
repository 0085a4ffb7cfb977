"""What never changes in a run, and what is made of it alone."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from esac_mpi.comm.contracts import World
from esac_mpi.config import Config
from esac_mpi.envs import Env, make
from esac_mpi.operators.policy import Layout, Normaliser, Policy
from esac_mpi.play.counters import Progress
from esac_mpi.play.epsilon import Epsilon, Philox

S = TypeVar("S", bound=Progress, covariant=True)
L = TypeVar("L", covariant=True)

Row = dict[str, Any]  # columns of a generation, by name
THETA_ES, THETA_SAC = 0, 1  # which network an initial vector is drawn for
MEMBERS = 1000  # ERL's members: this and their number


@dataclass(frozen=True)
class Params:
    """What never changes in a run."""

    config: Config
    layout: Layout
    horizon: int  # of an episode [steps]
    epsilon: Epsilon  # how the noise of a slot is made
    # of learners/: GeneticOperators or Individuals, if an algorithm declares them on every rank
    operators: Any = None
    # where plays what goes on beside others' episodes, on ranks with such work
    own_env: Env | None = None

    def initial(self, network: int) -> np.ndarray:
        """Draw a policy's weights before the first generation, float32 [d]."""
        policy = self.config.policy
        return self.layout.scale(0.0 if policy.linear else 1.0) * self.layout.initial(
            self.config.seed, network
        )

    def unseen(self) -> np.ndarray:
        """Return the sums over no observations, float64 [3, observation]."""
        return np.zeros((3, self.layout.sizes[0]))


@dataclass(frozen=True)
class Generation(Generic[S, L]):
    """What a generation is made with: `now`, handed on whole by an algorithm to its parts."""

    params: Params
    state: S
    world: World
    env: Env
    learner: L | None  # on rank 0
    k: int  # its number, one more than the state's until that is the next one's
    scale: np.ndarray | None = None  # float32 [d] of a slot's noise; None: 1

    def epsilon(self, slot: int, block: int, part: slice) -> np.ndarray:
        """Make a block of a slot's noise, float32, read-only."""
        made = self.params.epsilon.block(self.k, slot, block, part)
        return made if self.scale is None else made * self.scale[part]


def make_env(config: Config) -> Env:
    """Make a configuration's task. Raises TaskError."""
    return make(config.task.id, config.task.horizon, config.task.kwargs)


def make_layout(config: Config, env: Env) -> Layout:
    """Return the layout of a run's policies."""
    network = config.policy
    sizes = env.observation_size, *network.hidden, env.action_size
    return Layout(sizes, network.layer_norm, network.path_gain(sizes[0]))


def make_params(config: Config, env: Env) -> Params:
    """Make parameters for a look at a run: its noise is drawn, and ranks take no gradients."""
    return Params(config, make_layout(config, env), env.horizon, Philox(config.seed))


def make_policy(
    params: Params, env: Env, normaliser: Normaliser | None = None, output: str | None = None
) -> Policy:
    """Make a policy of the run's layout and the task's bounds; output: replaces policy.output."""
    network = params.config.policy
    return Policy(
        params.layout, network.activation, output or network.output, env.low, env.high, normaliser
    )


def make_actor(params: Params, normaliser: Normaliser | None = None) -> Policy:
    """Return a policy of the run's layout with actions in [-1, 1], as transitions have them."""
    ones = np.ones(params.layout.sizes[-1])
    return Policy(params.layout, params.config.policy.activation, "tanh", -ones, ones, normaliser)
