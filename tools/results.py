"""`esac-mpi results` in a checkout: python tools/results.py --help. It is in esac_mpi/commands/results.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["results", *sys.argv[1:]]))
