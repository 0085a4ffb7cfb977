"""`esac-mpi bench` in a checkout: python tools/bench.py --help. It is in esac_mpi/commands/bench.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
