"""How a command is called from here: `esac-mpi plot`, by its path where PATH does not find it.

And what of the user's own is found from there.
"""

import os
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
    here = directory()
    if sys.flags.safe_path or not here or here in sys.path:
        return ""
    sys.path.insert(1, here)
    return here


def look_away(path: str) -> None:
    """Take a directory from those in which tasks are found."""
    if path in sys.path:
        sys.path.remove(path)


def directory() -> str:
    """Read the current directory, "" where it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def deleted_directory() -> str:
    """Return the message that the current directory was deleted; "" if it exists."""
    return "" if directory() else "the current directory is there no longer: cd to one that is"


def call_of(name: str) -> str:
    """Write the words that call a command: by its path where PATH does not lead to it."""
    python = Path(sys.executable)
    script = python.with_name(SCRIPT)
    found = shutil.which(SCRIPT)
    # not resolved: an environment's is a link to another's
    if found is not None and Path(found).parent == script.parent:
        return f"{SCRIPT} {name}"
    words = [str(script)] if script.is_file() else [str(python), "-m", "esac_mpi.commands"]
    return shlex.join([*words, name])


def program() -> str:
    """Write the words that call the program, in the way that it was called."""
    return f"{SCRIPT} run" if Path(sys.argv[0]).name == SCRIPT else "python -m esac_mpi"


@contextmanager
def without_arguments() -> Iterator[None]:
    """Hide the command line from a task."""
    words = sys.argv
    sys.argv = words[:1]
    try:
        yield
    finally:
        sys.argv = words
