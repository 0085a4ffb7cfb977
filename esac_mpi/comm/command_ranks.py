"""The ranks of a command: those that mpirun or srun started, or this process alone, without MPI."""

import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi.host import batch_system
from esac_mpi.host.errors import RunError
from esac_mpi.host.log import complain, warn_on_root
from esac_mpi.host.stop import EndsRun


class Alone:
    """One process, with what a tool needs of World: a login node forbids to initialise MPI."""

    rank, size = 0, 1

    def map(self, work: Any, count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return work(i) for i in range(count), float64 [count, columns], and no busy times."""
        return np.array([work(i) for i in range(count)]).reshape(count, columns), np.zeros(1)

    def from_root(self, value: Any) -> Any:
        """Return rank 0's object."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the object of every process."""
        return [value]

    def free(self) -> None:
        """Release nothing."""


def on_all(world: Any, make: Callable[[], Any]) -> Any:
    """Make something on every rank; raise the first RunError on all of them, lest others wait."""
    made: Any = None
    refusal: Any = None
    try:
        with warn_on_root(world.rank):
            made = make()
    except RunError as error:
        refusal = type(error), str(error), dict(vars(error))
    for found in world.gather(refusal):
        if found is not None:
            kind, message, more = found
            problem = kind(message)
            vars(problem).update(more)
            raise problem
    return made


def make_world() -> Any:
    """Return the launcher's ranks, or one process. Raises ImportError, WrongUsage."""
    if all(os.environ.get(name, "") in ("", "1") for name in batch_system.SIZES):
        return Alone()
    from esac_mpi.comm import launch
    from esac_mpi.comm.world import World

    world = World()
    launch.check_launcher(dict(os.environ), world.size)
    return world


def over_ranks(main: Callable[[Any], int]) -> int:
    """Run main(world) on all ranks; return the exit code. An error of one ends all.

    Raises ImportError, WrongUsage where there are no ranks to begin with.
    """
    world = make_world()
    try:
        code = main(world)
    except Exception as problem:
        known = isinstance(problem, EndsRun | RunError)
        # of several the launcher reads what they say
        if world.size == 1 and (known or isinstance(problem, OSError | ImportError)):
            raise
        code = problem.code if isinstance(problem, RunError) else RunError.code
        end_all(world, str(problem) if known else traceback.format_exc(), code)
        return code
    world.free()
    return code


def end_all(world: Any, last_words: str, code: int = RunError.code) -> None:
    """Print last words to stderr and end all ranks of a launcher at once; if alone, only print."""
    if world.size == 1:
        complain(last_words)
        return
    from esac_mpi.comm import launch

    launch.abort(code, last_words)
