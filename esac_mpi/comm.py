"""World: the ranks of a run, what travels between them, and what the ranks of a node share. The only importer of mpi4py.

No wait is a blocking collective: a Python signal handler does not run inside one, and ranks that spin steal the cores of
those that work. Every wait is a nonblocking collective, Test, and a short sleep.

Work is dealt to nodes before it begins and to the ranks of a node as they become free, by a counter in shared memory.
(Between nodes such a counter was measured to wait for the rank that owns it.) Results go to the node's shared memory, from
node to node by one allgather of the nodes' first ranks, and from shared memory to every rank.
"""

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, Protocol

import numpy as np
from mpi4py import MPI

from esac_mpi import schedule
from esac_mpi.stop import Stop
from esac_mpi.watchdog import Watchdog

# Columns that ride on every exchange: busy seconds, wish to stop, checksum of the node's parameters, background unfinished,
# part given up.
HEADER = 5
BUSY, STOP, CHECKSUM, BACKGROUND, GIVEN_UP = range(HEADER)
LAST_WORDS = 0.5  # a launcher loses what it has not forwarded yet when it ends the ranks [s]
LAST_RESORT = 5.0  # time that stderr and the MPI library have to end the job [s]
POLLS = 50  # tests of an exchange between two slices of the background


class LaunchError(Exception):
    """The launcher and the MPI library do not belong together."""


class DivergedError(Exception):
    """Nodes computed different parameters."""


class Abandoned(Exception):
    """A rank gave its work up, so that all discard it; nothing was changed by it."""


class Background(Protocol):
    """Work of rank 0 that goes on beside the exchanges, a slice at a time."""

    done: bool

    def advance(self) -> None:
        """Do the next slice, some milliseconds long."""


class World:
    """All ranks of the run.

    rank, size: this rank of all ranks. node, nodes: this rank's node of all nodes. local, locals: this rank of its node's
    ranks. stop: this rank's wish to stop. stopping: whether a rank wished to stop at the last exchange (equal on all ranks).
    watchdog: what looks whether this rank hangs. background: what rank 0 does while others evaluate, None elsewhere.
    learning: whether that is unfinished, so that others evaluate (equal on all ranks). bytes_exchanged: bytes received from
    other nodes since the start. waited: time this rank has spent in `map` and `at_root` without members, on its background or
    waiting [s]. library: the MPI library's name and version.
    """

    def __init__(self, comm: MPI.Comm | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._node: Any = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._leaders = self._comm.Split(0 if self._node.rank == 0 else MPI.UNDEFINED)
        self._windows: list[MPI.Win] = []
        self._sums: dict[tuple[int, int], np.ndarray] = {}
        self._boards: dict[tuple[int, int], list[np.ndarray]] = {}
        self.clock = clock
        self.rank, self.size = self._comm.rank, self._comm.size
        self.local, self.locals = self._node.rank, self._node.size
        self.hosts: list[str] = self._comm.allgather(platform.node())
        self.node = int(self._node.bcast(self._leaders.rank if self.local == 0 else None))
        self._ranks = _ranks_of_nodes(self._comm.allgather(self.node))
        self.nodes = len(self._ranks)
        self._counter, self._given_up = self._shared_counter()
        self._counted = 0
        self.library = library()
        self.bytes_exchanged = 0
        self.waited = 0.0
        self.checksum = 0.0
        self.background: Background | None = None
        self.learning = False
        self._beside = 0.0  # spent on the background while there were members to take [s]
        self.stop = Stop(clock, self._abort_on_signal)
        self.watchdog = Watchdog(f"rank {self.rank} on {platform.node()}", lambda words: abort(1, words))
        self.stopping = False

    def map(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, expected: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> float64 [columns] for i in range(count), spread over the ranks.

        expected: how long each may take [count], in any unit; the longest begin first. Returns the results of all ranks,
        float64 [count, columns], and each rank's busy time [s], float64 [size]. This is the only regular traffic between
        nodes. Raises DivergedError if the nodes' checksums differ; Abandoned, on all ranks, if one gave its part up.
        """
        capacity = np.array([len(ranks) for ranks in self._ranks])
        capacity[0] -= self.learning
        shares = schedule.deal(np.ones(count) if expected is None else expected, capacity)
        mine = shares[self.node]
        return self._run(work, (mine[place] for place in self._places(len(mine))), shares, (count, columns))

    def at_root(self, work: Callable[[], np.ndarray], columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Run work() -> float64 [columns] on rank 0 alone; return its result and each rank's busy time [s], float64 [size].

        Raises Abandoned, on all ranks, if one gave up.
        """
        shares = [np.zeros(int(node == 0), np.int64) for node in range(self.nodes)]
        mine = shares[0] if self.rank == 0 else shares[0][:0]
        table, busy = self._run(lambda i: work(), iter(mine), shares, (1, columns))
        return table[0], busy

    def _run(
        self, work: Callable[[int], np.ndarray], mine: Iterator[int], shares: list[np.ndarray], shape: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do this rank's part, exchange the results; return those of all, and the busy times."""
        table, headers = self._board(shape)
        background = self.background if self.size > 1 else None
        start, beside = self.clock(), self._beside

        def part() -> None:
            for i in mine:
                self.watchdog.works_on(f"item {i} of {shape[0]}")
                table[i] = work(int(i))

        ended = self.stop.carry_out(part)
        busy = self.clock() - start - (self._beside - beside)
        if not ended:
            self._given_up[0] = 1
        headers[self.rank] = busy, self.stop.wished, self.checksum, bool(background and not background.done), not ended
        self.sync(background)
        self._between_nodes(table, headers, shares)
        self.waited += self.clock() - start - busy
        self._compare(headers[:, CHECKSUM])
        self.stopping = bool(headers[:, STOP].any())
        self.learning = bool(headers[:, BACKGROUND].any())
        if headers[:, GIVEN_UP].any():
            raise Abandoned
        return table.copy(), headers[:, BUSY].copy()

    def _places(self, count: int) -> Iterator[int]:
        """Yield places in the node's list of `count` members, as long as any is left; rank 0 has its background done first."""
        base, self._counted = self._counted, self._counted + count + self.locals  # each rank asks once too often
        start = self.clock()
        self.watchdog.works_on("the phase beside the evaluation")
        while self.size > 1 and self.background and not self.background.done and self._count(0) - base < count:
            self.background.advance()
            self.watchdog.beat()
        self._beside += self.clock() - start
        while (place := self._count(1) - base) < count and not self._given_up[0]:
            yield place

    def _count(self, step: int) -> int:
        """Return the node's counter, and move it by `step`. Never waits for another rank (measured, both MPIs)."""
        add, before = np.array([step], np.int64), np.zeros(1, np.int64)
        self._counter.Fetch_and_op(add, before, 0, 0, MPI.SUM)
        self._counter.Flush(0)
        return int(before[0])

    def _board(self, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the node's table of results and headers of all ranks: two in turn, so that none is written while it is read."""
        boards = self._boards.get(shape)
        if boards is None:
            size = shape[0] * shape[1]
            boards = self._boards[shape] = [self.shared((size + self.size * HEADER,), np.float64) for _ in range(2)]
        boards.reverse()
        size = shape[0] * shape[1]
        return boards[0][:size].reshape(shape), boards[0][size:].reshape(self.size, HEADER)

    def _between_nodes(self, table: np.ndarray, headers: np.ndarray, shares: list[np.ndarray]) -> None:
        """Give every node the other nodes' results and headers."""
        if self.nodes == 1:
            return
        if self.local == 0:
            sizes = [len(share) * table.shape[1] + len(r) * HEADER for share, r in zip(shares, self._ranks, strict=True)]
            sent, received = np.zeros(max(sizes)), np.empty((self.nodes, max(sizes)))
            sent[: sizes[self.node]] = np.concatenate([table[shares[self.node]].ravel(), headers[self._ranks[self.node]].ravel()])
            self._wait(self._leaders.Iallgather(sent, received), self.background)
            for node in range(self.nodes):
                rows, ranks = shares[node], self._ranks[node]
                results, about = np.split(received[node, : sizes[node]], [len(rows) * table.shape[1]])
                table[rows] = results.reshape(len(rows), table.shape[1])
                headers[ranks] = about.reshape(len(ranks), HEADER)
            self.bytes_exchanged += received.nbytes - sent.nbytes
        self.sync()

    def over_blocks(self, work: Callable[[int], np.ndarray], count: int, columns: int) -> np.ndarray:
        """Run work(block) -> float64 [columns] for block in range(count), split over the ranks of each node.

        Writes to shared arrays inside `work` are seen by the whole node afterwards. Returns the sums over all blocks, added
        in block order, float64 [columns]: the bits do not depend on who computed them.
        """
        sums = self._sums.get((count, columns))
        if sums is None:
            sums = self._sums[count, columns] = self.shared((count, columns), np.float64)
        for block in range(self.local, count, self.locals):
            sums[block] = work(block)
        self.sync()
        total = np.zeros(columns)
        for row in sums:
            total += row
        self.sync()
        return total

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return a zeroed array that lives once per node and that all its ranks see."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._refuse_without_memory(size)
        window = MPI.Win.Allocate_shared(size if self.local == 0 else 0, 1, comm=self._node)
        window.Lock_all(MPI.MODE_NOCHECK)
        self._windows.append(window)
        buffer: Any = window.Shared_query(0)[0]
        array = np.ndarray(shape, dtype, buffer) if size else np.zeros(shape, dtype)
        if self.local == 0:
            array[...] = 0
        self.sync()
        return array

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return a shared array that holds `values`, which are equal on all ranks."""
        array = self.shared(values.shape, values.dtype)
        if self.local == 0:
            array[...] = values
        self.sync()
        return array

    def sync(self, background: Background | None = None) -> None:
        """Make this node's writes to shared arrays visible to all its ranks; wait for them."""
        for window in self._windows:
            window.Sync()
        self._wait(self._node.Ibarrier(), background)
        for window in self._windows:
            window.Sync()

    def broadcast_shared(self, array: np.ndarray) -> None:
        """Give every node rank 0's content of a shared array."""
        if self._leaders != MPI.COMM_NULL and self._leaders.size > 1:
            self._wait(self._leaders.Ibcast(array, 0))
            self.bytes_exchanged += array.nbytes if self.rank else 0
        self.sync()

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        """Give every rank rank 0's values, in place; return them."""
        self._wait(self._comm.Ibcast(values, 0))
        self.bytes_exchanged += values.nbytes if self.rank else 0
        return values

    def from_root(self, value: Any) -> Any:
        """Return rank 0's Python object on every rank; for start-up, not for the loop."""
        payload = np.frombuffer(MPI.pickle.dumps(value), np.uint8).copy() if self.rank == 0 else np.zeros(0, np.uint8)
        size = self.broadcast(np.array([payload.size], np.int64))
        if self.rank:
            payload = np.zeros(size[0], np.uint8)
        return MPI.pickle.loads(self.broadcast(payload).tobytes())

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's Python object, on every rank; for start-up, not for the loop."""
        payload = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        sizes = self._allgather(np.array([payload.size], np.int64))[:, 0]
        padded = np.zeros(sizes.max(), np.uint8)
        padded[: payload.size] = payload
        return [MPI.pickle.loads(row[:size].tobytes()) for row, size in zip(self._allgather(padded), sizes, strict=True)]

    def agree(self) -> bool:
        """Return whether a rank wishes to stop; for start-up, the exchanges carry it afterwards."""
        self.stopping = any(self.gather(self.stop.wished))
        return self.stopping

    def _abort_on_signal(self) -> None:
        abort(1, f"esac_mpi: rank {self.rank}: third signal: ends at once, nothing is written")

    def abort(self, code: int) -> NoReturn:
        """End all ranks at once."""
        abort(code)

    def free(self) -> None:
        """Release the shared arrays; none may be used afterwards."""
        for window in self._windows:
            window.Unlock_all()
            window.Free()
        self._windows.clear()
        self._sums.clear()
        self._boards.clear()
        self._given_up = np.zeros(1, np.int64)
        if self._counter:
            self._counter.Unlock_all()
            self._counter.Free()

    def _shared_counter(self) -> tuple[MPI.Win, np.ndarray]:
        """Return the node's counter, and whether a rank of the node gave up, int64 [1]."""
        window = MPI.Win.Allocate_shared(16 if self.local == 0 else 0, 8, comm=self._node)
        window.Lock_all(MPI.MODE_NOCHECK)
        buffer: Any = window.Shared_query(0)[0]
        shared = np.ndarray(2, np.int64, buffer)
        if self.local == 0:
            shared[:] = 0
        window.Sync()
        self._node.Barrier()
        return window, shared[1:]

    def _allgather(self, sent: np.ndarray) -> np.ndarray:
        received = np.empty((self.size, sent.size), sent.dtype)
        self._wait(self._comm.Iallgather(sent, received))
        self.bytes_exchanged += received.nbytes - sent.nbytes
        return received

    def _wait(self, request: MPI.Request, background: Background | None = None) -> None:
        """Wait with short sleeps, or with slices of the background in their place."""
        pause = 0.0
        self.watchdog.waits()
        while not request.Test():
            if background and not background.done:
                if any(request.Test() for _ in range(POLLS)):  # an exchange has several rounds: let it pass before the next slice
                    break
                background.advance()
                continue
            time.sleep(pause)
            pause = min(pause + 5e-6, 1e-3)
        self.watchdog.rests()

    def _compare(self, checksums: np.ndarray) -> None:
        if (checksums != checksums[0]).any():
            odd = sorted({host for host, c in zip(self.hosts, checksums, strict=True) if c != checksums[0]})
            raise DivergedError(
                f"the parameters of {', '.join(odd)} differ from those of {self.hosts[0]}: these nodes compute different bits "
                "(another CPU type or library version); run on nodes of one kind"
            )

    def _refuse_without_memory(self, size: int) -> None:
        available = self._node.bcast(_free_memory() if self.local == 0 else None)  # one rank's view: others' may differ
        if available is not None and size > available:
            raise MemoryError(f"/dev/shm of {platform.node()} has {available} bytes free; the shared arrays need {size} more")


def _free_memory() -> int | None:
    """Return the bytes free in /dev/shm, None where there is none."""
    if not os.path.isdir("/dev/shm"):
        return None
    free = os.statvfs("/dev/shm")
    return free.f_bavail * free.f_frsize


def abort(code: int, *last_words: str) -> NoReturn:
    """End all ranks at once, after last words to stderr, whatever becomes of these and of the MPI library."""
    last_resort = threading.Timer(LAST_RESORT, os._exit, [code])
    last_resort.daemon = True
    last_resort.start()
    with suppress(OSError, ValueError):
        if last_words:
            print(*last_words, sep="\n", file=sys.stderr, flush=True)
            time.sleep(LAST_WORDS)
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)  # MPICH's has been seen to come back


def library() -> str:
    """Return the MPI library's own name and version."""
    return MPI.Get_library_version().strip().split("\n")[0].strip("\0 ")


def binding() -> tuple[str, str]:
    """Return the name of mpi4py's module, which says whose ABI it was built for, and the thread level."""
    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return os.path.basename(MPI.__file__).split(".cpython")[0], levels.get(MPI.Query_thread(), "multiple")


# What launchers tell a process of its job's size; the first that is set decides, so that `mpirun -n 1` inside a larger step
# is taken at its word. Not here: SLURM_NTASKS, PBS_NP and the like are the allocation's, also of a batch script's own processes.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def check_launcher(environ: dict[str, str], size: int) -> None:
    """Raise LaunchError if a launcher started several processes of which each believes to be alone."""
    name = next((name for name in SIZES if environ.get(name)), None)
    if name and size == 1 and int(environ[name]) > 1:
        raise LaunchError(
            f"{name} = {environ[name]}, but this process is alone: the launcher belongs to another MPI than {library()}; "
            f"use that library's own mpirun, or srun with the matching --mpi (or unset {name}, if one process is meant)"
        )


def _ranks_of_nodes(nodes: list[int]) -> list[np.ndarray]:
    """Return the ranks of each node, ascending, from each rank's node [size]."""
    return [np.flatnonzero(np.array(nodes) == node) for node in range(max(nodes) + 1)]
