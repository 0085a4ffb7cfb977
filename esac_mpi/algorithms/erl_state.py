"""ERL's state: the population, the learner's actor, and what each of them remembers."""

from dataclasses import dataclass, field

import numpy as np

from esac_mpi.comm import contracts
from esac_mpi.config import ERL
from esac_mpi.host import ram
from esac_mpi.operators import genetics
from esac_mpi.operators.memories import EMPTY, Memory
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.params import MEMBERS, THETA_SAC, Params
from esac_mpi.play.rollout import Board
from esac_mpi.play.transitions import doubles
from esac_mpi.play.warm_start_fields import Part

NOBODY = -1  # slot of a learner's actor that is in no slot
POPULATION = Part("the population")


@dataclass
class State:
    """All that changes, beside the learner on rank 0: equal on every rank or shared by the node."""

    population: np.ndarray = field(
        metadata={"shared": True, "part": POPULATION, "members": True}
    )  # float32 [k, d]
    theta: np.ndarray = field(metadata={"shared": True})  # float32 [d] the learner's actor
    champion: np.ndarray = field(
        metadata={"shared": True}
    )  # float32 [d] the best member of the last evaluation
    memories: np.ndarray = (
        field(  # float32 [owners, kappa, o + a], oldest first: members', the learner's
            metadata={"shared": True, "numbers": "ages"}
        )
    )
    ages: np.ndarray = (
        field(  # int64 [owners, kappa] numbers of these transitions in the run, -1 = none
            metadata={"shared": True}
        )
    )
    noise: np.ndarray  # float64 [a] the Ornstein-Uhlenbeck process
    next_memories: np.ndarray = field(
        metadata={"shared": True, "scratch": True}
    )  # as memories: with the generation's episodes
    next_ages: np.ndarray = field(metadata={"shared": True, "scratch": True})
    critic: np.ndarray = field(
        metadata={"shared": True, "scratch": True}
    )  # float32 [critic_size] the learner's
    transitions: int = field(
        default=0, metadata={"transitions": True}
    )  # ever made by members and learner
    injected: int = field(  # slot in which the learner's actor waits for the next selection
        default=NOBODY, metadata={"part": POPULATION}
    )
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)
    normaliser = None  # observations are plain

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"champion": self.champion, "learner": self.theta}


def init(params: Params, world: contracts.Memory) -> State:
    """Return the state before the first generation; member 0 is its champion."""
    erl, layout, seed = params.config.erl, params.layout, params.config.seed
    k = erl.population_size
    population = np.stack(
        [
            genetics.initial(layout, seed, MEMBERS + member, erl.initial_last_layer)
            for member in range(k)
        ]
    )
    o, *_, a = layout.sizes
    world.reserve(*births_board(params)[:2])
    now, following = memories(erl, o + a, world)
    return State(
        population=world.share(population),
        theta=world.share(genetics.initial(layout, seed, THETA_SAC)),
        champion=world.share(population[0]),
        memories=now.rows,
        ages=now.ages,
        noise=np.zeros(a),
        next_memories=following.rows,
        next_ages=following.ages,
        critic=world.shared(
            (params.operators.critic_size if params.operators and distils(erl) else 0,)
        ),
    )


def memories(erl: ERL, width: int, world: contracts.Memory) -> tuple[Memory, Memory]:
    """Return empty memories of all who remember, [owners, kappa, width], twice. Raises MemoryError, saying what to lower."""
    shape = (erl.population_size + 1, erl.memory_size) if remembers(erl) else (0, 0)
    try:
        no_ages = np.full(shape, EMPTY, np.int64)
        made = [Memory(world.shared((*shape, width)), world.share(no_ages)) for _ in range(2)]
    except MemoryError as error:
        size = ram.size(2 * shape[0] * shape[1] * (4 * width + 8))
        raise MemoryError(
            f"{error}; or lower erl.memory_size = {erl.memory_size}: memories take {size} a node"
        ) from error
    return made[0], made[1]


def memory(state: State, owner: int) -> Memory:
    """Return the memory of a member, or the learner's, with the episodes of the generation that is being made."""
    return Memory(state.next_memories[owner], state.next_ages[owner])


def remembers(erl: ERL) -> bool:
    """Return whether there are memories: where an operator looks at them."""
    return distils(erl) or erl.mutation == "proximal"


def distils(erl: ERL) -> bool:
    """Return whether children imitate their parents."""
    return erl.crossover == "distillation"


def learners_own(erl: ERL) -> int:
    """Return the place of the learner's memory."""
    return erl.population_size


def births_board(params: Params) -> Board:
    """Return the shape of what the ranks put together of what is born: of each slot parameters, on every node, and seconds."""
    return Board(
        params.config.erl.population_size, doubles(np.zeros(params.layout.d, np.float32)).size + 1
    )
