"""A task of a search on all its ranks: rank 0 says when a training is next, all run it.

Rank 0 alone talks to Optuna and reads the journal. Its decisions reach the others as a run's
settings, and as its callback's answer: a trial is the same on all ranks, and ends on all in the
same generation.
"""

import gc
import time
from pathlib import Path
from typing import Any

from esac_mpi.comm.command_ranks import end_all
from esac_mpi.config import Config
from esac_mpi.host import log
from esac_mpi.host.errors import UNSAVED, RunError
from esac_mpi.host.stop import Stop
from esac_mpi.studies.search.study import begin, check, describe_value, read, task_source
from esac_mpi.training import session
from esac_mpi.training.ended import Ended


def search(place: Path, world: Any, max_hours: float = 0.0, status: Path | None = None) -> int:
    """Take trials of a study until none is left; all ranks call this. Return the exit code.

    place: the study's file or directory. status: directory of this task's status.json.
    """
    third = session.raise_interrupt
    if world.size > 1:
        third = lambda: end_all(world, "esac_mpi: third signal: ends at once")  # noqa: E731
    stop = Stop(time.monotonic, third)
    with log.preserve_log():
        log.setup(world.rank)
        stop.listen()
        try:
            if world.rank == 0:
                return world.from_root((False, lead(place, world, stop, max_hours, status)))[1]
            while (message := world.from_root(None))[0]:
                train(world, session.Asked(lambda: (Config(), False), []))  # rank 0's counts
            return message[1]
        finally:
            stop.let_go()


def lead(place: Path, world: Any, stop: Stop, max_hours: float, status: Path | None) -> int:
    """Take trials as rank 0; return the exit code."""

    def train_on_all(asked: session.Asked) -> tuple[Ended, bool]:
        world.from_root((True, 0))
        return train(world, asked)

    try:
        from esac_mpi.studies.search.trial_loop import Task  # rank 0 alone loads Optuna

        study = read(place)
        begin(study, task_source(study, check(study)[0]))
        task = Task(study, train_on_all, stop, max_hours, status)
        log.say(f"{study.path}: {study.trials} trials, each the {describe_value(study)}")
        return task.work()
    except RunError as error:
        log.complain(error)
        return error.code
    except OSError as error:
        log.complain(f"esac_mpi: {error}")
        return UNSAVED


def train(world: Any, asked: session.Asked) -> tuple[Ended, bool]:
    """Train on all ranks; return how it ended, and whether a rank wishes to stop."""
    wished = False
    try:
        outcome = session.guest(asked, quiet=True)
        end = Ended(outcome.code, "")
        wished = outcome.wished
    except Ended as error:
        end = Ended(error.code, str(error), error.kind)
    if str(end):
        gc.collect()  # a traceback and its frames hold each other, and all that the training had
    return end, any(world.gather(wished))
