"""`esac-mpi operators` in a checkout: python tools/operators.py --help. It is in esac_mpi/commands/operators.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["operators", *sys.argv[1:]]))
