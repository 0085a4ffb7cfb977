"""Rank-aware logging and the progress display.

Only rank 0 speaks, except for warnings, which name their rank and host. A closed or full output
never ends a run.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TextIO, cast

from esac_mpi.host import batch_system, streams

logger = logging.getLogger("esac_mpi")
progress = logging.getLogger("esac_mpi.progress")  # for stdout alone

REDRAW = 0.25  # least time between two drawings of the live table [s]
# a pause between plain lines grows to this share of the time so far, and to this at most [s]
SHARE = 0.02
LONGEST = 300.0


@contextmanager
def kept() -> Iterator[None]:
    """Put back where messages went and how stdout takes them; close the files appended to."""
    handlers, propagate, level, stdout = (
        logger.handlers[:],
        logger.propagate,
        logger.level,
        sys.stdout,
    )
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


def setup(rank: int, host: str, quiet: bool = False) -> None:
    """Print this rank's messages to stdout: rank 0's unless it is quiet, warnings of the others."""
    console = _Console()
    console.setFormatter(_Formatter(rank, host, "%(message)s"))
    console.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.handlers[:] = [console]
    logger.propagate = False
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal still gets every line


def append_to(path: Path, rank: int, host: str) -> None:
    """Append messages, not progress, to a file, with the time (UTC); warn where that fails."""
    try:
        file = _File(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        logger.warning("%s: %s; messages go to stdout alone", path, error.strerror)
        return
    file.setFormatter(_Formatter(rank, host, "%(asctime)s %(message)s"))
    file.addFilter(lambda record: record.name != progress.name)
    logger.addHandler(file)


def say(message: str) -> None:
    """Log what a person wants to know; heard from rank 0 alone."""
    logger.info("%s", message)


def warn(message: str) -> None:
    """Log what a person should look at; heard from any rank, with its name."""
    logger.warning("%s", message)


def tell(text: str) -> None:
    """Print what was asked for, on stdout alone."""
    with _letting_go():
        print(text, flush=True)


class _Formatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, rank: int, host: str, form: str) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%SZ")
        self._origin = f"[rank {rank} {host}]"

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            record.message = f"{record.levelname} {self._origin} {record.message}"
        return super().formatMessage(record)


class _Console(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))


class _File(logging.FileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if its directory is still there: one that was closed is opened anew."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Lose the line: a full disk is reported where state is saved."""


@contextmanager
def _letting_go() -> Iterator[None]:
    """Once stdout fails, send it nowhere: the interpreter's last flush would exit with 120."""
    try:
        yield
    except (OSError, ValueError):
        streams.let_go()


def on_terminal() -> bool:
    """Say whether a person watches stdout: a terminal, and that of no launcher or batch job.

    Open MPI gives its ranks a pseudo-terminal even inside a batch job.
    """
    launched = any(os.environ.get(name) for name in batch_system.RANKS)
    if launched or batch_system.job(os.environ) or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def compact(number: float) -> str:
    """Return a count in at most three digits and a letter: 812, 41k, 1.23M."""
    if not math.isfinite(number):
        return str(number)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}" if abs(number) < 100 else f"{number:.0f}"


def duration(seconds: float) -> str:
    """Return a time in two units: 42s, 2m10s, 3h05m, 4d02h."""
    if not math.isfinite(seconds):
        return "?"
    s = max(0, round(seconds))
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02}s"
    return (
        f"{s // 3600}h{s % 3600 // 60:02}m"
        if s < 86400
        else f"{s // 86400}d{s % 86400 // 3600:02}h"
    )


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{math.floor(100 * value + 1e-9)} %"  # 100 only at the end


EVALUATION = "evaluation_"  # what keys of evaluations begin with
Field = tuple[str, str, Callable[[float], str]]
# key of Display.update: (what a plain line says, label of the live table, format)
FIELDS: dict[str, Field] = {
    "generation": ("gen {}", "generation", str),
    "progress": ("  {}", "budget used", _percent),
    "env_steps": ("  {} steps", "environment steps", compact),
    "fitness_mean": ("  fitness mean {}", "fitness, mean", _figure),
    "fitness_max": (" max {}", "fitness, max", _figure),
    "sigma": ("  sigma {}", "sigma", "{:.3g}".format),
    "gradient_updates": ("  updates {}", "gradient updates", compact),
    "steps_per_second": ("  {} steps/s", "steps per second", compact),
    "wall_seconds": ("  wall {}", "time so far", duration),
    "seconds_left": ("  left {}", "time left", duration),
}


def _shown(values: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (plain text, label, figure) of the values in their order; words: names of policies."""
    for key, value in values.items():
        name = key.removeprefix(EVALUATION)
        unknown: Field = (f"  {name} {{}}", key, str)
        if name != key:
            unknown = (f"  {name} {{}}", f"return of {words.get(name, name)}", _figure)
        plain, label, form = FIELDS.get(key, unknown)
        yield plain, label, form(value)


def plain_line(values: Mapping[str, Any]) -> str:
    """Write the values as one line for a batch log."""
    return "".join(plain.format(figure) for plain, _, figure in _shown(values, {})).strip()


class Display:
    """Progress of a run on rank 0: a table redrawn in place, or a line ever more seldom.

    Keys are those of FIELDS and evaluation_<policy>, in the order of the first values; any other is
    shown by its name. policies: what the live table calls them. Of values that come seldom the last
    stays in view: missing and NaN ones change nothing. Speed and time left follow from env_steps
    and progress where they are not given.
    """

    def __init__(
        self,
        style: Literal["auto", "live", "plain"] = "auto",
        every_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        self._due = -math.inf
        self._values: dict[str, Any] = {}
        # time and values of the first update
        self._first: tuple[float, dict[str, Any]] | None = None
        self._pending = False
        live = style == "live" or (style == "auto" and on_terminal())
        quiet = any(
            isinstance(handler, _Console) and handler.level > logging.INFO
            for handler in logger.handlers
        )
        self._table = _Table(policies or {}) if live and not quiet else None
        self._every = every_seconds

    def update(self, values: Mapping[str, Any]) -> None:
        """Take the newest values; show them if the last shown are old enough."""
        self._values |= {
            key: value for key, value in values.items() if value is not None and value == value
        }
        self._first = self._first or (self._clock(), dict(self._values))
        self._pending = True
        if self._clock() >= self._due:
            self._show()

    def close(self) -> None:
        """Show what was held back, and leave the terminal as it was."""
        if self._pending:
            self._show()
        if self._table is not None:
            self._table.close()

    def _show(self) -> None:
        values = {**self._values, **self._speed()}
        if self._table is None:
            progress.info("%s", plain_line(values))
        else:
            self._table.draw(values)
        self._pending = False
        self._due = self._clock() + (self._pause() if self._table is None else REDRAW)

    def _pause(self) -> float:
        """The time until the next plain line is due [s]: ten hours make some hundreds of lines."""
        assert self._first is not None
        if not self._every:
            return 0.0
        return max(self._every, min(SHARE * (self._clock() - self._first[0]), LONGEST))

    def _speed(self) -> dict[str, float]:
        """Return steps_per_second and seconds_left, as means since the first update."""
        assert self._first is not None
        began, first = self._first
        elapsed = self._clock() - began
        speed = {}
        if elapsed > 0:
            steps, share = (
                self._values.get(key, 0) - first.get(key, 0) for key in ("env_steps", "progress")
            )
            if steps > 0:
                speed["steps_per_second"] = steps / elapsed
            if share > 0:
                speed["seconds_left"] = elapsed * (1 - self._values["progress"]) / share
        return {name: value for name, value in speed.items() if name not in self._values}


class _Table:
    """The live table; messages logged meanwhile appear above it."""

    def __init__(self, policies: Mapping[str, str]) -> None:
        from rich.console import Console  # only who watches pays for it
        from rich.live import Live

        self._policies = policies
        console = Console(file=cast(TextIO, _Lenient(sys.stdout)), force_terminal=True)
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=False)
        self._live.start()
        console.show_cursor(True)  # a killed run must not leave a terminal without a cursor

    def draw(self, values: Mapping[str, Any]) -> None:
        """Redraw the table in place."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for _, label, figure in _shown(values, self._policies):
            table.add_row(label, figure)
        if "progress" in values:
            table.add_row("", ProgressBar(total=1.0, completed=values["progress"], width=30))
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Leave the last table on the terminal."""
        self._live.stop()


class _Lenient:
    """A stream whose writes cannot fail; rich ends the program on a broken pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or let the text go."""
        with _letting_go():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or let the text go."""
        with _letting_go():
            self._stream.flush()
