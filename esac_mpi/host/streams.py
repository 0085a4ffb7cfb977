"""Standard input, output and error: kept as they were, and an answer alone on stdout.

Code of a task's own, in Python or C, may print, close them, or send them elsewhere.
"""

import atexit
import ctypes
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, TextIO

NAMES = ("stdin", "stdout", "stderr")  # by number


def open_missing() -> None:
    """Open missing streams on nothing, else the next file takes their number; see to the end."""
    atexit.register(_flush)  # the last of all that are registered
    for number, name in enumerate(NAMES):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, _reopened(number))


def print_whole(text: object, file: TextIO | None = None) -> None:
    """Print a line in one piece even where Python is unbuffered: ranks share one terminal."""
    print(f"{text}\n", end="", file=file, flush=True)


def let_go(stream: TextIO | None = None) -> None:
    """Send stdout, or another stream that nobody reads any more, nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)


def _flush() -> None:
    """Flush output; what cannot be written goes nowhere, lest the interpreter exit with 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            let_go(stream)


def as_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON, which has no NaN and no infinity: they become null."""
    return json.dumps(_plain(value), indent=indent)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def answer_alone(wanted: bool = True) -> Iterator[Callable[[str], object]]:
    """Yield what prints an answer on stdout; all else printed until Python ends goes to stderr.

    wanted: whether that is so; else all goes to stdout.
    """
    if not wanted:
        yield print_whole
        return
    with preserve_streams(), ExitStack() as opened:
        answers = sys.stdout
        with suppress(OSError, ValueError):  # of a notebook, whose stdout is no file
            answers = open(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")  # noqa: SIM115
            opened.callback(_close, answers)
        _aside()
        try:
            yield partial(print_whole, file=answers)
        finally:
            ctypes.CDLL(None).fflush(None)  # what C code has printed and not written yet
            atexit.register(_aside)  # called before what tasks have registered there


def _aside() -> None:
    """Send what is printed on stdout to stderr."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = sys.stderr


def _close(stream: Any) -> None:
    with suppress(OSError):  # its reader has gone
        stream.close()


@contextmanager
def preserve_streams() -> Iterator[None]:
    """Put the streams back: the files behind them, and Python's objects, opened again if closed."""
    streams = {name: getattr(sys, name) for name in NAMES}
    copies = {}
    for number in range(len(NAMES)):
        with suppress(OSError):
            copies[number] = os.dup(number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            # of one that was closed, or is none
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, copy in copies.items():
            os.dup2(copy, number)
            os.close(copy)
        for number, (name, stream) in enumerate(streams.items()):
            closed = number in copies and _is_closed(stream)
            setattr(sys, name, _reopened(number, stream) if closed else stream)


def _is_closed(stream: Any) -> bool:
    try:
        return bool(getattr(stream, "closed", False))
    except ValueError:  # it was detached
        return True


def _reopened(number: int, stream: Any = None) -> Any:
    """Return a stream for a descriptor, as another one was."""
    about = {} if stream is None else {"encoding": stream.encoding, "errors": stream.errors}
    return open(number, "w" if number else "r", closefd=False, **about)
