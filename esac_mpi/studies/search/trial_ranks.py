"""A task of a search on all its ranks: rank 0 says which training is next, all run it.

Rank 0 alone talks to Optuna and reads the journal. Its decisions reach the others as a run's
settings, and as its callback's answer: a trial is the same on all ranks, and ends on all in the
same generation.
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
# any settings would meet these
OF_MACHINE = (learners.NoDevice, learners.NotInstalled, ImportError, Refused, EditedTask)
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
    third = session.interrupt
    if world.size > 1:
        third = lambda: end_all(world, "esac_mpi: third signal: ends at once")  # noqa: E731
    stop = Stop(time.monotonic, third)
    with log.kept():
        log.setup(world.rank, platform.node())
        stop.listen()
        try:
            trainings, code = None, 0
            if world.rank == 0:
                trainings, code = open_task(place, stop, max_hours, status)
            return world.from_root(code) or run_trainings(world, trainings)
        finally:
            stop.let_go()


def open_task(
    place: Path, stop: Stop, max_hours: float, status: Path | None
) -> tuple[Trainings | None, int]:
    """Open a task's trainings; or None and the exit code, with a sentence, where there are none."""
    try:
        from esac_mpi.studies.search.trial_loop import Task  # rank 0 alone loads Optuna

        study = prepare(place)
        task = Task(study, stop, max_hours, status)
        log.say(f"{study.path}: {study.trials} trials, each the {measured(study)}")
        return task.trainings(), 0
    except Unusable as error:
        print(error, file=sys.stderr)
        return None, error.code
    except tuple(CODES) as error:
        return None, say(error)


def prepare(place: Path) -> Study:
    """Read a study and make its directory. Raises Unusable with nothing made, Unsaved."""
    study = read(place)
    notes = set[str]()
    configs = checked(study, notes.add)
    for text in sorted(notes):
        note(text)
    refuse_task(study, configs[0])
    begin(study)
    return study


def run_trainings(world: Any, trainings: Trainings | None) -> int:
    """Run the trainings that rank 0's task asks for, on all ranks; return the exit code.

    trainings: None on other ranks.
    """
    ending = None
    while True:
        order, code = next_order(trainings, ending) if trainings else (None, 0)
        goes_on, code = world.from_root((order is not None, code))
        if not goes_on:
            return code
        try:
            ending = train(order, world)
        except Exception as error:
            if trainings:
                trainings.throw(error)  # which says that the task failed, and raises it again
            raise


def next_order(trainings: Trainings, ending: Ending | None) -> tuple[Order | None, int]:
    """Ask for the next training; None and the exit code at the end."""
    try:
        return (next(trainings) if ending is None else trainings.send(ending)), 0
    except StopIteration as end:
        return None, end.value
    except Unusable as error:  # the journal was damaged meanwhile
        print(error, file=sys.stderr, flush=True)
        return None, error.code
    except tuple(CODES) as error:
        return None, say(error)


def say(error: Exception) -> int:
    """Say what is wrong with a file; return the exit code."""
    print(f"esac_mpi: {error}", file=sys.stderr, flush=True)
    return next(code for kind, code in CODES.items() if isinstance(error, kind))


def train(order: Order | None, world: Any) -> Ending:
    """Run a training on all ranks. order: rank 0's, which counts on all."""
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
        gc.collect()  # a traceback and its frames hold each other, and all that the training had
    return ending._replace(wished=any(world.gather(ending.wished)))
