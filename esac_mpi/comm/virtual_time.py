"""Tasks in virtual time: which one is begun next, and whose result is told next. No MPI here.

Each of a number of virtual workers has one task at a time; it takes the next one at the virtual end of its last. A task lasts
what it turns out to last, in a unit that every machine counts alike (environment steps, and updates in such steps). Results are
told in the order of (virtual end, worker): one that has come in waits until no task still at work can end before it, which
the progress of these shows, and what each lasts at least by its order. So what is told when does not depend on who does the
work, or how fast: the answer depends on the number of workers alone. This is conservative discrete-event simulation (Chandy
and Misra 1979) on the run itself.

A result that may not be told yet is passed over, and its worker waits on the virtual clock, so on every machine alike.

`Arrival` is the other order: results are told as they come in, or as a record says that they came.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.host.stop import EndsRun

AT_LEAST = 1  # what every task lasts at least, so that none ends when it begins, before others of that moment [steps]


@dataclass
class Task:
    """What a virtual worker is to do, and how far it is."""

    worker: int
    start: int  # virtual [steps]
    order: Any  # what is to be done
    at_root: bool = False  # whether rank 0 alone can do it
    begun: bool = False
    least: int = 0  # virtual time that it lasts at least, as its order says [steps]
    progress: int = 0  # virtual time that it has taken so far, or a lower bound of it [steps]
    result: Any = None
    done: bool = False  # progress is what it took, then
    rank: int = 0  # that did it, a real one
    began: float = 0.0  # work on it, on the clock of rank 0 [s]
    ended: float = 0.0  # the same of its end [s]
    busy: float = 0.0  # time of the rank's that it took [s]: with others in turn, and paused at times, it lasts longer

    @property
    def earliest(self) -> tuple[int, int]:
        """When it ends, or can end at the earliest: (virtual end, worker), by which results are told."""
        return self.start + max(self.progress, self.least, AT_LEAST), self.worker


class Agenda:
    """The tasks of all workers that have been given out and not been told.

    may_be_told: whether a result that has come in can be told; it changes by what is told alone. now: virtual time [steps].
    by_progress: whether it matters to the order how far a task is.
    """

    by_progress = True

    def __init__(
        self, may_be_told: Callable[[Task], bool] = lambda task: True, now: int = 0
    ) -> None:
        self._tasks: dict[int, Task] = {}  # worker -> its task
        self._may_be_told, self._now = may_be_told, now
        self._awaited: tuple[Task, tuple[int, int], int] | None = (
            None  # what blocks all, its earliest end, among how many
        )

    def __iter__(self) -> Iterator[Task]:
        """Go through the tasks, in no order."""
        return iter(list(self._tasks.values()))

    def give(
        self, worker: int, start: int, order: Any, at_root: bool = False, least: int = 0
    ) -> Task:
        """Give a worker its next task, which lasts `least` at least [steps]. Raises ValueError if it has one."""
        if worker in self._tasks:
            raise ValueError(f"worker {worker} has a task that was not told")
        self._tasks[worker] = Task(worker, start, order, at_root, least=least)
        return self._tasks[worker]

    def end(self, task: Task) -> None:
        """Note that a task's result has come in."""
        task.done = True

    def tell(self) -> Task | None:
        """Take out and return the task whose result is told next; None while one that is at work may still end before it.

        One that was passed over has lasted until it is told.
        """
        if self._is_blocked():
            return None
        waiting = [
            (task.earliest, task) for task in self
        ]  # no two are equal: a worker has one task
        heapq.heapify(waiting)
        while waiting:
            earliest, task = heapq.heappop(waiting)
            if not task.done:
                self._awaited = task, earliest, len(self._tasks)
                return None
            if self._may_be_told(task):
                self._now = max(earliest[0], self._now)
                task.progress = self._now - task.start
                return self._tasks.pop(task.worker)
        return None

    def _is_blocked(self) -> bool:
        """Return whether the task that the last look found at work still keeps all others from being told."""
        if self._awaited is None:
            return False
        task, earliest, count = self._awaited
        return not task.done and task.earliest == earliest and len(self._tasks) == count


class Arrival(Agenda):
    """The same with results told as they come in: nobody waits, and what is told when depends on the machines.

    due: workers whose results are told before all others, in this order, which a record has, int64 [n]. strict: whether tasks
    that do not go with it are an error; else what is left of it is forgotten. may_be_told: where it says no, those that came
    later go before; it is not asked of what is due.
    """

    by_progress = False

    def __init__(
        self,
        due: Sequence[int] | np.ndarray = (),
        strict: bool = True,
        may_be_told: Callable[[Task], bool] = lambda task: True,
    ) -> None:
        super().__init__(may_be_told)
        self.due = np.asarray(due, np.int64)
        self._strict = strict
        self._came: list[int] = []  # workers whose results have come in, in this order

    def end(self, task: Task) -> None:
        """Note that a task's result has come in."""
        task.done = True
        self._came.append(task.worker)

    def tell(self) -> Task | None:
        """Take out and return the task whose result is told next; None where there is none. Raises OrderDiffers."""
        if self.due.size and int(self.due[0]) not in self._tasks:
            if self._strict:
                raise OrderDiffers(
                    f"worker {self.due[0]} is due by the record of the order, and has no task: the run that has it gave other "
                    "results, on another machine or with other versions; there it can be made again"
                )
            self.due = self.due[:0]
        worker = self._next()
        if worker is None:
            return None
        self.due = self.due[1:]
        self._came.remove(worker)
        return self._tasks.pop(worker)

    def _next(self) -> int | None:
        """Return the worker whose result is told next; None where it has not come in."""
        if self.due.size:
            worker = int(self.due[0])
            return worker if worker in self._came else None
        return next(
            (worker for worker in self._came if self._may_be_told(self._tasks[worker])), None
        )


class OrderDiffers(EndsRun):
    """Results cannot be told in the order of a record: other tasks than those that it is of."""
