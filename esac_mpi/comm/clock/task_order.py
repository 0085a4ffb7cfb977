"""Order of tasks without a barrier: workers' individuals, and the critic's turns (AES-RL)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from esac_mpi.comm.clock.tasks import Piece
from esac_mpi.comm.virtual_time import Task
from esac_mpi.config import AESRL


@dataclass(frozen=True)
class Arrival:
    """An individual: whose it is, and its task."""

    worker: int
    length: int  # of its own episodes, by which the critic's updates are counted [steps]
    piece: Piece


def piece(playing: float, updating: float, updates: float, lasted: float, cost: float) -> Piece:
    """Make an individual's task: `playing` and `updating` [s], `lasted` [virtual steps]."""
    first = min(lasted, float(math.ceil(cost * updates)))
    return Piece((first, lasted - first), (updating, playing))


class Giving:
    """What a clock of tasks asks for once one was told.

    draw: (worker, virtual start [steps], whether a turn of the critic was told) -> the individual
    that it gets. turn: the critic's n-th turn, from 0; None = it has none.
    """

    def __init__(
        self,
        options: AESRL,
        draw: Callable[[int, int, bool], Arrival],
        turn: Callable[[int], Piece] | None,
    ) -> None:
        self._options, self._draw, self._turn = options, draw, turn
        self._at: dict[int, Arrival] = {}  # worker -> what it was given
        self._steps, self._taught, self._turns, self._teaching = 0, 0.0, 0, False
        self._taught_until = 0

    def __call__(self, told: Task | None) -> Iterator[tuple[int, float, Piece, bool]]:
        """Yield what is given out once a task was told; at the start a task of every worker."""
        critic = self._options.workers
        if told is None:
            for worker in range(critic):
                yield self._next(worker, 0)
            return
        now = told.start + told.progress
        if told.worker == critic:
            self._teaching, self._taught_until = False, now
            self._taught += self._options.critic_chunk
        else:
            self._steps += self._at[told.worker].length
            yield self._next(told.worker, now)
        if self._turn is not None and self._is_due():
            self._teaching = True
            self._turns += 1
            yield critic, max(now, self._taught_until), self._turn(self._turns - 1), True

    def _is_due(self) -> bool:
        """Tell whether the critic has its next turn."""
        options = self._options
        begun = self._steps >= max(options.start_steps, options.batch_size)
        return begun and self._steps - self._taught >= options.critic_chunk and not self._teaching

    def _next(self, worker: int, now: int) -> tuple[int, float, Piece, bool]:
        """Return a worker's next individual."""
        self._at[worker] = self._draw(worker, now, self._taught > 0)
        return worker, now, self._at[worker].piece, False
