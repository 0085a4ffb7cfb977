"""`esac-mpi sensitivity` in a checkout: python tools/sensitivity.py --help. It is in esac_mpi/commands/sensitivity.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["sensitivity", *sys.argv[1:]]))
