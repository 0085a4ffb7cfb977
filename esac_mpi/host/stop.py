"""When a rank stops: signals, the batch job's end, and giving up what is unfinished. No MPI here.

A first signal is a wish to stop at the end of the generation. SIGTERM and SIGXCPU give the
generation a grace, because batch systems kill soon after them. A second signal gives the generation
up at once; a third ends the job, and nothing is written. A generation that is given up is made
again at the next start: all its random numbers are addressed.
"""

import math
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# LSF's, SGE's; at the limit of processor time; of a closed terminal
WARNINGS = (signal.SIGUSR2, signal.SIGXCPU, signal.SIGHUP)
# signals this close are one [s]: a launcher and its terminal or batch system send it each
SAME = 1.0
LONGEST = 1e8  # of a timer [s]
AGAIN = 0.1  # time between two alarms of what is overdue [s]: one can be lost in a destructor


def stop_signals() -> tuple[int, ...]:
    """List the signals that ask to stop: of WARNINGS those that nobody around us has set."""
    return (*SIGNALS, *(number for number in WARNINGS if _is_free(signal.getsignal(number))))


def _is_free(handler: Any) -> bool:
    # a search's, around its trials
    return handler == signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), Stop)


def die_of_interrupt() -> NoReturn:
    """End this process as Ctrl-C does, without a traceback, so that a shell's loop ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(128 + signal.SIGINT)  # where it is blocked


class GivenUp(BaseException):
    """A section's time is over; a BaseException, so that nothing takes it for an error."""


class Abandoned(Exception):
    """A rank gave its work up, so that all discard it; nothing was changed by it."""


class EndsRun(Exception):
    """A rank's finding that ends the run; told: whether the others raise it, too."""

    told = False


class Stop:
    """A rank's wish to stop, and the time at which it gives up.

    wished: whether this rank wishes to stop. why: what it was first asked by, in a few words.
    grace: time that SIGTERM and SIGXCPU leave to a generation [s].
    clock: monotonic [s]. abort: ends the job.
    """

    def __init__(self, clock: Callable[[], float], abort: Callable[[], None]) -> None:
        self.wished, self.why = False, ""
        self.grace = math.inf
        self._clock, self._abort = clock, abort
        self._heard: list[float] = []
        self._before: dict[int, Any] = {}  # handlers that `listen` has replaced, by signal
        self._give_up, self._reason = math.inf, ""  # when [s], and why
        self._inside = False
        self._process = 0  # that listens

    def listen(self, last: Callable[[], None] | None = None) -> None:
        """Take the signals over, in the main thread. last: what a third one does, not abort."""
        self._abort = last or self._abort
        self._process = os.getpid()
        handlers = dict.fromkeys(stop_signals(), self._hear) | {signal.SIGALRM: self._alarm}
        for number, handler in handlers.items():
            self._before[number] = signal.signal(number, handler)

    def end(self) -> None:
        """Let signals and the alarm pass: the run is over, and its exit code stands."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (*SIGNALS, *WARNINGS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def let_go(self) -> None:
        """Give the signals back to whom `listen` took them from."""
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def wish(self, why: str) -> None:
        """Wish to stop at the end of the generation; the first reason stands."""
        self.wished, self.why = True, self.why or why

    def give_up_at(self, when: float, why: str = "") -> None:
        """Wish to stop; give up what is unfinished at a time of the clock, or the earlier one."""
        if when < self._give_up:
            self._give_up, self._reason = when, why
            if self._before:  # else nobody listens, and what is unfinished is not interrupted
                left = min(max(when - self._clock(), 1e-3), LONGEST)
                signal.setitimer(signal.ITIMER_REAL, left, AGAIN)

    @property
    def overdue(self) -> bool:
        """Whether what is unfinished is to be given up."""
        return self._clock() >= self._give_up

    def carry_out(self, action: Callable[[], None]) -> bool:
        """Run `action`; return whether it came to its end, or was given up."""
        ended = False
        try:
            try:
                self._inside = True
                if not self.overdue:
                    action()
                    ended = True
            finally:
                self._inside = False
        except GivenUp:
            self._inside = False
        return ended

    def _hear(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            self._hear_in_child(number)
            return
        now = self._clock()
        # the kernel repeats XCPU every second
        if self._heard and (number == signal.SIGXCPU or now - self._heard[-1] < SAME):
            # whose grace holds, whatever came just before
            if number in (signal.SIGTERM, signal.SIGXCPU):
                self.give_up_at(now + self.grace, signal.Signals(number).name)
            return
        self._heard.append(now)
        name = signal.Signals(number).name
        self.wish(name)
        if len(self._heard) > 2:
            self._inside = False  # no alarm comes between
            self._abort()
        elif len(self._heard) == 2:
            self.give_up_at(now, name)
        elif number in (signal.SIGTERM, signal.SIGXCPU):
            self.give_up_at(now + self.grace, name)

    def _hear_in_child(self, number: int) -> None:
        """End a child process by SIGTERM when its rank, which may have had it too, has no grace."""
        if number == signal.SIGTERM:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, min(self.grace + SAME, LONGEST))

    def _alarm(self, number: int, frame: Any) -> None:
        if not self.overdue:
            return
        self.wish(self._reason)
        if self._inside:
            raise GivenUp
