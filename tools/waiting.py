"""`esac-mpi waiting` in a checkout: python tools/waiting.py --help. It is in esac_mpi/commands/waiting.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["waiting", *sys.argv[1:]]))
