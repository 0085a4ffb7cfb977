"""A task of a search on all its ranks: rank 0 says which training is next, all make it.

Rank 0 alone talks to Optuna and reads the journal. What it decides reaches the others as a run's settings do, and the answer of
its callback: so a trial is the same on all ranks, and ends on all in the same generation.
"""

import gc
import platform
import sys
import time
from pathlib import Path
from typing import Any

from esac_mpi import learners
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.comm.command_ranks import end_all
from esac_mpi.config import Config
from esac_mpi.envs import EditedTask
from esac_mpi.host import log
from esac_mpi.host.stop import Stop
from esac_mpi.play import rollout
from esac_mpi.record import Refused, Unreadable, Unsaved
from esac_mpi.studies.search.orders import Ending, Order, Trainings
from esac_mpi.studies.search.study import Study, begin, checked, measured, read, refuse_task
from esac_mpi.training import session
from esac_mpi.training.ended import UNSAVED, WRONG_USAGE, Ended

OF_SETTINGS = (rollout.NoFiniteReturn, rollout.ThetaNotFinite, learners.LearnerNotFinite)
OF_MACHINE = (
    learners.NoDevice,
    learners.NotInstalled,
    ImportError,
    Refused,
    EditedTask,
)  # any settings would meet it
CODES: dict[type[Exception], int] = {
    Refused: WRONG_USAGE,
    Unreadable: 65,
    Unsaved: UNSAVED,
    OSError: UNSAVED,
}


def search(place: Path, world: Any, max_hours: float = 0.0, status: Path | None = None) -> int:
    """Take trials of a study until none is left; all ranks call this. Return the exit code.

    place: the study's file or directory. status: directory of this task's status.json.
    """
    third = (
        session.interrupt
        if world.size == 1
        else lambda: end_all(world, "esac_mpi: third signal: ends at once")
    )
    stop = Stop(time.monotonic, third)
    with log.kept():
        log.setup(world.rank, platform.node())
        stop.listen()
        try:
            trainings, code = None, 0
            if world.rank == 0:
                trainings, code = opened(place, stop, max_hours, status)
            return world.from_root(code) or carried_out(world, trainings)
        finally:
            stop.let_go()


def opened(
    place: Path, stop: Stop, max_hours: float, status: Path | None
) -> tuple[Trainings | None, int]:
    """Return a task's trainings; or None and the exit code, with a sentence, where there can be none."""
    try:
        from esac_mpi.studies.search.trial_loop import Task  # rank 0 alone loads Optuna

        study = prepared(place)
        task = Task(study, stop, max_hours, status)
        log.say(f"{study.path}: {study.trials} trials, each the {measured(study)}")
        return task.trainings(), 0
    except Unusable as error:
        print(error, file=sys.stderr)
        return None, error.code
    except tuple(CODES) as error:
        return None, told(error)


def prepared(place: Path) -> Study:
    """Return a study that has its directory now. Raises Unusable with nothing made, Unsaved."""
    study = read(place)
    notes = set[str]()
    configs = checked(study, notes.add)
    for text in sorted(notes):
        note(text)
    refuse_task(study, configs[0])
    begin(study)
    return study


def carried_out(world: Any, trainings: Trainings | None) -> int:
    """Make the trainings that rank 0's task asks for, on all ranks; return the exit code. trainings: None on other ranks."""
    ending = None
    while True:
        order, code = following(trainings, ending) if trainings else (None, 0)
        goes_on, code = world.from_root((order is not None, code))
        if not goes_on:
            return code
        try:
            ending = trained(order, world)
        except Exception as error:
            if trainings:
                trainings.throw(error)  # which says that the task failed, and raises it again
            raise


def following(trainings: Trainings, ending: Ending | None) -> tuple[Order | None, int]:
    """Return the next training, or None and the exit code."""
    try:
        return (next(trainings) if ending is None else trainings.send(ending)), 0
    except StopIteration as end:
        return None, end.value
    except Unusable as error:  # the journal was damaged meanwhile
        print(error, file=sys.stderr, flush=True)
        return None, error.code
    except tuple(CODES) as error:
        return None, told(error)


def told(error: Exception) -> int:
    """Say what is wrong with a file; return the exit code."""
    print(f"esac_mpi: {error}", file=sys.stderr, flush=True)
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def trained(order: Order | None, world: Any) -> Ending:
    """Make a training; order: rank 0's, which counts on all. Return how it ended."""
    asked = order or Order(Config(), None, [])
    try:
        outcome = session.guest(
            session.Asked(lambda: (asked.config, False), asked.command, asked.listener), quiet=True
        )
        ending = Ending(outcome.code, wished=outcome.wished)
    except Ended as end:
        kind = end.kind or Ended
        ending = Ending(
            end.code, str(end), issubclass(kind, OF_SETTINGS), issubclass(kind, OF_MACHINE)
        )
    if ending.said:
        gc.collect()  # a traceback and its frames hold each other, and with them all that the training had
    return ending._replace(wished=any(world.gather(ending.wished)))
