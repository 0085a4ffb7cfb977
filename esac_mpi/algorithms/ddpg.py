"""The DDPG learner alone, a rival. A generation is a number of training steps on rank 0, as in td3.py.

Source: Lillicrap et al. 2016. The other ranks share the evaluations.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from esac_mpi.algorithms import td3
from esac_mpi.algorithms.es import THETA_SAC, Params
from esac_mpi.algorithms.td3 import board, generation

__all__ = ["Params", "State", "board", "generation", "init"]


@dataclass
class State(td3.State):
    """All that changes, beside the learner on rank 0."""

    NAME: ClassVar[str] = "ddpg"


def init(params: Params, world: Any) -> State:
    """Return the state before the first generation: SAC's initial mean, so that rivals start alike."""
    return State(world.share(params.layout.initial(params.config.seed, THETA_SAC)))
