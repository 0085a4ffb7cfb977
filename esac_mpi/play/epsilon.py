"""Epsilon: the noise of a slot, block by block, in one of three ways.

- Philox draws every number: d normal numbers a slot.
- Table cuts the slot's noise out of one table per node, seeded and made by the ranks of the node
  together (OpenAI-ES). The table costs 4 bytes a number once per node; noise of slots overlaps by
  chance, the more the larger d / table.
- LowRank perturbs a weight matrix [out, in] by A B^T / sqrt(r), A [out, r], B [in, r] standard
  normal, and a bias by normal numbers: r (out + in) draws a matrix, each element of mean 0 and
  variance 1 (EGGROLL, arXiv:2511.16652). Elements of a matrix are uncorrelated, not independent.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np

from esac_mpi.comm.contracts import Memory
from esac_mpi.config import Evolution
from esac_mpi.host.errors import WrongUsage
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout

PLACES = 256  # of a table, at least, at which a slot's noise may begin


class Epsilon(Protocol):
    """A way to make epsilon."""

    def block(self, k: int, slot: int, number: int, part: slice) -> np.ndarray:
        """Make block `number`, theta[part], of slot noise in generation k: float32, read-only."""


def make(evolution: Evolution | None, seed: int, layout: Layout, world: Memory) -> Epsilon:
    """Make what a table names, Philox for an algorithm without one. Raises WrongUsage."""
    if evolution is None or evolution.noise == "philox":
        return Philox(seed)
    if evolution.noise == "table":
        return Table(seed, layout.d, evolution.noise_table_size, world)
    return LowRank(seed, layout, evolution.noise_rank)


class Philox:
    """Every number drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def block(self, k: int, slot: int, number: int, part: slice) -> np.ndarray:
        """Return a block of the noise of a slot."""
        return noise.normal(self.seed, Purpose.MUTATION, k, slot, number, part.stop - part.start)


class Table:
    """A piece of one table, at an offset that the address gives."""

    def __init__(self, seed: int, d: int, size: int, world: Memory) -> None:
        if size - d + 1 < PLACES:
            least = f"{d + PLACES - 1} at least, for {PLACES} pieces to draw a slot's noise from"
            raise WrongUsage(f"noise_table_size = {size}: theta alone has {d} parameters; {least}")
        self.values = world.shared((size,))  # float32 [size]
        parts = [part for _, part in noise.blocks(size)]

        def fill(block: int) -> np.ndarray:
            part = parts[block]
            self.values[part] = noise.normal(
                seed, Purpose.TABLE, 0, 0, block, part.stop - part.start
            )
            return np.zeros(1)

        world.over_blocks(fill, len(parts), 1)

        @lru_cache(maxsize=10_000)  # of the newest slots: a function of the address alone
        def offset(k: int, slot: int) -> int:
            return int(noise.generator(seed, Purpose.MUTATION, k, slot).integers(size - d + 1))

        self._offset = offset

    def block(self, k: int, slot: int, number: int, part: slice) -> np.ndarray:
        """Return a block of the noise of a slot: a view into the table."""
        offset = self._offset(k, slot)
        return self.values[offset + part.start : offset + part.stop]


class LowRank:
    """A product of two thin matrices for each weight matrix."""

    def __init__(self, seed: int, layout: Layout, rank: int) -> None:
        self.seed, self.layout, self.rank = seed, layout, rank

    def block(self, k: int, slot: int, number: int, part: slice) -> np.ndarray:
        """Return a block of the noise of a slot."""
        pieces = []
        for tensor_number, tensor in enumerate(self.layout.tensors):
            start = max(tensor.start, part.start) - tensor.start
            stop = min(tensor.stop, part.stop) - tensor.start
            if start < stop:
                pieces.append(self._piece(k, slot, tensor_number, start, stop))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _piece(self, k: int, slot: int, number: int, start: int, stop: int) -> np.ndarray:
        """Return elements [start, stop) of the noise of a tensor."""
        shape = self.layout.tensors[number].shape
        if len(shape) == 1:
            return self._normal(k, slot, 2 * number, shape[0])[start:stop]
        rows, columns = shape
        first, last = start // columns, -(-stop // columns)
        a = self._normal(k, slot, 2 * number, rows * self.rank).reshape(rows, self.rank)[first:last]
        b = self._normal(k, slot, 2 * number + 1, columns * self.rank).reshape(self.rank, columns)
        a *= np.float32(1 / np.sqrt(self.rank))
        return (a @ b if self.rank > 1 else a * b).reshape(-1)[
            start - first * columns : stop - first * columns
        ]

    def _normal(self, k: int, slot: int, block: int, size: int) -> np.ndarray:
        return noise.normal(self.seed, Purpose.MUTATION, k, slot, block, size)
