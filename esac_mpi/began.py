"""When this process began to be a run's, and what the batch system left to its job then: to be imported before MPI starts."""

import os
import sys
import time

from esac_mpi import batch_system

BEGAN = time.monotonic()
# no child process once MPI has started: somebody else's import of mpi4py may have done that
SECONDS_LEFT = batch_system.seconds_left(os.environ, (lambda command: "") if "mpi4py.MPI" in sys.modules else None)
