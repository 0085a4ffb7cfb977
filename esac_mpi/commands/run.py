"""Train: begin a run, or go on with one that was stopped; the same as `python -m esac_mpi`.

    esac-mpi run [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--from RUN] [--check]
    mpirun -n 64 esac-mpi run ...

--help lists every setting, with --algorithm NAME those that one algorithm reads. Cost: as the budget says.
"""

import os
import sys

from esac_mpi.commands import WRONG_USAGE


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code, 2 where there is no MPI."""
    if not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where `python -m` looks for a task of one's own; a script looks beside itself
    try:
        from esac_mpi.__main__ import main  # it sees to threads before numpy, and to the time that it began at
    except (ImportError, RuntimeError) as error:  # mpi4py's
        if "libmpi" not in str(error):
            raise
        advice = "load your site's module, or on your own machine: pip install 'esac_mpi[mpich]'"
        print(f"esac_mpi: no MPI library was found: {advice}", file=sys.stderr)
        return WRONG_USAGE
    return main(argv)
