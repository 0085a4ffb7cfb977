"""`esac-mpi updates` in a checkout: python tools/updates.py --help. It is in esac_mpi/commands/updates.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["updates", *sys.argv[1:]]))
