"""`esac-mpi torture` in a checkout: python tools/torture.py --help. It is in esac_mpi/commands/torture.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["torture", *sys.argv[1:]]))
