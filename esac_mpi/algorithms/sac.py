"""The SAC learner alone: ESAC's other half. A generation is a number of training steps on rank 0.

Source: Haarnoja et al. 2018. The other ranks share the evaluations.
"""

from dataclasses import dataclass, field

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, Learning, added_by_phases
from esac_mpi.comm.contracts import Learner, Memory, World
from esac_mpi.envs import Env
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Standardising
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.marks import policy
from esac_mpi.play.params import THETA_SAC, Params, Row
from esac_mpi.play.rollout import Board

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "sac",
        actor=lambda state: state.theta_sac,
        reserve=lambda config, _: config.sac.steps_per_generation,
        added=lambda config, _: added_by_phases(config, config.sac.steps_per_generation),
        cut=lambda config, horizon: (
            "sac.steps_per_generation",
            config.sac.steps_per_generation,
        ),
    ),
    discrete=False,
    work="episodes",
    policies={"sac": "the SAC mean"},
    fitness="sac_episodic_return",
)


@dataclass
class State(Standardising):
    """All that changes, beside the learner on rank 0."""

    theta_sac: np.ndarray = field(metadata=policy("sac"))  # float32 [d] the actor's mean


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation."""
    return State(world.share(params.initial(THETA_SAC)), observation_sums=params.unseen())


def board(params: Params) -> Board:
    """Return the shape of a generation's board: nothing, rank 0 plays alone."""
    return Board(0, 0)


def generation(
    params: Params, state: State, world: World, env: Env, learner: Learner | None
) -> tuple[Row, Row]:
    """Make one generation: train steps_per_generation steps; return its metrics and timing."""
    options = params.config.sac

    def steps(learner: Learner, k: int, sums: np.ndarray | None) -> Steps:
        return learner.begin(env, k, 0, options.steps_per_generation, True, sums)

    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta_sac, steps, options.observation_normalisation
    )
    return {**metrics(phase), **row}, timing


def metrics(phase: Phase | None) -> Row:
    """Describe the learner as a row's columns; nan where no phase ran."""
    losses = "critic_loss", "actor_loss", "value_loss", "mean_q", "temperature", "entropy"
    return (phase or Phase()).columns("sac", "episodes", "episodic_return", *losses)
