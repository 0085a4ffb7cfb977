"""The ranks of a tool: those that mpirun or srun started, or this process alone, without MPI."""

import os
from typing import Any

import numpy as np

LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")  # ranks, as launchers tell


class Alone:
    """One process, with what a tool needs of comm.World: a login node forbids to initialise MPI."""

    rank, size = 0, 1

    def map(self, work: Any, count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return work(i) -> [columns] for i in range(count), float64 [count, columns], and no busy times."""
        return np.array([work(i) for i in range(count)]).reshape(count, columns), np.zeros(1)

    def abort(self, code: int) -> None:
        """Leave the error to the interpreter."""

    def free(self) -> None:
        """Release nothing."""


def make_world() -> Any:
    """Return the ranks of the launcher, or a world of one process. Raises ImportError, comm.LaunchError."""
    if all(int(os.environ.get(name) or 1) == 1 for name in LAUNCHED):
        return Alone()
    from esac_mpi import comm

    world = comm.World()
    comm.check_launcher(dict(os.environ), world.size)
    return world
