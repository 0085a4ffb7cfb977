"""Train: begin a run, or go on with one that was stopped; the same as `python -m esac_mpi`.

    esac-mpi run [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--from RUN]
                 [--check]
    mpirun -n 64 esac-mpi run ...

--help lists every setting, with --algorithm NAME those that one algorithm reads.
Cost: as the budget says.
"""

from esac_mpi.host.invocation import look_here


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code."""
    from esac_mpi.__main__ import (
        main,
    )  # it sees to threads before numpy, and to the time that it began at

    look_here()
    return main(argv)
