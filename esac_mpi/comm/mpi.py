"""MPI for the files beside this one, the only importer of mpi4py, where MPI can begin at all."""

import os

from esac_mpi.host import process_start

process_start.check_place(os.environ)  # before mpi4py is imported, which starts MPI

from mpi4py import MPI

__all__ = ["MPI"]
