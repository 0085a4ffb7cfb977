"""The DDPG learner alone, a rival. A generation is a number of training steps on rank 0, as in td3.py.

Source: Lillicrap et al. 2016. The other ranks share the evaluations.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from esac_mpi.algorithms import td3
from esac_mpi.algorithms.declaration import (
    Declaration,
    Learning,
    at_root,
    every_generation,
    never,
    nobody,
    none,
    nowhere,
)
from esac_mpi.algorithms.td3 import added, board, generation, reserve
from esac_mpi.comm.contracts import Memory
from esac_mpi.play.params import THETA_SAC, Params

__all__ = ["DECLARES", "State", "board", "generation", "init"]

DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "ddpg",
        actor=lambda state: state.theta,
        ranks=at_root,
        reserve=reserve,
        added=added,
        own_env=nowhere,
        beside=never,
        cut=lambda config: "ddpg.steps_per_generation" * (config.ddpg.episodes_on == "root"),
        interval=every_generation,
    ),
    discrete=True,
    evolution=None,
    work="episodes",
    policies={"ddpg": "the DDPG actor"},
    apart=False,
    fitness="ddpg_episodic_return",
    operators=none,
    output=None,
    head_scale=1.0,
    offspring=nobody,
)


@dataclass
class State(td3.State):
    """All that changes, beside the learner on rank 0."""

    NAME: ClassVar[str] = "ddpg"


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation: SAC's initial mean, so that rivals start alike."""
    return State(world.share(params.initial(THETA_SAC)), np.zeros((3, params.layout.sizes[0])))
