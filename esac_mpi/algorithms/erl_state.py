"""ERL's state: the population, the learner's actor, and what each of them remembers."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from esac_mpi.comm import contracts
from esac_mpi.config import ERL
from esac_mpi.host import ram
from esac_mpi.operators import genetics
from esac_mpi.operators.memories import EMPTY, Memory
from esac_mpi.play.counters import Progress
from esac_mpi.play.marks import SCRATCH, SHARED, Part, mark, policy
from esac_mpi.play.params import MEMBERS, THETA_SAC, Generation, Params
from esac_mpi.play.rollout import Board

NOBODY = -1  # slot of a learner's actor that is in no slot
POPULATION = Part("the population")


@dataclass
class State(Progress):
    """All that changes, beside the learner on rank 0: equal on every rank or shared by the node."""

    # float32 [k, d]
    population: np.ndarray = field(metadata=mark(shared=True, part=POPULATION, members=True))
    # float32 [d] the fittest member of the last generation
    champion: np.ndarray = field(metadata=policy("champion"))
    theta: np.ndarray = field(metadata=policy("learner"))  # float32 [d] the learner's actor
    # float32 [owners, kappa, o + a], oldest first: members', the learner's
    memories: np.ndarray = field(metadata=mark(shared=True, numbers="ages"))
    # int64 [owners, kappa] numbers of these transitions in the run, -1 = none
    ages: np.ndarray = field(metadata=SHARED)
    noise: np.ndarray  # float64 [a] the Ornstein-Uhlenbeck process
    next_memories: np.ndarray = field(metadata=SCRATCH)  # memories with the generation's episodes
    next_ages: np.ndarray = field(metadata=SCRATCH)
    critic: np.ndarray = field(metadata=SCRATCH)  # float32 [critic_size] the learner's
    # ever made by members and learner
    transitions: int = field(default=0, metadata=mark(transitions=True))
    # slot in which the learner's actor waits for the next selection
    injected: int = field(default=NOBODY, metadata=mark(part=POPULATION))

    def memory(self, owner: int) -> Memory:
        """Give a member's or the learner's memory with episodes of the generation being made."""
        return Memory(self.next_memories[owner], self.next_ages[owner])


Now: TypeAlias = Generation[State, contracts.EpisodeLearner]


def init(params: Params, world: contracts.Memory) -> State:
    """Make the state before the first generation; member 0 is its champion."""
    erl, layout, seed = params.config.erl, params.layout, params.config.seed
    members = [
        genetics.initial(layout, seed, MEMBERS + member, erl.initial_last_layer)
        for member in range(erl.population_size)
    ]
    o, *_, a = layout.sizes
    world.reserve(*births_board(params)[:2])
    now, following = make_memories(erl, o + a, world)
    size = params.operators.critic_size if params.operators and distils(erl) else 0
    return State(
        population=world.share(np.stack(members)),
        theta=world.share(genetics.initial(layout, seed, THETA_SAC)),
        champion=world.share(members[0]),
        memories=now.rows,
        ages=now.ages,
        noise=np.zeros(a),
        next_memories=following.rows,
        next_ages=following.ages,
        critic=world.shared((size,)),
    )


def make_memories(erl: ERL, width: int, world: contracts.Memory) -> tuple[Memory, Memory]:
    """Make empty memories [owners, kappa, width], twice. Raises MemoryError with what to lower."""
    shape = (erl.population_size + 1, erl.memory_size) if has_memories(erl) else (0, 0)
    try:
        no_ages = np.full(shape, EMPTY, np.int64)
        made = [Memory(world.shared((*shape, width)), world.share(no_ages)) for _ in range(2)]
    except MemoryError as error:
        size = ram.size(2 * shape[0] * shape[1] * (4 * width + 8))
        raise MemoryError(
            f"{error}; or lower erl.memory_size = {erl.memory_size}: memories take {size} a node"
        ) from error
    return made[0], made[1]


def has_memories(erl: ERL) -> bool:
    """Tell whether members have memories: where an operator reads them."""
    return distils(erl) or erl.mutation == "proximal"


def distils(erl: ERL) -> bool:
    """Tell whether children imitate their parents."""
    return erl.crossover == "distillation"


def births_board(params: Params) -> Board:
    """Return the board of births: parameters of each slot, on every node, and seconds."""
    return Board(params.config.erl.population_size, -(-params.layout.d // 2) + 1)
