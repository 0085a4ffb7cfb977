"""Train: start a run, or continue one; the same as `python -m esac_mpi`.

    esac-mpi run [CONFIG.toml] [--SETTING VALUE ...] [--check] [--fresh] [--from RUN]

--help shows how to run and the main settings; --algorithm NAME --help, all settings of one.
Cost: as the budget says.
"""

from esac_mpi.host.invocation import look_here


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code."""
    # it sees to threads before numpy, and to the time that it began at
    from esac_mpi.__main__ import main

    look_here()
    return main(argv)
