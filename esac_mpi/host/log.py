"""Rank-aware logging and the progress display.

Only rank 0 speaks, except for warnings, which name their rank and host. A closed or full output
never ends a run.
"""

import errno
import logging
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from esac_mpi.host import streams

logger = logging.getLogger("esac_mpi")
progress = logging.getLogger("esac_mpi.progress")  # for stdout alone

# a pause between plain lines grows to this share of the time so far, and to this at most [s]
SHARE = 0.02
LONGEST = 300.0
HUGE = 1e9  # figures of a return from here on would fill lines


@contextmanager
def preserve_log() -> Iterator[None]:
    """Restore loggers and stdout's settings afterwards; close the files appended to."""
    handlers, stdout = logger.handlers[:], sys.stdout
    propagate, level = logger.propagate, logger.level
    errors = getattr(stdout, "errors", None)
    try:
        yield
    finally:
        ours = [handler for handler in logger.handlers if handler not in handlers]
        logger.handlers[:], logger.propagate = handlers, propagate
        for handler in ours:
            with suppress(OSError):  # a full disk has no room for the last lines of log.txt
                handler.close()
        logger.setLevel(level)
        if errors is not None and hasattr(stdout, "reconfigure"):
            stdout.reconfigure(errors=errors)


@contextmanager
def warn_on_root(rank: int) -> Iterator[None]:
    """Show on rank 0 alone what Python warns of, while all ranks do the same."""
    shown, show = warnings.showwarning, lambda *said, **where: None
    if rank:
        warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:  # else the task has its own now
            warnings.showwarning = shown


def setup(rank: int, quiet: bool = False) -> None:
    """Print this rank's messages to stdout: rank 0's unless it is quiet, warnings of the others."""
    console = _Console()
    console.setFormatter(_Formatter(rank, "%(message)s"))
    console.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.handlers[:] = [console]
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal still gets every line


def append_to(path: Path) -> None:
    """Append rank 0's messages, no progress, to a file, with the time (UTC); warn if that fails."""
    try:
        file = _File(path, 0)
    except OSError as error:
        logger.warning("%s: %s; messages go to stdout alone", path, error.strerror)
        return
    file.addFilter(lambda record: record.name != progress.name)
    logger.addHandler(file)


def append_error(path: Path, rank: int, words: str) -> None:
    """Append to a file why the run ends, which is printed elsewhere."""
    with suppress(OSError), closing(_File(path, rank)) as file:
        file.emit(logger.makeRecord(logger.name, logging.ERROR, "", 0, words, (), None))


def say(message: str) -> None:
    """Log what a person wants to know; heard from rank 0 alone."""
    logger.info("%s", message)


def warn(message: str) -> None:
    """Log what a person should look at; heard from any rank, with its name."""
    logger.warning("%s", message)


def tell(text: str) -> None:
    """Print what was asked for, on stdout alone.

    Once stdout fails, send it nowhere: the interpreter's last flush would exit with 120.
    """
    try:
        streams.print_whole(text, sys.stdout)
    except (OSError, ValueError):
        streams.let_go()


def complain(text: object) -> None:
    """Print an error on stderr; where that fails, as on a full disk, the exit code tells it."""
    with suppress(OSError, ValueError):
        streams.print_whole(text, sys.stderr)


class _Formatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, rank: int, form: str) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%SZ")
        self._origin = f"[rank {rank} {platform.node()}]"

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            record.message = f"{record.levelname} {self._origin} {record.message}"
        return super().formatMessage(record)


class _Console(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))


class _File(logging.FileHandler):
    def __init__(self, path: Path, rank: int) -> None:
        if path.is_fifo():  # which opens once somebody reads it
            raise OSError(errno.EINVAL, "a pipe, not a file")
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self.setFormatter(_Formatter(rank, "%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if its directory is still there: one that was closed is opened anew."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Lose the line: a full disk is reported where state is saved."""


def compact(number: float) -> str:
    """Return a count in at most three digits and a letter: 812, 41k, 1.23M."""
    if not math.isfinite(number):
        return str(number)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}" if abs(number) < 100 else f"{number:.0f}"


def figures(number: float, large: str = ".1f") -> str:
    """Format a return: in three figures below 10, where tenths may be all that it is; 9359.9."""
    return format(number, large if 10 <= abs(number) < HUGE else ".3g")


def duration(seconds: float) -> str:
    """Return a time in two units: 42s, 2m10s, 3h05m, 4d02h."""
    if not math.isfinite(seconds):
        return "?"
    s = max(0, round(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02}s"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02}m"
    return f"{s // 86400}d{s % 86400 // 3600:02}h"


def _figure(value: float) -> str:
    return f"{value:.0f}" if 100 <= abs(value) < HUGE else f"{value:.3g}"


EVALUATION = "evaluation_"  # what keys of evaluations begin with
# key of a line's values: (what the line says, format)
FIELDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "generation": ("gen {}", str),
    # 100 only at the end
    "progress": ("  {} %", lambda share: str(math.floor(100 * share + 1e-9))),
    "env_steps": ("  {} steps", compact),
    "fitness_mean": ("  fitness mean {}", _figure),
    "fitness_max": (" max {}", _figure),
    "sigma": ("  sigma {}", "{:.3g}".format),
    "gradient_updates": ("  updates {}", compact),
    "steps_per_second": ("  {} steps/s", compact),
    "wall_seconds": ("  wall {}", duration),
    "seconds_left": ("  left {}", duration),
}


def progress_line(values: Mapping[str, Any]) -> str:
    """Write the values of FIELDS and of evaluation_<policy> as one line."""
    parts = []
    for key, value in values.items():
        words, form = FIELDS.get(key, (f"  {key.removeprefix(EVALUATION)} {{}}", _figure))
        parts.append(words.format(form(value)))
    return "".join(parts)


class Display:
    """Progress of a run on rank 0: a line ever more seldom.

    Of values that come seldom the last stays in view: NaN ones change nothing. Speed and time left
    are means since the first update.
    """

    def __init__(self, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = -math.inf
        self._values: dict[str, Any] = {}
        # time and values of the first update
        self._first: tuple[float, dict[str, Any]] | None = None
        self._pending = False
        self._every = every_seconds

    def update(self, values: Mapping[str, Any]) -> None:
        """Take the newest values; show them if the last shown are old enough."""
        self._values |= {key: value for key, value in values.items() if not math.isnan(value)}
        self._first = self._first or (self._clock(), dict(self._values))
        self._pending = True
        if self._clock() >= self._due:
            self.close()

    def close(self) -> None:
        """Show what was held back."""
        if not self._pending or self._first is None:
            return
        began, first = self._first
        elapsed = self._clock() - began
        speed: dict[str, float] = {}
        if elapsed > 0 and (steps := self._values["env_steps"] - first["env_steps"]) > 0:
            speed["steps_per_second"] = steps / elapsed
        if elapsed > 0 and (share := self._values["progress"] - first["progress"]) > 0:
            speed["seconds_left"] = elapsed * (1 - self._values["progress"]) / share
        progress.info("%s", progress_line(self._values | speed))
        self._pending = False
        # ten hours make some hundreds of lines
        pause = max(self._every, min(SHARE * elapsed, LONGEST)) if self._every else 0.0
        self._due = self._clock() + pause
