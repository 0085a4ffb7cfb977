"""`esac-mpi fuzz_config` in a checkout: python tools/fuzz_config.py --help. It is in esac_mpi/commands/fuzz_config.py."""

import sys

from esac_mpi.commands.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["fuzz_config", *sys.argv[1:]]))
