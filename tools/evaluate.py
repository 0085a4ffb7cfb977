"""`esac-mpi evaluate` in a checkout: python tools/evaluate.py --help. It is in esac_mpi/commands/evaluate.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
