"""Simulate tasks without a barrier on a cluster, event by event, with the program's own agenda.

    begin       tasks of the agenda go to ranks, as in Agenda.begin
    work        a task has two stages, updates and then steps; its progress is the part of its
                virtual time that is over, and the updates' share is known when they begin. Rank 0
                goes on with that of its tasks which can end first
    tell        in virtual order a result waits until nothing at work can end before it; in the
                order of arrival it does not
    decide      a told result costs rank 0 some time; so does a row that it writes while others work
    evaluation  at the end of a generation all leave their tasks, and play noise-free episodes,
                dealt like members

Left out: that rank 0 hears others only between two slices of its own work, and message sizes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.generations import EPISODE_NUMBERS, NOTHING
from esac_mpi.comm.virtual_time import Agenda, Arrival, Task

TINY = 1e-9  # what is left of work that is done [s]
ALIKE = 1e-6  # virtual times that are taken for one [steps]


@dataclass(frozen=True)
class Piece:
    """A task: its updates, then its steps."""

    virtual: tuple[float, float]  # what each lasts on the virtual clock [steps]
    seconds: tuple[float, float]  # on a core [s]

    def over(self, spent: float) -> float:
        """Find how much of the virtual clock is over after so much work on it [steps]."""
        (updates, steps), (first, second) = self.virtual, self.seconds
        if spent < first:
            return updates * spent / first
        return updates + (steps * min(1.0, (spent - first) / second) if second else steps)

    def until(self, progress: float) -> float:
        """Return the work until `progress` on the virtual clock, all of it at most [s]."""
        (updates, steps), (first, second) = self.virtual, self.seconds
        if progress <= updates and updates:
            return first * progress / updates
        return first + (second * min(1.0, (progress - updates) / steps) if steps else second)


@dataclass
class Section:
    """A generation: its number of individuals' results, and the time spent at its ends [s]."""

    arrivals: int
    record: float = 0.0  # rank 0 writes the row before
    lead: float = 0.0  # rank 0's time for a result that it is told
    serial: float = 0.0  # for which all wait
    evaluation: np.ndarray = field(default_factory=lambda: NOTHING)  # [episodes]


class AtWork:
    """A task that a rank has begun."""

    def __init__(self, task: Task, piece: Piece, rank: int) -> None:
        self.task, self.piece, self.rank = task, piece, rank
        self.spent = 0.0  # on it [s]

    @property
    def left(self) -> float:
        """The work that is left [s]."""
        return sum(self.piece.seconds) - self.spent

    @property
    def position(self) -> float:
        """Earliest virtual end [steps]: of its updates at first, then what it has come to."""
        return self.task.start + max(self.piece.virtual[0], self.piece.over(self.spent))

    def until(self, position: float) -> float:
        """Return the work that is left until a virtual time, or to its end [s]."""
        return max(0.0, self.piece.until(position - self.task.start) - self.spent)

    def speed(self) -> tuple[float, float]:
        """Find how fast its position moves now [steps/s], and how long it does so [s]."""
        (_, steps), (first, second) = self.piece.virtual, self.piece.seconds
        if self.spent < first - TINY:
            return 0.0, first - self.spent
        return (steps / second if second else 0.0), self.left

    def advance(self, seconds: float) -> None:
        """Work on it for so long [s]."""
        self.spent += seconds
        self.task.progress = int(self.piece.over(self.spent) + ALIKE)


# told -> (worker, virtual start, piece, whether it is rank 0's) to give
Give = Callable[[Task | None], Iterator[tuple[int, float, Piece, bool]]]


class Queue:
    """The clock of one cluster that works off tasks, section after section."""

    def __init__(self, cluster: Cluster, give: Give, critic: int, arrival: bool = False) -> None:
        """give: tasks after a told one, None at first. critic: whose results do not count."""
        self.cluster, self._give, self._critic, self._arrival = cluster, give, critic, arrival
        self.now, self.root = 0.0, 0.0  # and until when rank 0 decides or writes [s]
        self.busy = np.zeros(cluster.ranks)  # time that each rank has worked on tasks [s]
        self._agenda: Agenda = Arrival() if arrival else Agenda()
        self._pieces: dict[int, Piece] = {}  # worker -> of the task that it has
        self._at: list[AtWork] = []
        self._put(None)

    def go(self, section: Section) -> float:
        """Go through a generation; return the time at its end [s]."""
        arrived, self.root = 0, max(self.root, self.now + section.record)
        while True:
            if self.now >= self.root - TINY:
                told, arrived = self._tell(section, arrived)
                if arrived == section.arrivals:
                    break
                if told:
                    continue
                self._begin()
            self._advance()
        self.now = max(self.now, self.root) + section.serial + 2 * self.cluster.sync()
        if section.evaluation.size:
            count = section.evaluation.size
            self.now += self.cluster.spread(
                section.evaluation, np.ones(count)
            ) + self.cluster.exchange(count, EPISODE_NUMBERS)
        return self.now

    def _tell(self, section: Section, arrived: int) -> tuple[bool, int]:
        """Tell one result, if possible; return whether, and how many individuals have arrived."""
        task = self._agenda.tell()
        if task is None:
            return False, arrived
        self._put(task)
        self.root = max(self.root, self.now) + section.lead
        return True, arrived + (task.worker != self._critic)

    def _put(self, told: Task | None) -> None:
        for worker, start, piece, at_root in self._give(told):
            self._agenda.give(worker, int(start), None, at_root, int(piece.virtual[0]))
            self._pieces[worker] = piece

    def _begin(self) -> None:
        """Give tasks to ranks."""
        busy = {work.rank for work in self._at}
        free = [rank for rank in range(self.cluster.ranks - 1, 0, -1) if rank not in busy]
        root_has_one = any(not work.task.at_root for work in self._at if work.rank == 0)
        for task, rank in self._agenda.begin(free, root_has_one):
            self._at.append(AtWork(task, self._pieces[task.worker], rank))

    def _advance(self) -> None:
        """Go on to the next moment at which something may change."""
        rates = {work.rank: [(work, 1.0, work.left)] for work in self._at if work.rank}
        if self.now >= self.root - TINY:
            rates[0] = shared([work for work in self._at if work.rank == 0])
        going = [one for works in rates.values() for one in works]
        until = [limit / rate for _, rate, limit in going if rate > 0]
        until += [self.root - self.now] if self.root > self.now + TINY else []
        until += self._awaited([(work, rate) for work, rate, _ in going if rate > 0])
        step = max(min(until), 0.0)
        self.now += step
        for work, rate, _ in going:
            work.advance(step * rate)
            self.busy[work.rank] += step * rate
            if work.left <= TINY:
                self._end(work)

    def _awaited(self, going: list[tuple[AtWork, float]]) -> list[float]:
        """Find how long each task that holds back the next result still does so, if any [s]."""
        done = [task.earliest for task in self._agenda if task.done]
        if self._arrival or not done:
            return []
        end, worker = min(done)
        before = [(work, rate) for work, rate in going if work.task.earliest < (end, worker)]
        return [work.until(end + (work.task.worker < worker)) / rate for work, rate in before]

    def _end(self, work: AtWork) -> None:
        """Note that a task has ended."""
        self._at.remove(work)
        work.task.progress = round(sum(work.piece.virtual))
        self._agenda.end(work.task)


def shared(works: list[AtWork]) -> list[tuple[AtWork, float, float]]:
    """Return (task, share of rank 0, work until the next change [s]): the one behind, or both."""
    if len(works) < 2:
        return [(work, 1.0, work.left) for work in works]
    behind, ahead = sorted(works, key=lambda work: work.position)
    if ahead.position - behind.position > ALIKE:
        return [(behind, 1.0, min(behind.left, behind.until(ahead.position)))]
    (slow, first), (fast, second) = behind.speed(), ahead.speed()
    if not slow or not fast:  # it does not get on while it works: it stays behind
        return [(behind, 1.0, first)] if not slow else [(ahead, 1.0, second)]
    share = fast / (slow + fast)
    return [(behind, share, first), (ahead, 1 - share, second)]
