"""The program with what only a test wants: metrics published at every generation, ranks dealt over emulated nodes."""

import os
import sys

from mpi4py import MPI

from esac_mpi import __main__, comm, record

NODES = int(os.environ.get("NODES", "1"))


class Dealt(MPI.Intracomm):
    """A communicator that sees its ranks dealt over NODES nodes."""

    def Split_type(self, *arguments):
        return MPI.COMM_WORLD.Split(self.rank % NODES, self.rank)


record.PUBLISH_EVERY = 0.0
comm.World.__init__.__defaults__ = (Dealt(MPI.COMM_WORLD), *comm.World.__init__.__defaults__[1:])
sys.exit(__main__.main(sys.argv[1:]))
