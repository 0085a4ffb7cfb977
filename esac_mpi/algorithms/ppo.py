"""PPO alone, a rival: stable-baselines3's. A generation is a rollout on rank 0, and the epochs of updates on it.

Source: Schulman et al. 2017. The other ranks share the evaluations.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi.algorithms.declaration import (
    Declaration,
    Learning,
    at_root,
    every_generation,
    never,
    nobody,
    none,
)
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.envs import Env
from esac_mpi.operators.policy import LOGIT_SCALE, Normaliser
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.params import Params, Row
from esac_mpi.play.rollout import Board
from esac_mpi.play.warm_start_fields import OBSERVATIONS

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "ppo",
        actor=lambda state: state.theta,
        ranks=at_root,
        reserve=lambda config, _: 0,  # it has no replay
        added=lambda config, _: 0,
        own_env=lambda config, rank: rank == 0,
        beside=never,
        cut=none,
        interval=every_generation,
    ),
    discrete=True,
    evolution=None,
    work="episodes",
    policies={"ppo": "the PPO actor"},
    apart=False,
    fitness="ppo_episodic_return",
    operators=none,
    output="clip",  # its mean is not squashed, its actions are cut off
    head_scale=LOGIT_SCALE,
    offspring=nobody,
)


@dataclass
class State:
    """All that changes, beside the learner on rank 0."""

    theta: np.ndarray = field(
        metadata={"shared": True}
    )  # float32 [d] the mean; in discrete tasks what the choice is made by
    observation_sums: np.ndarray = field(  # float64 [3, observation]: count, sum, sum of squares
        metadata={"later": True, "part": OBSERVATIONS}
    )
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"ppo": self.theta}

    @property
    def normaliser(self) -> Normaliser | None:
        """The running standardisation of observations, or None where it is off or has seen nothing."""
        return Normaliser.of(self.observation_sums)


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: nothing, rank 0 plays alone."""
    return Board(0, 0)


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation: zeros, as the library draws its weights on rank 0 alone."""
    return State(
        world.share(np.zeros(params.layout.d, np.float32)), np.zeros((3, params.layout.sizes[0]))
    )


def generation(
    params: Params, state: State, world: World, env: Env, learner: Any
) -> tuple[Row, Row]:
    """Make one generation: a rollout of steps_per_generation steps and its updates; return its metrics and its timing.

    The learner's episodes carry on between generations, and so are played in an environment of its own.
    """
    options, own_env = params.config.ppo, params.own_env

    def steps(k: int, sums: np.ndarray | None) -> Steps:
        return learner.begin(own_env, k, 0, options.steps_per_generation, True, sums)

    standardises = options.observation_normalisation
    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta, steps, standardises
    )
    return {**metrics(phase), **row}, timing


def metrics(phase: Phase) -> Row:
    """Return a row's columns about the learner."""
    return {
        "ppo_episodes": phase.episodes,
        "ppo_episodic_return": phase.episodic_return,
        "ppo_critic_loss": phase.critic_loss,
        "ppo_actor_loss": phase.actor_loss,
        "ppo_entropy": phase.entropy,
    }
