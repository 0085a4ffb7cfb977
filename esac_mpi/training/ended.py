"""How a training ends: errors that end it in one sentence, and how ranks share them."""

import traceback
from collections.abc import Callable
from typing import Any

from esac_mpi.comm.headers import DivergedError
from esac_mpi.comm.mpi import MPI
from esac_mpi.comm.world import World
from esac_mpi.host import log
from esac_mpi.host.errors import FAILED, WRONG_USAGE, Refused, RunError, describe_error
from esac_mpi.host.stop import EndsRun
from esac_mpi.play import rollout

# errors that all ranks raise together
ON_ALL = DivergedError, rollout.NoFiniteReturn, rollout.ThetaNotFinite


class Ended(Exception):
    """The run ends on all ranks with `code`; rank 0 prints the message. kind: of its error."""

    def __init__(self, code: int, message: str, kind: type[BaseException] | None = None) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


# what a start is refused for: settings, a task, files, a device; no room; no library
REFUSALS = RunError, MemoryError, ImportError


def code_of(error: Exception) -> int:
    """Look up the exit code of a refusal."""
    return getattr(error, "code", WRONG_USAGE)


def run_together(world: World, action: Callable[[], Any]) -> Any:
    """Run `action` on all ranks; if one raises one of REFUSALS, all raise Ended."""
    failure = result = None
    world.watchdog.works_on("the set-up")
    try:
        with log.warn_on_root(world.rank):
            result = action()
    except REFUSALS as error:
        said = str(error)
        if isinstance(error, MemoryError) and said.startswith("Unable to allocate"):  # numpy's
            said += ": fewer members or episodes need less, and smaller networks (policy.hidden)"
        failure = code_of(error), said, type(error)
    for found in world.gather(failure):
        if found is not None:
            raise Ended(*found)
    return result


def as_end(error: BaseException, alone: bool) -> Ended | None:
    """Classify what an error ends for all ranks, None if they do not share it. alone: one rank."""
    if isinstance(error, Ended):
        return error
    if isinstance(error, Refused) and alone:  # another run has taken the directory
        return Ended(WRONG_USAGE, str(error), type(error))
    if isinstance(error, EndsRun) and (alone or error.told):
        words = ", ".join([str(error), *getattr(error, "__notes__", [])])
        return Ended(FAILED, f"{words}; the last checkpoint stands", type(error))
    return Ended(FAILED, str(error), type(error)) if isinstance(error, ON_ALL) else None


def last_words(error: BaseException) -> str:
    """Say all about an error that ends a run: in a sentence, or its traceback."""
    end = as_end(error, True)  # what it would be to a rank alone
    return str(end) if end else f"failed:\n{''.join(traceback.format_exception(error))}".rstrip()


def reason(error: BaseException) -> str:
    """Return the reason of a failure in a line; "" where MPI failed: the run may go on."""
    if isinstance(error, MPI.Exception):
        return ""
    if end := as_end(error, True):
        return str(end)
    said, where = describe_error(error)
    return f"{', '.join([said, *getattr(error, '__notes__', [])])} ({where})"
