"""`esac-mpi summary` in a checkout: python tools/summary.py --help. It is in esac_mpi/commands/summary.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["summary", *sys.argv[1:]]))
