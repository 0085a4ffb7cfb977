"""The SAC learner alone: ESAC's other half. A generation is a number of training steps on rank 0.

Source: Haarnoja et al. 2018. The other ranks share the evaluations.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi.algorithms.declaration import (
    Declaration,
    Learning,
    added_by_phases,
    at_root,
    every_generation,
    never,
    nobody,
    none,
    nowhere,
)
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.envs import Env
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.params import THETA_SAC, Params, Row
from esac_mpi.play.rollout import Board
from esac_mpi.play.warm_start_fields import OBSERVATIONS

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "sac",
        actor=lambda state: state.theta_sac,
        ranks=at_root,
        reserve=lambda config, _: config.sac.steps_per_generation,
        added=lambda config, _: added_by_phases(config, config.sac.steps_per_generation),
        own_env=nowhere,
        beside=never,
        cut=lambda config: "sac.steps_per_generation",
        interval=every_generation,
    ),
    discrete=False,
    evolution=None,
    work="episodes",
    policies={"sac": "the SAC mean"},
    apart=False,
    fitness="sac_episodic_return",
    operators=none,
    output=None,
    head_scale=1.0,
    offspring=nobody,
)


@dataclass
class State:
    """All that changes, beside the learner on rank 0."""

    theta_sac: np.ndarray = field(metadata={"shared": True})  # float32 [d] the actor's mean
    observation_sums: np.ndarray = field(  # float64 [3, observation]: count, sum, sum of squares
        metadata={"later": True, "part": OBSERVATIONS}
    )
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"sac": self.theta_sac}

    @property
    def normaliser(self) -> Normaliser | None:
        """The running standardisation of observations, or None where it is off or has seen nothing."""
        return Normaliser.of(self.observation_sums)


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation."""
    return State(world.share(params.initial(THETA_SAC)), np.zeros((3, params.layout.sizes[0])))


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: nothing, rank 0 plays alone."""
    return Board(0, 0)


def generation(
    params: Params, state: State, world: World, env: Env, learner: Any
) -> tuple[Row, Row]:
    """Make one generation: train for steps_per_generation steps; return its metrics and its timing."""
    options = params.config.sac

    def steps(k: int, sums: np.ndarray | None) -> Steps:
        return learner.begin(env, k, 0, options.steps_per_generation, True, sums)

    standardises = options.observation_normalisation
    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta_sac, steps, standardises
    )
    return {**metrics(phase), **row}, timing


def metrics(phase: Phase | None) -> Row:
    """Return a row's columns about the learner; nan where no phase ran."""
    phase = phase or Phase()
    return {
        "sac_episodes": phase.episodes,
        "sac_episodic_return": phase.episodic_return,
        "sac_critic_loss": phase.critic_loss,
        "sac_actor_loss": phase.actor_loss,
        "sac_value_loss": phase.value_loss,
        "sac_mean_q": phase.mean_q,
        "sac_temperature": phase.temperature,
        "sac_entropy": phase.entropy,
    }
