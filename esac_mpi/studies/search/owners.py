"""Who works on which trial: a lock of each, as run.lock is one of a run, held by the task from its first seed to its last.

Where another host's locks do not reach this one, a lock seems free whose holder lives: one that such a host has signed counts as
free only after nobody has touched it for FRESH seconds; its holder does so every half a minute.
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
        self._folder, self._clock = study / FOLDER, clock
        self._touched: dict[
            int, float
        ] = {}  # when a lock was when it was first looked at, by trial

    def claim(self, number: int) -> Held | None:
        """Take a trial; return what to close when it is done, None where somebody has it, or may have."""
        held = Held(self._folder, name(number))
        if (self._folder / name(number)).exists() and not self.is_left(
            number
        ):  # at once: a task asks for all that go on
            return None
        try:
            held.claim()
        except Refused:
            return None
        held.keep_beating()
        return held

    def is_left(self, number: int) -> bool:
        """Return whether nobody works on a trial, as far as can be read; nothing is written."""
        file = self._folder / name(number)
        return not file.exists() or (
            not self._is_doubtful(number) and lock.is_free(self._folder, name(number))
        )

    def is_sure(self, number: int) -> bool:
        """Return whether a trial that could not be taken is in living hands: of this host, or seen to be touched."""
        file = self._folder / name(number)
        if not file.exists():
            return False
        touched = file.stat().st_mtime
        return self._host(number) == socket.gethostname() or touched != self._touched.setdefault(
            number, touched
        )

    def holder(self, number: int) -> str:
        """Return who has signed a trial's lock, and which file that is."""
        return f"host {self._host(number) or '?'} ({self._folder / name(number)})"

    def _is_doubtful(self, number: int) -> bool:
        file = self._folder / name(number)
        elsewhere = self._host(number) not in ("", socket.gethostname())
        return elsewhere and self._clock() - file.stat().st_mtime < FRESH

    def _host(self, number: int) -> str:
        file = self._folder / name(number)
        return next(iter(file.read_text(errors="replace").split()), "") if file.exists() else ""


def name(number: int) -> str:
    """Return the name of a trial's lock."""
    return f"trial-{number:04}.lock"
