"""`esac-mpi watch` in a checkout: python tools/watch.py --help. It is in esac_mpi/commands/watch.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["watch", *sys.argv[1:]]))
