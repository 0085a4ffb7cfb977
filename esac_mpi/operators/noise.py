"""Addressed randomness: the only source of random numbers.

A number is named by (seed, purpose, generation, member, block), not by what was drawn before it:
any rank makes any part of any epsilon, and nothing about randomness is stored or sent. The address
is the key and counter of a Philox generator (Salmon et al. 2011, "Parallel random numbers: as easy
as 1, 2, 3"): numpy's 4x64, and for epsilon our own 4x32.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise

import numpy as np

from esac_mpi.operators import kernels

BLOCK = 16_384  # parameters of a block; a constant, because bits depend on it
CHUNK = 256  # slots of a chunk, at least; a constant, because bits depend on it
PIECES = 32  # blocks times chunks of one sum over slots, at most; a constant as well


class Purpose(IntEnum):
    """What a random number is for. Values are part of the bits: never renumber."""

    INIT = 1  # initial weights; member = which network
    MUTATION = 2  # epsilon; member = slot
    EPISODE = 3  # start state and environment generator; member = slot or member, block = episode
    GATE = 4  # mu of Algorithm 1, line 12
    CROSSOVER = 5  # member = child, or the pair of children of ERL's
    EVALUATION = 6  # block = episode
    LEARNER = 7  # exploration, replay sampling and reparameterisation noise of a phase
    LEARNER_EPISODE = 8  # block = episode of the phase
    PROBE = 9  # start-up comparison of nodes
    TABLE = 10  # noise table; block
    ACTION = 11  # noise on a member's actions; member = as of EPISODE, block = episode
    WINNERS = 12  # members that win by chance alone (esac.winner_selection = uniform)
    TRIAL = 13  # start state of an episode of policies on trial; block = episode
    REPLAYED = 14  # members whose episodes a phase resimulates (esac.resimulated = sample)
    # ERL's tournaments, and what else is drawn for its next population; CEM's importance mixing
    SELECTION = 15
    GENETIC = 16  # ERL's mutation of a member; member = slot
    DISTILLATION = 17  # member = slot of the child
    DISTANCE = 18  # states in which parents' actions are compared; member = whose memory
    TRAINING = 19  # an individual of CEM-RL that learns; member = which
    CONFIRMATION = 20  # start state of an episode of a new best policy; block = episode
    DUEL = 21  # of one that it and the best policy before it both play; block = episode


def generator(
    seed: int, purpose: Purpose, generation: int = 0, member: int = 0, block: int = 0
) -> np.random.Generator:
    """Return the generator at an address."""
    return np.random.Generator(
        np.random.Philox(key=[seed, purpose], counter=[0, block, member, generation])
    )


def normal(
    seed: int, purpose: int, generation: int, member: int, block: int, size: int
) -> np.ndarray:
    """Draw the `size` standard normals of an address, float32 [size].

    Philox 4x32-10 with key `seed` [64 bits] and counter (purpose [8 bits] and index [24 bits],
    block, member, generation [32 bits each]), then Box-Muller in float32. They reach 6.76. Raises
    ValueError if a part of the address does not fit or the size exceeds 2**26.
    """
    small = 0 <= block < 2**32 and 0 <= member < 2**32 and 0 <= generation < 2**32
    if not (small and 0 <= purpose < 2**8 and 0 <= seed < 2**64 and 0 <= size <= 2**26):
        raise ValueError(
            "an address is seed < 2**64, purpose < 2**8, generation, member, block < 2**32, "
            "size <= 2**26, none negative; got "
            f"{seed}, {int(purpose)}, {generation}, {member}, {block}, {size}"
        )
    numbers = np.empty(size, np.float32)
    kernels.fill_normal(seed, purpose, generation, member, block, numbers)
    return numbers


def integer(
    seed: int, purpose: Purpose, generation: int = 0, member: int = 0, block: int = 0
) -> int:
    """Return an integer in [0, 2**31) of an address, to seed a library's own generator."""
    return int(generator(seed, purpose, generation, member, block).integers(2**31))


def chunks(d: int, slots: int) -> list[range]:
    """Split a sum's slots so that a node's ranks can share it where theta has few blocks.

    It depends on sizes alone: one chunk below 2 * CHUNK slots and above PIECES / 2 blocks.
    """
    count = max(1, min(slots // CHUNK, PIECES // max(1, -(-d // BLOCK))))
    edges = [slots * i // count for i in range(count + 1)]
    return [range(first, stop) for first, stop in pairwise(edges)]


def pieces(d: int, slots: int) -> int:
    """Count the pieces of a sum over slots that the ranks of a node share: blocks times chunks."""
    return len(list(blocks(d))) * len(chunks(d, slots))


def blocks(d: int) -> Iterator[tuple[int, slice]]:
    """Yield (index, slice) of the blocks of a vector of length d."""
    for index, start in enumerate(range(0, d, BLOCK)):
        yield index, slice(start, min(start + BLOCK, d))
