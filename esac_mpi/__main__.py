"""Command line: `mpirun -n N python -m esac_mpi [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--check]`"""

import sys

from esac_mpi import threads

threads.limit_program()  # before numpy

from esac_mpi import session
from esac_mpi.config import load
from esac_mpi.log import say, warn


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code. One rank's exception ends the whole job."""
    words = [token for token in argv if token != "--check"]
    command = ["python", "-m", "esac_mpi", *argv]
    return session.program(session.Asked(lambda: load(words, say, warn), command, looks="--check" in argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
