"""`esac-mpi experiment` in a checkout: python tools/experiment.py --help. It is in esac_mpi/commands/experiment.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["experiment", *sys.argv[1:]]))
