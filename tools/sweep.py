"""`esac-mpi sweep` in a checkout: python tools/sweep.py --help. It is in esac_mpi/commands/sweep.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
