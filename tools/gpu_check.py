"""`esac-mpi gpu_check` in a checkout: python tools/gpu_check.py --help. It is in esac_mpi/commands/gpu_check.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["gpu_check", *sys.argv[1:]]))
