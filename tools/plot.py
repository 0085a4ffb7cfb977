"""`esac-mpi plot` in a checkout: python tools/plot.py --help. It is in esac_mpi/commands/plot.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["plot", *sys.argv[1:]]))
