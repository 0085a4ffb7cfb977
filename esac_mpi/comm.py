"""World: the ranks of a run, what travels between them, and what the ranks of a node share. The only importer of mpi4py.

No wait is a blocking collective: a Python signal handler does not run inside one, and ranks that spin steal the cores of
those that work. Every wait is a nonblocking collective, Test, and a short sleep.
"""

import os
import platform
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

HEADER = 3  # columns that ride on every exchange: busy seconds, wish to stop, checksum of the node's parameters


class LaunchError(Exception):
    """The launcher and the MPI library do not belong together."""


class DivergedError(Exception):
    """Nodes computed different parameters."""


class World:
    """All ranks of the run.

    rank, size: this rank of all ranks. node, nodes: this rank's node of all nodes. local, locals: this rank of its node's
    ranks. stopping: whether a rank wished to stop at the last exchange (equal on all ranks). bytes_exchanged: bytes
    received from other ranks since the start. library: the MPI library's name and version.
    """

    def __init__(self, comm: MPI.Comm | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._node: Any = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._leaders = self._comm.Split(0 if self._node.rank == 0 else MPI.UNDEFINED)
        self._windows: list[MPI.Win] = []
        self._sums: dict[tuple[int, int], np.ndarray] = {}
        self.clock = clock
        self.rank, self.size = self._comm.rank, self._comm.size
        self.local, self.locals = self._node.rank, self._node.size
        self.hosts: list[str] = self._comm.allgather(platform.node())
        self.nodes = int(self._comm.allreduce(int(self.local == 0)))
        self.library = library()
        self.bytes_exchanged = 0
        self.checksum = 0.0
        self.stop_wished = False
        self.stopping = False

    def map(self, work: Callable[[int], np.ndarray], count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> float64 [columns] for i in range(count), spread over the ranks.

        Returns the results of all ranks, float64 [count, columns], and each rank's busy time [s], float64 [size]. This is
        the only regular traffic between nodes. Raises DivergedError if the nodes' checksums differ.
        """
        mine = np.arange(self.rank, count, self.size)
        rows = -(-count // self.size)
        sent = np.zeros((HEADER + rows * columns,))
        results = sent[HEADER:].reshape(rows, columns)
        start = self.clock()
        for row, i in enumerate(mine):
            results[row] = work(int(i))
        sent[:HEADER] = self.clock() - start, self.stop_wished, self.checksum
        received = self._allgather(sent)
        self._compare(received[:, 2])
        self.stopping = bool(received[:, 1].any())
        table = received[:, HEADER:].reshape(self.size, rows, columns)
        return table.transpose(1, 0, 2).reshape(-1, columns)[:count].copy(), received[:, 0].copy()

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

    def sync(self) -> None:
        """Make this node's writes to shared arrays visible to all its ranks; wait for them."""
        for window in self._windows:
            window.Sync()
        _wait(self._node.Ibarrier())
        for window in self._windows:
            window.Sync()

    def broadcast_shared(self, array: np.ndarray) -> None:
        """Give every node rank 0's content of a shared array."""
        if self._leaders != MPI.COMM_NULL and self._leaders.size > 1:
            _wait(self._leaders.Ibcast(array, 0))
            self.bytes_exchanged += array.nbytes if self.rank else 0
        self.sync()

    def broadcast(self, values: np.ndarray) -> np.ndarray:
        """Give every rank rank 0's values, in place; return them."""
        _wait(self._comm.Ibcast(values, 0))
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

    def stop_on_signals(self) -> None:
        """Let the first SIGTERM, SIGINT or SIGUSR1 to any rank be a wish to stop; a later one has its default effect.

        A terminal's Ctrl-C arrives twice, from the terminal and from the launcher: what comes within a second is one signal.
        """
        first: list[float] = []

        def wish(number: int, frame: Any) -> None:
            first.append(self.clock())
            self.stop_wished = True
            if first[-1] - first[0] > 1.0:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, wish)

    def abort(self, code: int) -> None:
        """End all ranks at once."""
        self._comm.Abort(code)

    def free(self) -> None:
        """Release the shared arrays; none may be used afterwards."""
        for window in self._windows:
            window.Unlock_all()
            window.Free()
        self._windows.clear()
        self._sums.clear()

    def _allgather(self, sent: np.ndarray) -> np.ndarray:
        received = np.empty((self.size, sent.size), sent.dtype)
        _wait(self._comm.Iallgather(sent, received))
        self.bytes_exchanged += received.nbytes - sent.nbytes
        return received

    def _compare(self, checksums: np.ndarray) -> None:
        if (checksums != checksums[0]).any():
            odd = sorted({host for host, c in zip(self.hosts, checksums, strict=True) if c != checksums[0]})
            raise DivergedError(
                f"the parameters of {', '.join(odd)} differ from those of {self.hosts[0]}: these nodes compute different bits "
                "(another CPU type or library version); run on nodes of one kind"
            )

    def _refuse_without_memory(self, size: int) -> None:
        if not os.path.isdir("/dev/shm"):
            return
        free = os.statvfs("/dev/shm")
        available = free.f_bavail * free.f_frsize
        if size > available:
            raise MemoryError(f"/dev/shm of {platform.node()} has {available} bytes free; the shared arrays need {size} more")


def library() -> str:
    """Return the MPI library's own name and version."""
    return MPI.Get_library_version().strip().split("\n")[0].strip("\0 ")


def check_launcher(environ: dict[str, str], size: int) -> None:
    """Raise LaunchError if a launcher started several processes of which each believes to be alone."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        if size == 1 and int(environ.get(name) or 1) > 1:
            raise LaunchError(
                f"{name} = {environ[name]}, but this process is alone: the launcher belongs to another MPI than {library()}; "
                "use that library's own mpirun, or srun with the matching --mpi"
            )


def _wait(request: MPI.Request) -> None:
    pause = 0.0
    while not request.Test():
        time.sleep(pause)
        pause = min(pause + 5e-6, 1e-3)
