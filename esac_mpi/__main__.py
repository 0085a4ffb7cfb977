"""Train: `mpirun -n N python -m esac_mpi [CONFIG.toml] [--table.field value ...]`."""

import os
import sys
from contextlib import suppress

from esac_mpi.host import process_start, streams, threads  # noqa: F401, began: before MPI

threads.limit_program()  # before numpy

from esac_mpi.host.batch_system import is_speaker
from esac_mpi.host.errors import WRONG_USAGE, BrokenAlgorithm, why_not_imported
from esac_mpi.host.invocation import version
from esac_mpi.host.log import complain, tell, warn
from esac_mpi.host.stop import die_of_interrupt

HELP = {"-h", "--help"}


def main(argv: list[str]) -> int:
    """Run the program on this rank and return its exit code; it is 2 where there is no MPI.

    An exception on one rank ends the whole job.
    """
    streams.open_missing()
    if "--version" in argv:
        if is_speaker(os.environ):
            tell(version())
        return 0
    words = [token for token in argv if token != "--check"]
    command = ["python", "-m", "esac_mpi", *argv]
    try:
        from esac_mpi.comm import launch
        from esac_mpi.config import load  # which loads the algorithms of installed packages
        from esac_mpi.training import session
    except KeyboardInterrupt:
        die_of_interrupt()
    except (ImportError, RuntimeError) as error:  # mpi4py's
        told = why_not_imported(error)
        if not told:
            raise
        if HELP & set(words) and not isinstance(error, BrokenAlgorithm):
            with suppress(ImportError):
                from esac_mpi.config import load

                load(words, warn)  # prints the help, which needs no MPI, and ends the program
        complain(f"esac_mpi: {told}")
        return WRONG_USAGE
    code = session.program(
        session.Asked(
            lambda: load(words, warn), command, looks="--check" in argv, alike=" ".join(argv)
        )
    )
    launch.leave_threads(code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
