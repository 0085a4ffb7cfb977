"""The ranks of a run, what travels between them, and what the ranks of a node share. The only importer of mpi4py."""

import os

from esac_mpi import began, contracts

began.check_place(os.environ)  # before anything below imports mpi4py

from esac_mpi.comm.headers import DivergedError, boards
from esac_mpi.comm.launch import LaunchError, abort, binding, check_launcher, library
from esac_mpi.comm.node import free_memory
from esac_mpi.comm.world import World
from esac_mpi.stop import Abandoned

__all__ = [
    "Abandoned",
    "DivergedError",
    "LaunchError",
    "World",
    "abort",
    "binding",
    "boards",
    "check_launcher",
    "free_memory",
    "library",
]

_: type[contracts.World] = World  # which mypy holds to
