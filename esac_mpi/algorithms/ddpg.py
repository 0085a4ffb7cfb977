"""The DDPG learner alone, a rival: a generation is training steps on rank 0, as in td3.py.

Source: Lillicrap et al. 2016. The other ranks share the evaluations.
"""

from dataclasses import dataclass
from typing import ClassVar

from esac_mpi.algorithms import td3
from esac_mpi.algorithms.td3 import board, generation
from esac_mpi.comm.contracts import Memory
from esac_mpi.play.params import Params

__all__ = ["DECLARES", "State", "board", "generation", "init"]

DECLARES = td3.declaration("ddpg", discrete=True)


@dataclass
class State(td3.State):
    """All that changes, beside the learner on rank 0."""

    NAME: ClassVar[str] = "ddpg"


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation: TD3's."""
    start = td3.init(params, world)
    return State(start.theta, observation_sums=start.observation_sums)
