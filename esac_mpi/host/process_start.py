"""When this process began, and the time its batch job had left; imported before MPI starts."""

import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from esac_mpi.host import batch_system
from esac_mpi.host.errors import Misplaced

BEGAN = time.monotonic()
LAUNCHED = batch_system.RANKS[:3]
PREFIXES = (*batch_system.PMI, "PMIX_", "OMPI_")  # of what launchers tell their ranks
FORKED_WITH_MPI = set[int]()  # this process, if it was forked from one in which MPI had begun
# no child process once MPI has started: somebody else's import of mpi4py may have done that
SECONDS_LEFT = batch_system.seconds_left(
    os.environ, (lambda command: "") if "mpi4py.MPI" in sys.modules else None
)
platform.processor()  # by a child process, once: later libraries and provenance ask for it, too


def note_fork() -> None:
    """Note, in a child process, that MPI had begun in its parent."""
    if "mpi4py.MPI" in sys.modules:
        FORKED_WITH_MPI.add(os.getpid())


def check_place(environ: Mapping[str, str]) -> None:
    """Raise Misplaced where MPI cannot begin: in a fork of one that has it, in a rank's child.

    MPI's own answer is a crash, an endless wait, or pages of its inside.
    """
    if os.getpid() in FORKED_WITH_MPI:
        raise Misplaced(
            "this process was forked from one in which MPI had begun, and MPI does not survive "
            "that: start them with multiprocessing.get_context('spawn') (docs/start/python.md)"
        )
    if "mpi4py.MPI" in sys.modules:
        return
    name = next((name for name in LAUNCHED if environ.get(name)), "")
    if name and (multiprocessing.parent_process() or is_lost(environ)):
        unset = " ".join(f"-u {each}" for each in sorted(environ) if each.startswith(PREFIXES))
        raise Misplaced(
            f"{name} = {environ[name]}, but this process was started by a rank, not by mpirun: "
            "train in the ranks themselves, or start it by mpirun, or as one process: "
            f"env {unset} python ..."
        )


def is_lost(environ: Mapping[str, str]) -> bool:
    """Whether a launcher's line to this process, PMI_FD of MPICH and Slurm, is not open here."""
    if "PMI_FD" not in environ:
        return False
    with suppress(OSError, ValueError):
        os.fstat(int(environ["PMI_FD"]))
        return False
    return True


os.register_at_fork(after_in_child=note_fork)
