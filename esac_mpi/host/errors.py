"""The command line's exit codes as exceptions, for who calls `esac_mpi.train`."""

NO_MPI = (
    "no MPI library was found: load your site's module, or on your own machine: pip install "
    "'esac_mpi[mpich]'"
)


class RunError(Exception):
    """A training was refused or has failed, in a sentence. code: the command line's exit code."""

    code = 1


class WrongUsage(RunError):
    """No run can be made with a setting, task, source, launch or directory; nothing was created."""

    code = 2


class NoCheckpoint(RunError):
    """The run, or its source, has no checkpoint that can be read; nothing was changed."""

    code = 65


class NotSaved(RunError):
    """The state could not be saved, or its file system is away; what was saved before stands."""

    code = 74


class Interrupted(RunError):
    """Stopped by a signal before it began; nothing was written."""

    code = 75


KINDS = {kind.code: kind for kind in (RunError, WrongUsage, NoCheckpoint, NotSaved, Interrupted)}


class Misplaced(ImportError):
    """MPI cannot begin in this process; the message says why."""


def why_no_mpi(error: Exception) -> str:
    """Say why an import failed, if MPI is the reason: missing, or unable to begin here; else ""."""
    if isinstance(error, Misplaced):
        return str(error)
    return NO_MPI if "libmpi" in str(error) or "cannot load MPI library" in str(error) else ""
