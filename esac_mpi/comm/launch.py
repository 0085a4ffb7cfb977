"""The MPI library, the launcher that should belong to it, and the end of all ranks at once."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from esac_mpi.comm.mpi import MPI
from esac_mpi.host import batch_system
from esac_mpi.host.errors import WrongUsage
from esac_mpi.host.log import complain

LAST_WORDS = 0.5  # a launcher loses what it has not forwarded yet when a rank ends [s]
LAST_RESORT = 5.0  # time that stderr and the MPI library have to end the job [s]


def abort(code: int, *last_words: str, record: Callable[[], object] | None = None) -> NoReturn:
    """Print last words to stderr and end all ranks at once, even if printing or MPI fails.

    record: called last of all, so that no other rank has time to write after it.
    """
    _end_later(lambda: os._exit(code))
    if last_words:
        _say_last("\n".join(last_words))
    if record:
        with suppress(Exception):
            record()
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)  # MPICH's has been seen to come back


def leave_threads(code: int) -> None:
    """End this process, which is done, although threads of its task may never be. All ranks."""
    main = threading.main_thread()
    if left := [each.name for each in threading.enumerate() if not (each.daemon or each is main)]:

        def end() -> None:
            _say_last(f"esac_mpi: ended with threads of the task at work: {', '.join(left)}")
            os._exit(code)

        MPI.Finalize()
        _end_later(end)


def _say_last(words: str) -> None:
    complain(words)
    time.sleep(LAST_WORDS)


def _end_later(end: Callable[[], None]) -> None:
    last_resort = threading.Timer(LAST_RESORT, end)
    last_resort.daemon = True
    last_resort.start()


def library() -> str:
    """Return the MPI library's own name and version."""
    return " ".join(MPI.Get_library_version().strip().split("\n")[0].strip("\0 ").split())


def check_launcher(environ: dict[str, str], size: int) -> None:
    """Raise WrongUsage if a launcher started several processes that each run alone."""
    name = batch_system.of_several(environ)
    if name and size == 1:
        alone = f"{name} = {environ[name]}, but this process is alone"
        why = f"the launcher belongs to another MPI than {library()}"
        remedy = "use that library's own mpirun, or srun with the matching --mpi"
        raise WrongUsage(f"{alone}: {why}; {remedy} (or unset {name}, if one process is meant)")
