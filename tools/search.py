"""`esac-mpi search` in a checkout: python tools/search.py --help. It is in esac_mpi/commands/search.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["search", *sys.argv[1:]]))
