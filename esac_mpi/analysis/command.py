"""What the tools do alike at the command line: open the runs asked for, print what was made, or say in a sentence why not."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from esac_mpi.config import ConfigError
from esac_mpi.record import Refused, Run, RunFiles, Unreadable


class Unusable(Exception):
    """What was asked for cannot be had from these runs; the message is for the user. Exit code 2."""

    code = 2


def opened(paths: Iterable[Path]) -> list[RunFiles]:
    """Open every run once, in the order given. Raises Unusable with a sentence for each that cannot be read."""
    runs, problems, code = {}, [], 2
    for path in paths:
        try:
            runs[path.resolve()] = Run.open(path)
        except (Refused, ConfigError, Unreadable, OSError) as error:
            problems.append(str(error))
            code = 65 if isinstance(error, Unreadable) else code
    if problems:
        failure = Unusable("\n".join(problems))
        failure.code = code
        raise failure
    return list(runs.values())


def ended(action: Callable[[], Iterable[object]]) -> int:
    """Print what the action yields, or its complaint; return the exit code."""
    try:
        for line in action():
            print(line)
    except Unusable as error:
        print(error, file=sys.stderr)
        return error.code
    except Unreadable as error:  # a file that was damaged or replaced after the run was opened
        print(error, file=sys.stderr)
        return 65
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"{error.filename}: {error.strerror}; choose another --out", file=sys.stderr)
        return 2
    return 0


def note(text: str) -> None:
    """Tell the user something that is no error."""
    print(f"note: {text}", file=sys.stderr)


def some(names: Iterable[object], shown: int = 5) -> str:
    """Return the first names, and how many more there are."""
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


def tell_unfinished(runs: Iterable[RunFiles]) -> None:
    """Name the runs that are not complete: what is measured of them is what they have so far."""
    if unfinished := [f"{run.path.name} ({run.state})" for run in runs if run.state != "complete"]:
        note(f"not complete: {some(unfinished)}")
