"""Node: the ranks of one machine, with shared arrays, a counter and a flag of giving up."""

import os
import platform
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi.comm.mpi import MPI

Wait = Callable[[MPI.Request], None]


class Node:
    """The ranks of a node, of which this is number `rank` of `size`.

    given_up: int64 [1], shared: whether a rank gave up, here or, as far as heard, elsewhere.
    wait: waits for an MPI request.
    """

    def __init__(self, comm: MPI.Intracomm, wait: Wait) -> None:
        self._comm, self._wait = comm, wait
        self.rank, self.size = comm.rank, comm.size
        self._windows: list[MPI.Win] = []
        self._sums: dict[tuple[int, int], np.ndarray] = {}
        self._counter, both = self._allocate((2,), np.dtype(np.int64))
        self.given_up = both[1:]
        self._counter.Sync()
        comm.Barrier()

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return a zeroed array, one per node, shared by all its ranks. Raises MemoryError."""
        if self.size == 1:  # who shares with nobody needs no /dev/shm
            return np.zeros(shape, dtype)
        self._refuse_without_memory(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        window, array = self._allocate(shape, np.dtype(dtype))
        self._windows.append(window)
        self.sync()
        return array

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return a shared array of `values`, equal on all ranks. Raises MemoryError."""
        array = self.shared(values.shape, values.dtype)
        if self.rank == 0:
            array[...] = values
        self.sync()
        return array

    def sync(self, wait: Wait | None = None) -> None:
        """Wait for the node's ranks, by `wait` if given; all see writes to shared arrays then."""
        self.fence()
        (wait or self._wait)(self._comm.Ibarrier())
        self.fence()

    def fence(self) -> None:
        """Order this rank's accesses to shared arrays: those before precede those after.

        For reading what another rank writes: x86 keeps the order of writes, ARM and POWER do not.
        """
        for window in self._windows:
            window.Sync()

    def over_blocks(
        self, work: Callable[[int], np.ndarray], count: int, columns: int
    ) -> np.ndarray:
        """Sum work(block) -> float64 [columns] over range(count), split over each node's ranks.

        The whole node then sees writes to shared arrays inside `work`. The sums, float64 [columns],
        are added in block order: their bits do not depend on who computed what.
        """
        sums = self._sums.get((count, columns))
        if sums is None:
            sums = self._sums[count, columns] = self.shared((count, columns), np.float64)
        for block in range(self.rank, count, self.size):
            sums[block] = work(block)
        self.sync()
        total = np.zeros(columns)
        for row in sums:
            total += row
        self.sync()
        return total

    def count(self, step: int) -> int:
        """Fetch the node's counter and add `step`. Waits for no rank (measured, both MPIs)."""
        add, before = np.array([step], np.int64), np.zeros(1, np.int64)
        self._counter.Fetch_and_op(add, before, 0, 0, MPI.SUM)
        self._counter.Flush(0)
        return int(before[0])

    def free(self, *comms: MPI.Comm) -> None:
        """Free the shared arrays and the communicators; none may be used afterwards."""
        for window in self._windows:
            window.Unlock_all()
            window.Free()
        self._windows.clear()
        self._sums.clear()
        self.given_up = np.zeros(1, np.int64)
        if self._counter:
            self._counter.Unlock_all()
            self._counter.Free()
        for comm in (*comms, self._comm):
            if comm != MPI.COMM_NULL:
                comm.Free()

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[MPI.Win, np.ndarray]:
        """Make a window in rank 0's memory and the array in it, zeroed at the next barrier."""
        size = int(np.prod(shape)) * dtype.itemsize
        window = MPI.Win.Allocate_shared(size if self.rank == 0 else 0, 1, comm=self._comm)
        window.Lock_all(MPI.MODE_NOCHECK)
        buffer: Any = window.Shared_query(0)[0]
        array = np.ndarray(shape, dtype, buffer) if size else np.zeros(shape, dtype)
        if self.rank == 0:
            array[...] = 0
        return window, array

    def _refuse_without_memory(self, size: int) -> None:
        # one rank's view: others' may differ
        available = self._comm.bcast(free_memory() if self.rank == 0 else None)
        if available is not None and size > available:
            raise MemoryError(
                f"/dev/shm of {platform.node()} has {available} bytes free; "
                f"the shared arrays need {size} more: ask for a larger "
                "/dev/shm (containers: --shm-size), or start one rank a node, which needs none"
            )


def free_memory() -> int | None:
    """Return the bytes free in /dev/shm, None where there is none."""
    if not os.path.isdir("/dev/shm"):
        return None
    return shutil.disk_usage("/dev/shm").free
