"""`esac-mpi export` in a checkout: python tools/export.py --help. It is in esac_mpi/commands/export.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
