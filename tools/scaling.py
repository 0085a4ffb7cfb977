"""`esac-mpi scaling` in a checkout: python tools/scaling.py --help. It is in esac_mpi/commands/scaling.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["scaling", *sys.argv[1:]]))
