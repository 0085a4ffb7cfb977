"""`esac-mpi compare` in a checkout: python tools/compare.py --help. It is in esac_mpi/commands/compare.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
