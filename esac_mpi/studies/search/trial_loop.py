"""A task of a search on rank 0: it takes one trial after the other, until none is left.

A trial is taken under a lock of its own, made as a run's: first one that its task has left
(stopped, killed, its node lost), which goes on where its run directory stands, then a new one.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.analysis.outcomes import outcome
from esac_mpi.config import Config, ConfigError, as_words
from esac_mpi.envs import EditedTask
from esac_mpi.host import errors, log, process_start
from esac_mpi.host.run_directory import CHECKPOINT, METRICS, PREVIOUS
from esac_mpi.host.stop import Stop
from esac_mpi.play import rollout
from esac_mpi.play.counters import Counters
from esac_mpi.record import Refused, Run, Unreadable
from esac_mpi.record.directory_check import translate_errors
from esac_mpi.record.lock import RunLock
from esac_mpi.record.status import read_status, write_status
from esac_mpi.studies.search.journal import PARTS, Journal
from esac_mpi.studies.search.study import Study
from esac_mpi.training.ended import Ended
from esac_mpi.training.loop import Listener
from esac_mpi.training.session import Asked

PRUNED = "pruned"  # status of a run that was given up
STATE = (CHECKPOINT, PREVIOUS, METRICS)  # files of a run that has begun
GO_ON = "run the same command again"
OF_SETTINGS = (rollout.NoFiniteReturn, rollout.ThetaNotFinite, learners.LearnerNotFinite)
# refusals that any settings would meet
OF_MACHINE = (learners.NoDevice, ImportError, Refused, EditedTask)

# trains on all ranks; returns how it ended, and whether a rank wishes to stop
Train = Callable[[Asked], tuple[Ended, bool]]


class Left(Exception):
    """The task ends before its study does; code: its exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class TrialFailed(Exception):
    """A trial has no value, by its own fault; the message says why."""


class GivenUp(Exception):
    """A trial is not worth going on with."""


class Task:
    """A task. stop: hears signals between trainings. place: of its status.json, for job scripts."""

    def __init__(
        self,
        study: Study,
        train: Train,
        stop: Stop,
        max_hours: float = 0.0,
        place: Path | None = None,
    ) -> None:
        self._study, self._train, self._stop, self._place = study, train, stop, place
        # by the monotonic clock [s]
        self._end = process_start.BEGAN + 3600 * max_hours if max_hours else math.inf
        self._journal = Journal(study, fresh=True)
        self._wished = False  # whether a rank wishes to stop
        self._given_up = False  # whether the trial in progress is to be

    def work(self) -> int:
        """Make one trial after the other; return the exit code."""
        self._say_status("running")
        try:
            while (taken := self._take()) is not None:
                number, held = taken
                with closing(held):
                    self._make(number)
        except Left as end:
            self._say_status("requeue" if end.code == errors.STOPPED else "failed")
            (log.say if end.code == errors.STOPPED else log.warn)(str(end))
            return end.code
        except Exception:
            with suppress(Exception):
                self._say_status("failed")
            raise
        self._say_status("complete")
        log.say(f"{self._study.path}: no trial is left to take, of {self._study.trials}")
        return errors.FINISHED

    def _say_status(self, status: str, **more: Any) -> None:
        if self._place is not None:
            with translate_errors(self._place):
                self._place.mkdir(parents=True, exist_ok=True)
            write_status(self._place, {"status": status, "study": str(self._study.path), **more})

    def _take(self) -> tuple[int, RunLock] | None:
        """Take a trial and its lock, None where each is finished or in other hands. Raises Left."""
        self._stop_if_wished("stopped between two trials")
        if time.monotonic() >= self._end:
            raise Left(errors.STOPPED, f"--max-hours are over; {GO_ON}")
        for trial in self._journal.trials():
            if trial.state == "running" and (held := self._claim(trial.number)):
                log.say(f"trial {trial.number} was left, and goes on")
                return trial.number, held
        while len(self._journal.trials()) < self._study.trials:
            number = self._journal.begin()
            if number < self._study.trials and (held := self._claim(number)):
                return number, held
        return None

    def _claim(self, number: int) -> RunLock | None:
        """Lock a trial; None where somebody has it, or had it a moment ago and has finished it."""
        held = RunLock(self._study.lock_of(number))
        try:
            held.claim(patience=0.0)
        except Refused:
            return None
        if self._journal.trial(number).state != "running":
            held.close()
            return None
        held.keep_beating()
        return held

    def _stop_if_wished(self, told: str) -> None:
        if self._wished or self._stop.wished:
            raise Left(errors.STOPPED, f"{told}; {GO_ON}")

    def _make(self, number: int) -> None:
        """Make the runs of a trial, and tell its value. Raises Left if it ends elsewhere."""
        found = self._journal.values(number)
        values: list[float] = []
        self._say_status("running", trial=number)
        log.say(f"trial {number}: {format_values(found)}")
        try:
            for place in range(len(self._study.seeds)):
                self._stop_if_wished(f"trial {number}: stopped")
                values.append(self._run(number, found, place, values))
        except TrialFailed as failure:
            self._journal.fail(number, str(failure))
            log.say(f"trial {number}: failed: {failure}")
        except GivenUp:
            self._journal.prune(number)
            log.say(f"trial {number}: given up")
        else:
            self._journal.complete(number, float(np.mean(values)))
            log.say(f"trial {number}: {np.mean(values):,.6g}")

    def _run(self, number: int, found: Mapping[str, Any], place: int, values: list[float]) -> float:
        """Make or resume a trial's run of a seed. Raises TrialFailed, GivenUp, Left."""
        seed = self._study.seeds[place]
        path = self._study.run_of(number, seed)
        try:
            config = self._study.configure(
                found, seed=seed, run_dir=str(path), max_hours=self._hours_left()
            )
        except ConfigError as error:
            raise TrialFailed(str(error)) from error
        self._given_up = False
        command = ["esac_mpi.train", "search", self._study.source, "trial", str(number)]
        listener = self._listener(number, config, place, values)
        end, self._wished = self._train(Asked(lambda: (config, False), command, listener))
        if self._given_up and end.code == errors.STOPPED:
            write_status(path, {**read_status(path), "status": PRUNED})
            raise GivenUp
        if end.code != errors.FINISHED:
            raise self._judge(number, path, end)
        try:
            value = outcome(Run.open(path), self._study.measure)
        except Unreadable as error:
            raise TrialFailed(str(error)) from error
        if not math.isfinite(value):
            raise TrialFailed(f"the run in {path} has no evaluation whose returns are all finite")
        return value

    def _hours_left(self) -> float:
        """Compute what is left of --max-hours, 0 where there is no such limit [h]."""
        return max(self._end - time.monotonic(), 1.0) / 3600 if self._end < math.inf else 0.0

    def _listener(self, number: int, config: Config, place: int, values: list[float]) -> Listener:
        """Make what hears of a run's rows, and ends it where its trial is to be given up.

        It ends it too where a signal came before it began. A value belongs to a part of the
        budget: the mean of the seeds before this one and of the best return of this one so far.
        """
        reported = max(self._journal.trial(number).reported, place * PARTS)

        def hears(row: dict[str, Any]) -> bool:
            nonlocal reported
            best = float(row["best_return"])  # -inf before the first evaluation
            counters = Counters(**{f.name: row[f.name] for f in fields(Counters)})
            steps = counters.env_steps, counters.nominal_steps
            share = config.budget.spent(row["generation"], *steps, row["wall_seconds"])
            step = place * PARTS + int(min(share, 1.0) * PARTS)
            if math.isfinite(best) and share < 1 and step > reported:
                reported = step
                mean = float(np.mean([*values, best]))
                try:
                    self._given_up = self._journal.report(number, step, mean)
                except OSError as error:
                    lost = f"its value at step {step} is not in the journal"
                    log.warn(f"trial {number}: {error}; {lost}")
            return self._given_up or self._stop.wished

        return hears

    def _judge(self, number: int, path: Path, end: Ended) -> Exception:
        """Say whether a training failed by its trial's fault, TrialFailed, or another's, Left."""
        if end.code == errors.STOPPED:
            return Left(errors.STOPPED, f"trial {number}: stopped; {GO_ON}")
        kind, by_trial = end.kind or Ended, False
        if end.code == errors.NO_CHECKPOINT:
            by_trial = any((path / name).exists() for name in STATE)  # not that of a source
        elif end.code == errors.WRONG_USAGE:
            by_trial = not issubclass(kind, OF_MACHINE)
        elif end.code == errors.FAILED:
            by_trial = issubclass(kind, (Ended, *OF_SETTINGS))
        said = str(end) or f"its run failed; {path / 'log.txt'} says why"
        return TrialFailed(said) if by_trial else Left(end.code, f"trial {number}: {said}")


def format_values(found: Mapping[str, Any]) -> str:
    """Write the values of a trial's fields as a person does."""
    return ", ".join(
        f"{name} {value:.6g}" if type(value) is float else " ".join([name, *as_words(value)])
        for name, value in found.items()
    )
