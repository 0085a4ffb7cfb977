"""Who works on which trial: the task that holds its lock, from its first seed to its last.

Optuna's journal storage has no heartbeats, so a killed task's trial is known by its lock, which is
made as a run's run.lock. Where another host's locks do not reach this one, the lock of a living
holder seems free: one that such a host has signed counts as free only after nobody has touched it
for FRESH seconds; its holder does so every half a minute.
"""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from esac_mpi.record import Refused, lock
from esac_mpi.record.locked_directory import Held
from esac_mpi.record.reading import FRESH

FOLDER = "locks"


class Owners:
    """The owners of a study's trials. clock: as files are dated [s]."""

    def __init__(self, study: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = study / FOLDER
        self._clock = clock
        self._touched: dict[int, float] = {}  # date of a trial's lock at the first look

    def claim(self, number: int) -> Held | None:
        """Take a trial; return what to close at its end, None where somebody may have it."""
        if not self.is_left(number):  # at once: a task asks for all that go on
            return None
        held = Held(self._folder, name(number))
        try:
            held.claim()
        except Refused:
            return None
        held.keep_beating()
        return held

    def is_left(self, number: int) -> bool:
        """Say whether nobody works on a trial, as far as can be read; write nothing."""
        file = self._folder / name(number)
        return not file.exists() or (
            not self._is_doubtful(number) and lock.is_free(self._folder, name(number))
        )

    def is_sure(self, number: int) -> bool:
        """Say whether a trial's holder lives: it is of this host, or was seen to touch the lock."""
        file = self._folder / name(number)
        if not file.exists():
            return False
        touched = file.stat().st_mtime
        if self._host(number) == socket.gethostname():
            return True
        return touched != self._touched.setdefault(number, touched)

    def holder(self, number: int) -> str:
        """Name who has signed a trial's lock, and the file."""
        return f"host {self._host(number) or '?'} ({self._folder / name(number)})"

    def _is_doubtful(self, number: int) -> bool:
        file = self._folder / name(number)
        elsewhere = self._host(number) not in ("", socket.gethostname())
        return elsewhere and self._clock() - file.stat().st_mtime < FRESH

    def _host(self, number: int) -> str:
        file = self._folder / name(number)
        return next(iter(file.read_text(errors="replace").split()), "") if file.exists() else ""


def name(number: int) -> str:
    """Name the file of a trial's lock."""
    return f"trial-{number:04}.lock"
