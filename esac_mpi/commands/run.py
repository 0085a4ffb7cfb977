"""Train: begin a run, or go on with one that was stopped; the same as `python -m esac_mpi`.

    esac-mpi run [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--from RUN] [--check]
    mpirun -n 64 esac-mpi run ...

--help lists every setting, with --algorithm NAME those that one algorithm reads. Cost: as the budget says.
"""

import os
import sys


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code."""
    if not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where `python -m` looks for a task of one's own; a script looks beside itself
    from esac_mpi.__main__ import main  # it sees to threads before numpy, and to the time that it began at

    return main(argv)
