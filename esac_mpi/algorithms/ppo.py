"""PPO alone, a rival, stable-baselines3's: a generation is a rollout on rank 0 and epochs on it.

Source: Schulman et al. 2017. The other ranks share the evaluations.
"""

from dataclasses import dataclass, field

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, Learning
from esac_mpi.comm.contracts import Learner, Memory, World
from esac_mpi.envs import Env
from esac_mpi.operators.policy import LOGIT_SCALE
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Standardising
from esac_mpi.play.learner_phases import Steps
from esac_mpi.play.marks import policy
from esac_mpi.play.params import Params, Row
from esac_mpi.play.rollout import Board

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "ppo",
        actor=lambda state: state.theta,
        reserve=lambda config, _: 0,  # it has no replay
        added=lambda config, _: 0,
        own_env=lambda config, rank: rank == 0,
    ),
    discrete=True,
    work="episodes",
    policies={"ppo": "the PPO actor"},
    fitness="ppo_episodic_return",
    output="clip",  # its mean is not squashed, its actions are cut off
    head_scale=LOGIT_SCALE,
)


@dataclass
class State(Standardising):
    """All that changes, beside the learner on rank 0."""

    # float32 [d] the mean; in discrete tasks what the choice is made by
    theta: np.ndarray = field(metadata=policy("ppo"))


def board(params: Params) -> Board:
    """Return the shape of a generation's board: nothing, rank 0 plays alone."""
    return Board(0, 0)


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation: zeros, as the library draws weights on rank 0."""
    zeros = np.zeros(params.layout.d, np.float32)
    return State(world.share(zeros), observation_sums=params.unseen())


def generation(
    params: Params, state: State, world: World, env: Env, learner: Learner | None
) -> tuple[Row, Row]:
    """Make one generation: a rollout of steps_per_generation steps and its updates.

    Returns its metrics and its timing. The learner's episodes carry on between generations, and so
    are played in an environment of its own.
    """
    options, own_env = params.config.ppo, params.own_env

    def steps(learner: Learner, k: int, sums: np.ndarray | None) -> Steps:
        return learner.begin(own_env, k, 0, options.steps_per_generation, True, sums)

    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta, steps, options.observation_normalisation
    )
    losses = "critic_loss", "actor_loss", "entropy"
    return {**phase.columns("ppo", "episodes", "episodic_return", *losses), **row}, timing
