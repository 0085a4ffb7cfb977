"""Dispatch: tasks on ranks without a barrier, in an agenda's order. Knows nothing of evolution.

Rank 0 gives tasks out, works on some itself, and hears how far the others are. A rank works a slice
at a time and looks for messages between two slices, so that all can leave their tasks, meet in an
exchange, and go on. A task in progress stays on its rank, and begins again after a restart: it is a
function of its order.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, Protocol, cast

from esac_mpi.comm.mpi import MPI
from esac_mpi.comm.virtual_time import Agenda, Task
from esac_mpi.host.stop import EndsRun, Stop
from esac_mpi.host.watchdog import Watchdog

# a task at work: yields how long it has taken so far; returns that and its result
Work = Generator[int, None, tuple[int, Any]]
# why all leave their tasks: whether a rank's time is over, and what rank 0 has found
Halt = tuple[bool, EndsRun | None]

ORDER, PROGRESS, RESULT, PAUSE, PAUSED, OVERDUE = range(10, 16)  # tags
REPORT = 0.01  # least time between two reports of a rank's progress [s]
REPORTS = 1000  # that rank 0 takes at most, of all ranks together [1/s]
REST = 1e-3  # longest sleep of a rank without work [s]


def interval(size: int, by_progress: bool, silence_limit: float) -> float:
    """Return the least time between two progress reports of a rank, one of `size` ranks [s].

    In the order of arrival a report only shows that the rank is alive: as the watchdog needs it.
    """
    return max(REPORT if by_progress else silence_limit / 5, (size - 1) / REPORTS)


class Leader(Protocol):
    """Who decides, on rank 0."""

    agenda: Agenda

    def take_result(self, task: Task) -> bool:
        """Take a task's result and schedule the next tasks; return whether it is enough."""

    def complete_order(self, order: Any, rank: int) -> Any:
        """Add to an order what another rank needs of it."""


class Dispatch:
    """The tasks of a run on its ranks.

    work: makes a task's work from its order, on any rank. leader: who decides, set on rank 0 before
    `go_on`; begun: whether it was. busy: this rank's time on tasks [s]; leading: rank 0's time on
    decisions [s].
    """

    def __init__(self, comm: Any, stop: Stop, watchdog: Watchdog, clock: Callable[[], float],
                 work: Callable[[Any], Work]) -> None:  # fmt: skip
        self._comm = comm.Dup()  # messages of its own
        self.size = comm.size
        self._stop, self._watchdog, self._clock, self._work = stop, watchdog, clock, work
        self._own: list[tuple[Task, Work]] = []  # begun here and not ended
        self._at: dict[int, Task] = {}  # rank 0: other rank -> the task that is there
        self._sent: list[MPI.Request] = []
        self._reported, self._interval = 0.0, REPORT
        self.busy = self.leading = 0.0
        self._zero = clock()  # ranks have just met: the same moment on all of their clocks
        self.leader: Leader | None = None
        self.begun = False

    def go_on(self) -> bool:
        """Work until the leader, who hears results in the agenda's order, says it is enough.

        Collective. Returns, on all ranks, whether the time of one of them is over. Raises, on all
        ranks, what rank 0 has found that ends the run (EndsRun).
        """
        over, found = self._serve() if self.leader is None else self._lead(self.leader)
        MPI.Request.Waitall(self._sent)
        self._sent = []
        self._watchdog.rests()
        if found is not None:
            raise found
        return over

    def free(self) -> None:
        """Release the messages' communicator; all ranks call this."""
        self._comm.Free()

    def _lead(self, leader: Leader) -> Halt:
        overdue, found = False, None
        try:
            overdue = self._until_enough(leader)
        except EndsRun as error:
            found, error.told = error, True
        return self._halt(leader.agenda, (overdue, found))

    def _until_enough(self, leader: Leader) -> bool:
        """Give tasks out, work and hear until the leader has enough; return whether time is up."""
        pause, agenda = 0.0, leader.agenda
        while not self._stop.overdue:
            enough, begun = self._decide(leader)
            if enough:
                return False
            heard = self._hear(agenda)
            if heard is None:
                return True
            if self._own:
                places = range(len(self._own))
                self._advance(min(places, key=lambda i: self._own[i][0].earliest), agenda)
                pause = 0.0
            elif begun or heard:
                pause = 0.0
            else:
                pause = self._idle(pause)
        return True

    def _idle(self, pause: float) -> float:
        """Sleep between two looks for messages; return the next pause, 0.0 at first [s]."""
        if not pause:
            self._watchdog.waits()
        time.sleep(pause)
        return min(pause + 5e-6, REST)

    def _decide(self, leader: Leader) -> tuple[bool, int]:
        """Tell the leader results, give tasks out; return (enough, number given out)."""
        start, told, enough = self._clock(), False, False
        while not enough and (task := leader.agenda.tell()) is not None:
            enough, told = leader.take_result(task), True
        begun = 0 if enough else self._give_out(leader)
        if told or begun:
            self.leading += self._clock() - start
        return enough, begun

    def _give_out(self, leader: Leader) -> int:
        """Let tasks begin on free ranks, and on rank 0; return their number."""
        if all(task.begun for task in leader.agenda):
            return 0
        begun = 0
        free = [rank for rank in range(self.size - 1, 0, -1) if rank not in self._at]
        root_has_one = any(not task.at_root for task, _ in self._own)
        every = interval(self.size, leader.agenda.by_progress, self._watchdog.silence_limit)
        for task, rank in leader.agenda.begin(free, root_has_one):
            begun += 1
            if rank:
                self._at[rank] = task
                self._send((every, leader.complete_order(task.order, rank)), rank, ORDER)
            else:
                self._own.append((task, self._work(task.order)))
        return begun

    def _hear(self, agenda: Agenda) -> int | None:
        """Take other ranks' messages; return their number, None if a rank's time is over."""
        heard = 0
        while heard < self.size and (message := self._receive()) is not None:
            rank, tag, content = message
            heard += 1
            if tag == OVERDUE:
                return None
            self._take(agenda, rank, tag, content)
        return heard

    def _take(self, agenda: Agenda, rank: int, tag: int, content: Any) -> None:
        """Note a rank's progress or its result."""
        task = self._at[rank]
        if tag == PROGRESS:
            task.progress = content
        else:
            del self._at[rank]
            task.progress, task.result, began, ended, task.busy = content
            task.rank, task.began, task.ended = rank, self._zero + began, self._zero + ended
            agenda.end(task)

    def _advance(self, place: int, agenda: Agenda | None = None) -> None:
        """Do a slice of a task; if the alarm cuts it, it begins again after a restart.

        Its end is noted in rank 0's agenda; other ranks send what it gave.
        """
        task, work = self._own[place]

        def part() -> None:
            task.progress = next(work)

        start, ended = self._clock(), False
        task.began = task.began or start
        self._watchdog.works_on(f"a task of worker {task.worker}")
        try:
            self._stop.carry_out(part)
        except StopIteration as end:
            task.progress, task.result = end.value
            ended = True
        task.ended = self._clock()
        task.busy += task.ended - start
        self.busy += task.ended - start
        if ended:
            del self._own[place]
            if agenda is not None:
                agenda.end(task)
                return
            times = task.began - self._zero, task.ended - self._zero, task.busy
            self._send((task.progress, task.result, *times), 0, RESULT)

    def _halt(self, agenda: Agenda, why: Halt) -> Halt:
        """Let all ranks leave their tasks where they are; take what comes in until they have."""
        for rank in range(1, self.size):
            self._send(why, rank, PAUSE)
        left = self.size - 1
        self._watchdog.waits()
        while left:
            message = self._receive()
            if message is None:
                time.sleep(1e-5)
            elif message[1] == PAUSED:
                left -= 1
            elif message[1] != OVERDUE:
                self._take(agenda, *message)
        return why

    def _serve(self) -> Halt:
        pause, told = 0.0, False
        while True:
            message = self._receive()
            if message is not None and message[1] == PAUSE:
                self._send(None, 0, PAUSED)
                return cast(Halt, message[2])
            if message is not None:
                self._interval, order = message[2]
                self._own = [(Task(0, 0, order), self._work(order))]
            if self._stop.overdue and not told:
                self._send(None, 0, OVERDUE)
                told = True
            if self._own and not told:
                self._advance(0)
                now = self._clock()
                if self._own and now - self._reported >= self._interval:
                    self._send(self._own[0][0].progress, 0, PROGRESS)
                    self._reported = now
                pause = 0.0
            else:
                pause = self._idle(pause)

    def _send(self, content: object, rank: int, tag: int) -> None:
        self._sent = [request for request in self._sent if not request.Test()]
        self._sent.append(self._comm.isend(content, rank, tag))

    def _receive(self) -> tuple[int, int, Any] | None:
        """Return (rank, tag, content) of the next message; None where there is none."""
        status = MPI.Status()
        message = self._comm.improbe(status=status)
        if message is None:
            return None
        return status.Get_source(), status.Get_tag(), message.recv()
