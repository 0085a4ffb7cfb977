"""A thread on every rank that ends the job when it hangs, or other ranks are no longer heard of.

It hangs with a member, an evaluation episode or a slice of learning that does not end.
"""

import faulthandler
import math
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress

TICK = 1.0  # longest time between two looks [s]


class Watchdog:
    """What this rank is doing, and for how long.

    member_limit, silence_limit: how long one member, episode or slice may take, and how long other
    ranks may be waited for [s]; inf = for ever. generation: of the run. sleeps: whether it never
    looks, since a person does. Time is counted in looks, so that a suspended job or a clock that
    jumps is no alarm.
    """

    def __init__(self, who: str, abort: Callable[[str], None]) -> None:
        self.member_limit = self.silence_limit = math.inf
        self.generation = 0
        self.sleeps = False
        self._who, self._abort = who, abort
        self._doing, self._waiting = "", False
        self._seconds = 0.0  # at it so far
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def works_on(self, what: str) -> None:
        """Begin something of which no part may take longer than member_limit."""
        self._doing, self._waiting, self._seconds = what, False, 0.0

    def beat(self) -> None:
        """Be seen to go on."""
        self._seconds = 0.0

    def waits(self) -> None:
        """Wait for other ranks."""
        self._doing, self._waiting, self._seconds = "waiting for other ranks", True, 0.0

    def rests(self) -> None:
        """Do what has no limit."""
        self._doing = ""

    def watch(self) -> None:
        """Begin to look."""
        limited = min(self.member_limit, self.silence_limit) < math.inf
        if self._thread is None and not self.sleeps and limited:
            self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more; return when nothing is left of it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        tick = 0.0
        while not self._over.wait(tick):
            tick = min(TICK, self.member_limit / 5, self.silence_limit / 5)
            if not self._doing:
                continue
            self._seconds += tick
            limit, name = self.member_limit, "stop.member_minutes"
            if self._waiting:
                limit, name = self.silence_limit, "stop.silent_minutes"
            if self._seconds > limit:
                self._bark(f"{self._doing} for {limit / 60:.3g} minutes ({name})")

    def _bark(self, what: str) -> None:
        stacks = ""
        with suppress(OSError, ValueError, RuntimeError), tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read().decode(errors="replace")
        where = f"{what}, generation {self.generation}"
        self._abort(f"{self._who} hangs: {where}; its stacks:\n{stacks}")
