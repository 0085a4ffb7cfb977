"""Ranks on equal nodes, and how long they take for what the program deals to them."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from esac_mpi.comm import schedule
from esac_mpi.comm.headers import HEADER


@dataclass(frozen=True)
class Cluster:
    """Ranks on equal nodes, filled one after the other, and the network between the nodes."""

    ranks: int
    cores_per_node: int = 64
    latency: float = 5e-6  # of a message between nodes, with MPI's own share [s]
    bandwidth: float = 10e9  # between nodes [bytes/s]
    # of a step of a barrier inside a node: polling sleeps 5 us and longer [s]
    barrier: float = 20e-6

    @property
    def locals(self) -> list[int]:
        """Ranks of each node [nodes]."""
        full, rest = divmod(self.ranks, self.cores_per_node)
        return [self.cores_per_node] * full + [rest] * (rest > 0)

    def send(self, nbytes: float) -> float:
        """Compute the time of an allgather or broadcast between the nodes' leaders [s]."""
        hops = steps(len(self.locals))
        return hops * self.latency + nbytes / self.bandwidth if hops else 0.0

    def sync(self) -> float:
        """Compute the time of a barrier inside the largest node [s]."""
        return steps(max(self.locals)) * self.barrier

    def exchange(self, count: int, columns: int) -> float:
        """Compute the time of an allgather: `count` items of `columns` numbers, and headers [s]."""
        return 2 * self.sync() + self.send(8 * (columns * count + HEADER * self.ranks))

    def share(self, blocks: float) -> float:
        """Return the busiest rank's share of an update of `blocks`; each node makes all of it."""
        return min(math.ceil(math.ceil(blocks) / min(self.locals)), blocks) / blocks

    def spread(
        self, durations: np.ndarray, expected: np.ndarray, busy: float = 0.0, learning: bool = False
    ) -> float:
        """Find when the last of the work items [n] [s] ends, dealt by their expected times.

        Rank 0 takes none before `busy` [s], and is not counted on for any while it learns.
        """
        locals, ends = self.locals, []
        capacity = np.array(locals)
        capacity[0] -= learning
        for node, share in enumerate(schedule.deal(expected, capacity)):
            free = [0.0] * locals[node]
            if node == 0:
                free[0] = busy
            ends.append(list_schedule(durations[share], free))
        return max(ends)


def steps(parties: int) -> int:
    """Return the steps of a tree over so many parties: ceil(log2 parties)."""
    return math.ceil(math.log2(parties)) if parties > 1 else 0


def list_schedule(durations: Sequence[float] | np.ndarray, free: Sequence[float]) -> float:
    """Give each task, in order, to the first free worker; return when the last ends, 0 if none.

    `free` holds the time at which each worker becomes free [workers] [s].
    """
    idle = sum(when == 0.0 for when in free)
    if len(durations) <= idle:  # each has one of its own
        return float(max(durations, default=0.0))
    workers, end = list(free), 0.0
    heapq.heapify(workers)
    for duration in np.asarray(durations, float).tolist():
        finish = workers[0] + duration
        heapq.heapreplace(workers, finish)
        end = max(end, finish)
    return end
