"""How a command is called from here: `esac-mpi plot`, by its path where PATH does not find it.

And what of the user's own is found from there.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esac_mpi import __version__

SCRIPT = "esac-mpi"  # the installed command (setup.cfg)


def version() -> str:
    """Return the words that --version says."""
    return f"esac_mpi {__version__}"


def look_here() -> str:
    """Let tasks of the current directory be found, as by `python -m`: a script looks beside itself.

    Return what sys.path has more by it, "" for nothing.
    """
    if sys.flags.safe_path or nowhere() or (here := os.getcwd()) in sys.path:
        return ""
    sys.path.insert(1, here)
    return here


def nowhere() -> str:
    """Say that the current directory was deleted; "" where it is there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current directory is there no longer: cd to one that is"
    return ""


def called(name: str) -> str:
    """Return the words that call a command from the current directory."""
    python, program = Path(sys.executable), Path(sys.argv[0]).absolute()
    script = python.with_name(SCRIPT)
    if program.name == SCRIPT:
        words = [reached(program), name]
    elif script.is_file():
        words = [reached(script), name]
    else:
        words = [reached(python.with_name("python")), "-m", "esac_mpi.commands", name]
    return shlex.join(words)


def program() -> str:
    """The words that call the program from the current directory, in the way that it was called."""
    if Path(sys.argv[0]).name == SCRIPT:
        return called("run")
    return shlex.join([reached(Path(sys.executable).with_name("python")), "-m", "esac_mpi"])


def as_called(text: str) -> str:
    """Return a text that names commands as `esac-mpi NAME`, with each as it is called from here."""
    return re.sub(rf"\b{SCRIPT} ([a-z_]+)", lambda found: called(found[1]), text)


def reached(program: Path) -> str:
    """Return a program's name where the PATH leads to it, else its path from here."""
    found = shutil.which(program.name)
    # not resolved: an environment's is a link to another's
    on_path = found is not None and Path(found).parent == program.parent
    return program.name if on_path else str(from_here(program))


def from_here(path: Path) -> Path:
    """Return a path below the current directory relative to it, another as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def without_arguments() -> Iterator[None]:
    """Let a task see no command line: this one is not its own."""
    words = sys.argv
    sys.argv = words[:1]
    try:
        yield
    finally:
        sys.argv = words
