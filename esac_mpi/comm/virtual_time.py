"""Order tasks in virtual time: which begins next, and whose result is told next. No MPI here.

Each virtual worker has one task at a time, and takes the next at the virtual end of its last. A
task's duration is counted in a unit that is the same on every machine (environment steps, and
updates in such steps). Results are told in the order of (virtual end, worker): a result that has
come in waits until no task at work can end before it, by its progress and by what its order says it
lasts at least. So the order does not depend on who does the work, or how fast, but on the number of
workers alone. This is conservative discrete-event simulation (Chandy and Misra 1979) on the run
itself.

A result that may not be told yet is passed over; its worker waits in virtual time, so on every
machine alike.

`Arrival` is the other order: results are told as they come in, or as a record has it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.host.stop import EndsRun

# least duration of a task, so that none ends when it begins, before others of that moment [steps]
AT_LEAST = 1


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
    # the rank's time that it took [s]: taking turns with others, or paused, it lasts longer
    busy: float = 0.0

    @property
    def earliest(self) -> tuple[int, int]:
        """Earliest possible end: (virtual end, worker), by which results are told."""
        return self.start + max(self.progress, self.least, AT_LEAST), self.worker


class Agenda:
    """All workers' tasks that have been given out and not been told.

    may_be_told: whether an arrived result can be told; changes only by what is told. now: virtual
    time [steps]. by_progress: whether the order depends on tasks' progress.
    """

    by_progress = True

    def __init__(
        self, may_be_told: Callable[[Task], bool] = lambda task: True, now: int = 0
    ) -> None:
        self._tasks: dict[int, Task] = {}  # worker -> its task
        self._may_be_told, self._now = may_be_told, now
        # what blocks all, its earliest end, among how many
        self._awaited: tuple[Task, tuple[int, int], int] | None = None

    def __iter__(self) -> Iterator[Task]:
        """Go through the tasks, in no order."""
        return iter(list(self._tasks.values()))

    def give(
        self, worker: int, start: int, order: Any, at_root: bool = False, least: int = 0
    ) -> Task:
        """Give a worker a task of at least `least` [steps]. Raises ValueError if it has one."""
        if worker in self._tasks:
            raise ValueError(f"worker {worker} has a task that was not told")
        self._tasks[worker] = Task(worker, start, order, at_root, least=least)
        return self._tasks[worker]

    def begin(self, free: list[int], root_has_one: bool) -> Iterator[tuple[Task, int]]:
        """Yield the tasks that can begin now, those that can end first before others, and ranks.

        free: ranks without a task, the last of which is taken first. root_has_one: whether rank 0
        has a task that others could do, too; it takes one where no other rank is free.
        """
        waiting = [task for task in self if not task.begun]
        for task in sorted(waiting, key=lambda task: task.earliest):
            if task.at_root:
                rank = 0
            elif free:
                rank = free.pop()
            elif not root_has_one:
                rank = 0
                root_has_one = True
            else:
                continue
            task.begun = True
            yield task, rank

    def end(self, task: Task) -> None:
        """Note that a task's result has come in."""
        task.done = True

    def tell(self) -> Task | None:
        """Take out the task to be told next; None while one at work may still end before it.

        One that was passed over lasts until it is told.
        """
        if self._is_blocked():
            return None
        for task in sorted(self, key=lambda task: task.earliest):
            earliest = task.earliest
            if not task.done:
                self._awaited = task, earliest, len(self._tasks)
                return None
            if self._may_be_told(task):
                self._now = max(earliest[0], self._now)
                task.progress = self._now - task.start
                return self._tasks.pop(task.worker)
        return None

    def _is_blocked(self) -> bool:
        """Tell whether the task last found at work still keeps all others from being told."""
        if self._awaited is None:
            return False
        task, earliest, count = self._awaited
        return not task.done and task.earliest == earliest and len(self._tasks) == count


class Arrival(Agenda):
    """An agenda in order of arrival: nobody waits, and the order depends on the machines.

    due: workers to be told before all others, in a record's order, int64 [n]. strict: whether tasks
    that contradict it are an error; else the rest of it is dropped. may_be_told: where it says no,
    later ones go before; not asked of what is due.
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
        """Take out the task to be told next; None if there is none. Raises OrderDiffers."""
        if self.due.size and int(self.due[0]) not in self._tasks:
            if self._strict:
                raise OrderDiffers(
                    f"worker {self.due[0]} is due by the record of the order, and has no task: the "
                    "run that has it gave other results, on another machine or with other versions;"
                    " there it can be made again"
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
        may = (worker for worker in self._came if self._may_be_told(self._tasks[worker]))
        return next(may, None)


class OrderDiffers(EndsRun):
    """Results cannot be told in the order of a record: other tasks than those that it is of."""
