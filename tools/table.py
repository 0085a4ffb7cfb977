"""`esac-mpi table` in a checkout: python tools/table.py --help. It is in esac_mpi/commands/table.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["table", *sys.argv[1:]]))
