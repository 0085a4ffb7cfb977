"""World: the ranks of a run and what travels between them.

No wait is a blocking collective: a Python signal handler does not run inside one, and spinning
ranks steal cores from working ones. Every wait is a nonblocking collective, Test, and a short
sleep.

Work is dealt to nodes before it begins and to a node's ranks as they become free, by a counter in
shared memory. (Between nodes such a counter was measured to wait for the rank that owns it.)
Results go to the node's board, in its shared memory, and from node to node by one allgather of the
nodes' first ranks; every rank reads them in place.

A rank that gives its part up lets the others of its node leave theirs, rank 0 its phase, by a
shared flag. That is a hint; other nodes hear the same signal, or have the same deadline. What
counts is the mark in the exchange, which every rank that left sets.
"""

import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np

from esac_mpi.comm import headers as header
from esac_mpi.comm import schedule
from esac_mpi.comm.dispatch import Dispatch, Work
from esac_mpi.comm.launch import abort, library
from esac_mpi.comm.mpi import MPI
from esac_mpi.comm.node import Node
from esac_mpi.host.stop import GivenUp, Stop
from esac_mpi.host.watchdog import Watchdog

REST = 1e-3  # longest sleep between two looks [s]
POLLS = 50  # tests of an exchange between two slices of the background


class Background(Protocol):
    """Work of rank 0 that goes on beside the exchanges, a slice at a time."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    waits: bool  # whether a device goes on with it alone: this rank has nothing to do for it now

    def advance(self) -> None:
        """Do the next slice, some milliseconds long, or less where it waits."""


class World:
    """All ranks of the run.

    rank, size, hosts: of all ranks. leads: whether this is rank 0, which decides and records. node:
    this rank's of all `nodes`; local, locals: this rank of its node's. library: MPI's. clock: this
    rank's [s]; waited: time that it has spent waiting for others [s]. stop: this rank's wish to
    stop; stopping: whether a rank wished to at the last exchange. background: what this rank does
    beside the exchanges; in_flight: the generation whose background was begun and has not been
    ended, 0 for none; learning: whether rank 0's is unfinished, so that others evaluate (equal on
    all ranks, as stopping). bytes_exchanged: received from other nodes. fence, sync, shared,
    share: Node's. record: keeps last words in the run's files, and why it failed, or "".
    """

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._boards: dict[tuple[int, int], list[np.ndarray]] = {}
        self.clock: Callable[[], float] = time.monotonic
        self.rank, self.size = self._comm.rank, self._comm.size
        self.library = library()
        self.bytes_exchanged, self.waited = 0, 0.0
        self.leads = self.rank == 0
        self.background: Background | None = None
        self.in_flight = 0
        self.learning = False
        self._checksum = 0.0  # of the node's parameters
        self._beside = 0.0  # spent on the background while there were members to take [s]
        self.stop = Stop(self.clock, self._abort_on_signal)
        self.watchdog = Watchdog(f"rank {self.rank} on {platform.node()}", self._abort_hanging)
        self.record: Callable[[str, str], object] = lambda words, reason: None
        self.stopping = False
        self._dispatch: Dispatch | None = None

        together: Any = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._node = Node(together, self._wait)
        self.fence, self.sync = self._node.fence, self._node.sync
        self.shared, self.share = self._node.shared, self._node.share
        self._leaders = self._comm.Split(0 if together.rank == 0 else MPI.UNDEFINED)
        self.local, self.locals = together.rank, together.size
        self.hosts: list[str] = self._comm.allgather(platform.node())
        self.node = int(together.bcast(self._leaders.rank if self.local == 0 else None))
        nodes = np.array(self._comm.allgather(self.node))
        self.nodes = int(nodes.max()) + 1
        # of each node, ascending
        self._ranks = [np.flatnonzero(nodes == node) for node in range(self.nodes)]
        self._counted = 0
        self._dealt: list[np.ndarray] = []  # the items of the last `map`, by node

    def map(
        self,
        work: Callable[[int], np.ndarray],
        count: int,
        columns: int,
        expected: np.ndarray | None = None,
        bulk: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run work(i) -> float64 [columns] for i in range(count), spread over the ranks.

        expected: expected times [count], in any unit; the longest begin first. bulk: how many of
        the last columns are for rank 0's node alone; on other nodes they are undefined. Returns the
        results of all ranks, float64 [count, columns], and each rank's busy time [s], float64
        [size]. The results are the node's board itself, read-only, valid until the next `map` of
        this count and columns returns: copy them to keep them.

        This is the only regular traffic between nodes. Raises, on all ranks, DivergedError if the
        nodes' checksums differ, an error of one that ends the run (EndsRun), Abandoned if one gave
        up.
        """
        capacity = np.array([len(ranks) for ranks in self._ranks])
        capacity[0] -= self.learning
        lasting = np.ones(count) if expected is None else expected
        shares = self._dealt = schedule.deal(lasting, capacity)
        own = shares[self.node]
        mine = (own[place] for place in self._places(len(own)))
        return self._run(work, mine, shares, (count, columns), bulk)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all ranks of whole numbers, int64 of one shape, on every rank."""
        received = np.empty_like(values)
        self._wait(self._comm.Iallreduce(values, received))
        self.bytes_exchanged += received.nbytes if self.nodes > 1 else 0
        return received

    def host(self, item: int) -> str:
        """Return the host of the node that did an item of the last `map`."""
        node = next(node for node, share in enumerate(self._dealt) if item in share)
        return self.hosts[self._ranks[node][0]]

    def at_root(
        self, work: Callable[[], np.ndarray], columns: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """End rank 0's background, then run work() there; return its result and busy times.

        Result float64 [columns]; busy times float64 [size] [s]. Raises on all ranks what `map`
        does, so also an EndsRun of rank 0's work.
        """

        def last(_: int) -> np.ndarray:
            self._advance(lambda: True)
            return work()

        shares = [np.zeros(int(node == 0), np.int64) for node in range(self.nodes)]
        mine = shares[0] if self.rank == 0 else shares[0][:0]
        table, busy = self._run(last, iter(mine), shares, (1, columns), 0)
        return table[0].copy(), busy

    def dispatch(self, work: Callable[[Any], Work]) -> Dispatch:
        """Return the run's tasks, made at the first call, with this rank's in progress."""
        if self._dispatch is None:
            self._dispatch = Dispatch(self._comm, self.stop, self.watchdog, self.clock, work)
        return self._dispatch

    def end_dispatch(self) -> None:
        """Let go of a run's tasks, on all ranks alike; another run in this process has its own."""
        if self._dispatch is not None:
            self._dispatch.free()
        self._dispatch = None

    def node_of(self, rank: int) -> int:
        """Return the node of a rank."""
        return next(node for node, ranks in enumerate(self._ranks) if rank in ranks)

    def begin_background(self, k: int, background: Background | None, beside: bool) -> None:
        """Take up the background of generation k. Collective.

        beside: others evaluate for rank 0 from now on.
        """
        self.background, self.in_flight, self.learning = background, k, beside

    def end_background(self) -> None:
        """Let go of the background in flight, on all ranks alike; all evaluate again."""
        self.background, self.in_flight, self.learning = None, 0, False

    def reserve(self, count: int, columns: int) -> None:
        """Allocate the boards of such a `map` now, not at its first call. Raises MemoryError."""
        if (count, columns) not in self._boards:
            both = self.shared(header.boards(count, columns, self.size), np.float64)
            self._boards[count, columns] = list(both)

    def _run(
        self,
        work: Callable[[int], np.ndarray],
        mine: Iterator[int],
        shares: list[np.ndarray],
        shape: tuple[int, int],
        bulk: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do this rank's part, exchange the results; return those of all, and the busy times."""
        table, headers = self._board(shape)
        background = self.background if self.size > 1 else None
        start, beside = self.clock(), self._beside

        def part() -> None:
            for i in mine:
                self.watchdog.works_on(f"item {i} of {shape[0]}")
                table[i] = work(int(i))

        left, found = header.run_part(self.stop, part)
        busy = self.clock() - start - (self._beside - beside)
        self._tell()
        unfinished = bool(background and not background.done)
        headers[self.rank] = busy, self.stop.wished, self._checksum, unfinished, left
        self._node.sync(partial(self._wait, background=background))
        self._between_nodes(table, headers, shares, bulk)
        self.waited += self.clock() - start - busy
        header.compare(headers[:, header.CHECKSUM], self.hosts)
        self.stopping = bool(headers[:, header.STOP].any())
        self.learning = bool(headers[:, header.BACKGROUND].any())
        header.judge(headers[:, header.LEFT], found, self.gather)
        table.flags.writeable = False
        return table, headers[:, header.BUSY].copy()

    def _places(self, count: int) -> Iterator[int]:
        """Yield places in the node's list of `count` members, as long as any is left.

        Rank 0 first works on its background while that needs its core. Raises stop.GivenUp when
        another rank gave up.
        """
        base = self._counted
        self._counted += count + self.locals  # each rank asks once too often
        while True:
            start = self.clock()
            self.watchdog.works_on("the phase beside the evaluation")
            self._advance(lambda: self.size > 1 and self._node.count(0) - base < count, leave=True)
            self._beside += self.clock() - start
            if (place := self._node.count(1) - base) >= count:
                return
            if self._hears():
                raise GivenUp
            yield place

    def _advance(self, needed: Callable[[], bool], leave: bool = False) -> None:
        """Advance the background while `needed`; `leave`: only while it needs a rank, not a device.

        Raises stop.GivenUp.
        """
        pause = 0.0
        while self.background and not self.background.done and needed():
            if self._hears():
                raise GivenUp
            self.background.advance()
            self.watchdog.beat()
            if leave and self.background.waits:
                return
            # an interleaved phase's update is soon there
            pause = min(pause + 5e-6, REST) if self.background.waits else 0.0
            if pause:
                time.sleep(pause)  # one of 0 s lasts 70 us

    def _hears(self) -> bool:
        """Tell whether a rank of this node has given up."""
        return bool(self._node.given_up[0])

    def _tell(self) -> None:
        """Let the node's ranks leave if this one gives up, at work or waiting."""
        if self.stop.overdue:
            self._node.given_up[0] = 1

    def _board(self, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the node's results and headers: two boards in turn, one read, one written."""
        self.reserve(*shape)
        both, size = self._boards[shape], shape[0] * shape[1]
        both.reverse()
        return both[0][:size].reshape(shape), both[0][size:].reshape(self.size, header.HEADER)

    def _between_nodes(
        self, table: np.ndarray, headers: np.ndarray, shares: list[np.ndarray], bulk: int
    ) -> None:
        """Give every node the other nodes' results and headers, but the bulk to rank 0's alone."""
        if self.nodes == 1:
            return
        if self.local == 0:
            first = table.shape[1] - bulk  # column of the bulk
            both = zip(shares, self._ranks, strict=True)
            sizes = [len(share) * first + len(ranks) * header.HEADER for share, ranks in both]
            sent, received = np.zeros(max(sizes)), np.empty((self.nodes, max(sizes)))
            own = table[shares[self.node], :first], headers[self._ranks[self.node]]
            sent[: sizes[self.node]] = np.concatenate([part.ravel() for part in own])
            self._wait(self._leaders.Iallgather(sent, received), self.background)
            for node in range(self.nodes):
                rows, ranks = shares[node], self._ranks[node]
                results, about = np.split(received[node, : sizes[node]], [len(rows) * first])
                table[rows, :first] = results.reshape(len(rows), first)
                headers[ranks] = about.reshape(len(ranks), header.HEADER)
            self.bytes_exchanged += received.nbytes - sent.nbytes
            if bulk:
                self._bring(table[:, first:], shares)
        self.sync()

    def _bring(self, bulk: np.ndarray, shares: list[np.ndarray]) -> None:
        """Copy other nodes' rows of bulk [count, columns] to rank 0's node, board to board."""
        if self.rank:
            requests = [self._leaders.Isend(bulk[i], 0) for i in shares[self.node]]
        else:
            senders = [(node, i) for node in range(1, self.nodes) for i in shares[node]]
            requests = [self._leaders.Irecv(bulk[i], node) for node, i in senders]
            self.bytes_exchanged += len(requests) * bulk[0].nbytes
        for request in requests:
            self._wait(request, self.background)

    def over_blocks(
        self, work: Callable[[int], np.ndarray], count: int, columns: int, checksum: bool = False
    ) -> np.ndarray:
        """Sum work(block) over all blocks on each node, less the checksum; see contracts.Memory."""
        sums = self._node.over_blocks(work, count, columns)
        if checksum:
            self._checksum = float(sums[0])
        return sums[checksum:]

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
        """Return rank 0's Python object on every rank: a few numbers, not arrays of parameters."""
        content = MPI.pickle.dumps(value) if self.rank == 0 else b""
        size = int(self.broadcast(np.array([len(content)], np.int64))[0])
        payload = np.frombuffer(content or bytes(size), np.uint8).copy()
        return MPI.pickle.loads(self.broadcast(payload).tobytes())

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's Python object, on every rank; for start-up, not for the loop."""
        payload = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        sizes = self._allgather(np.array([payload.size], np.int64))[:, 0]
        padded = np.zeros(sizes.max(), np.uint8)
        padded[: payload.size] = payload
        rows = zip(self._allgather(padded), sizes, strict=True)
        return [MPI.pickle.loads(row[:size].tobytes()) for row, size in rows]

    def agree(self) -> list[str]:
        """List why ranks wish to stop; for start-up, the exchanges carry the wish afterwards."""
        reasons = [self.stop.why] if self.stop.wished else []
        found = list(dict.fromkeys(why for own in self.gather(reasons) for why in own))
        self.stopping = bool(found)
        return found

    def _abort_on_signal(self) -> None:
        abort(1, f"esac_mpi: rank {self.rank}: third signal: ends at once, nothing is written")

    def _abort_hanging(self, words: str) -> None:
        abort(1, f"esac_mpi: {words}", record=lambda: self.record(words, ""))

    def free(self) -> None:
        """Release the shared arrays; none may be used afterwards. All ranks call this."""
        self.end_dispatch()
        self._boards.clear()
        self._node.free(self._leaders)

    def _allgather(self, sent: np.ndarray) -> np.ndarray:
        received = np.empty((self.size, sent.size), sent.dtype)
        self._wait(self._comm.Iallgather(sent, received))
        self.bytes_exchanged += received.nbytes - sent.nbytes
        return received

    def _wait(self, request: MPI.Request, background: Background | None = None) -> None:
        """Wait with short sleeps, or background slices instead until a rank gives up."""
        pause = 0.0
        self.watchdog.waits()
        while not request.Test():
            self._tell()
            if not self._hears() and background and not background.done:
                # an exchange has several rounds: let it pass before the next slice
                if any(request.Test() for _ in range(POLLS)):
                    break
                background.advance()
                if not background.waits:
                    continue
            time.sleep(pause)
            pause = min(pause + 5e-6, REST)
        self.watchdog.rests()
