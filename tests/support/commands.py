"""What a command line takes, and commands as processes."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator

from conftest import environment, finish


def actions(line: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all that a command line takes, of the commands below it too."""
    for action in line._actions:  # argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions(below)


def tool(name: str, *words: object, code: int | None = 0, **more) -> subprocess.CompletedProcess:
    done = finish([sys.executable, "-m", "esac_mpi.commands", name, *words], code, **more)
    assert "Traceback" not in done.stderr
    return done


def begun(name: str, *words: object, **streams) -> subprocess.Popen:
    """Start a command and leave it running; it hears Ctrl-C also where the tests do not."""
    line = [sys.executable, "-m", "esac_mpi.commands", name, *map(str, words)]
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job may have it ignored
    process = subprocess.Popen(line, **{"env": environment(), **streams})
    signal.signal(signal.SIGINT, heard)
    return process
