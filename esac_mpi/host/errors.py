"""Exceptions by the exit codes of the command line, for who calls `esac_mpi.train` too."""

import errno
import traceback

INSTALL = "pip install -c constraints.txt -e"  # then . or, with an extra of setup.cfg, '.[extra]'
NO_MPI = (
    f"no MPI library was found: load your site's module, or on your own machine: {INSTALL} "
    "'.[mpich]'"
)

# installed with the program
NEEDED = {"numpy", "h5py", "mpi4py", "gymnasium", "mujoco", "dm_control", "torch", "rich"}
NOT_INSTALLED = (
    "activate the environment that the program was installed in (. .venv/bin/activate), or "
    f"install it: {INSTALL} ."
)

# exit codes of the command line
FINISHED, STOPPED, WRONG_USAGE, NO_CHECKPOINT, UNSAVED, FAILED = 0, 75, 2, 65, 74, 1


class RunError(Exception):
    """A training was refused or has failed, in a sentence. code: the command line's exit code."""

    code = FAILED


class WrongUsage(RunError):
    """No run can be made with a setting, task, source, launch or directory; nothing was created."""

    code = WRONG_USAGE


class NoCheckpoint(RunError):
    """The run, or its source, has no checkpoint that can be read; nothing was changed."""

    code = NO_CHECKPOINT


class NotSaved(RunError):
    """The state could not be saved, or its file system is away; what was saved before stands."""

    code = UNSAVED


class Interrupted(RunError):
    """Stopped by a signal before it began; nothing was written."""

    code = STOPPED


PASSING = (  # errors of a file system that is away, and comes back: no word about what is on it
    errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.ESHUTDOWN,
)  # fmt: skip
BARRING = (  # errors of a process that may not open a file, or no more of them
    errno.EACCES, errno.EPERM, errno.EKEYEXPIRED, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
)  # fmt: skip
KINDS = {kind.code: kind for kind in (RunError, WrongUsage, NoCheckpoint, NotSaved, Interrupted)}


class Refused(WrongUsage):
    """This directory must not be used for this run; nothing was changed."""


class Unreadable(NoCheckpoint):
    """A file is damaged, or no checkpoint can be read; nothing was changed."""


class Absent(Unreadable):
    """Nothing is there that could be read, yet or at all: no word about damage."""

    code = WRONG_USAGE


class OtherSchema(Unreadable):
    """A sound file of another version of esac_mpi."""


class Unsaved(NotSaved):
    """A file could not be written; the one it would have replaced stays."""


class Barred(Unreadable):
    """This process may not open a file: no word about damage, and nothing may take its place."""


class Away(Barred, Unsaved):
    """The file system is away: no word about what is on it."""

    code = NotSaved.code


class Misplaced(ImportError):
    """MPI cannot begin in this process; the message says why."""


class Unbuilt(ImportError):
    """A compiled part is missing, or of another source; the message says what to do."""


class BrokenAlgorithm(ImportError):
    """An installed package's algorithm is not as the program needs it; the message says how."""


def why_not_imported(error: Exception) -> str:
    """Say why the program cannot be imported: MPI, or a part of it or of a user's; else ""."""
    if isinstance(error, Misplaced | Unbuilt | BrokenAlgorithm):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        return f"{error}: {NOT_INSTALLED}"
    return NO_MPI if "libmpi" in str(error) or "cannot load MPI library" in str(error) else ""


def describe_error(error: BaseException) -> tuple[str, str]:
    """Return an error's kind and first line, and the line of code that raised it."""
    if isinstance(error.__cause__, StopIteration):  # which leaves no generator as it is
        error = error.__cause__
    frame, kind = traceback.extract_tb(error.__traceback__)[-1], type(error).__name__
    try:
        said = f"{kind}: {error}".splitlines()[0].removesuffix(": ")
    except Exception:  # of a task's own class, whose text fails
        said = kind
    return said, f"{frame.filename}, line {frame.lineno}"


def translate_error(path: object, error: OSError) -> Unreadable:
    """Translate an error at reading: nothing to read, not by this process, or a disk is away."""
    if error.errno not in PASSING:
        kind = Barred if error.errno in BARRING else Unreadable
        return kind(f"{path}: {error.strerror}")
    away = "the file system is away; the same command goes on when it is back"
    return Away(f"{path}: {error.strerror}: {away}")
