"""`esac-mpi render` in a checkout: python tools/render.py --help. It is in esac_mpi/commands/render.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["render", *sys.argv[1:]]))
