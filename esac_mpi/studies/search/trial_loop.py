"""A task of a search, as its rank 0 knows it: it takes one trial after the other, until none is left.

A trial is taken under a lock of its own: first one that its task has left (stopped, killed, its node lost), which goes on where
its run directory stands, then a new one. Every decision is on disk before the journal is told of it: a task that dies between the
two leaves a trial that the next one decides in the same way.
"""

import math
import os
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.analysis.names import candidates
from esac_mpi.analysis.outcomes import outcome
from esac_mpi.config import Config, ConfigError
from esac_mpi.config.fields import shown
from esac_mpi.host import log, process_start
from esac_mpi.host.run_directory import CHECKPOINT, METRICS, PREVIOUS
from esac_mpi.host.stop import Stop
from esac_mpi.play.counters import Counters
from esac_mpi.record import Run, Unreadable
from esac_mpi.record.lock import SILENT
from esac_mpi.record.locked_directory import Held
from esac_mpi.record.status import read_status, write_status
from esac_mpi.studies.search.journal import PARTS, Journal
from esac_mpi.studies.search.orders import Ending, Order, Trainings
from esac_mpi.studies.search.owners import Owners
from esac_mpi.studies.search.study import Study
from esac_mpi.training import active_run, ended
from esac_mpi.training.loop import Listener

POLL = 1.0  # between two looks at what others do [s]
EVALUATION = "evaluation_"  # begins the names of a row's columns of returns
PRUNED = "pruned"  # status of a run that was given up
STATE = (CHECKPOINT, PREVIOUS, METRICS)  # files of a run that has begun
# statuses of one that was to be given up, where its task died before it said so
UNFINISHED = ("running", "requeue")
GO_ON = "run the same command again"


class Left(Exception):
    """The task ends before its study does; code: its exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Result(NamedTuple):
    """What a trial's run of one seed came to: its value, None where it ended the trial, and whether a rank wishes to stop."""

    value: float | None
    wished: bool


class Task:
    """A task. stop: hears signals between trainings. place: the directory of its status.json, for job scripts; None for none."""

    def __init__(
        self, study: Study, stop: Stop, max_hours: float = 0.0, place: Path | None = None
    ) -> None:
        self._study, self._stop, self._place = study, stop, place
        # by the monotonic clock [s]
        self._end = process_start.BEGAN + 3600 * max_hours if max_hours else math.inf
        self._journal, self._owners = Journal(study, fresh=True), Owners(study.path)
        # since when trials of other hosts have been waited for, by the monotonic clock [s]
        self._doubts: dict[int, float] = {}
        self._given_up = False  # whether the trial in progress is to be

    def trainings(self) -> Trainings:
        """Yield one training after the other, and be sent how it ended; return the exit code."""
        self._say_status("running")
        try:
            while (taken := self._take()) is not None:
                with closing(taken[1]):
                    yield from self._carry_out(taken[0])
        except Left as end:
            self._say_status("requeue" if end.code == ended.STOPPED else "failed")
            (log.say if end.code == ended.STOPPED else log.warn)(str(end))
            return end.code
        except Exception:
            with suppress(Exception):
                self._say_status("failed")
            raise
        self._say_status("complete")
        log.say(f"{self._study.path}: no trial is left to take, of {self._study.trials}")
        return ended.FINISHED

    def _say_status(self, status: str, **more: Any) -> None:
        if self._place is not None:
            self._place.mkdir(parents=True, exist_ok=True)
            about = {
                "status": status,
                "study": str(self._study.path),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "time": datetime.now(UTC).isoformat(timespec="microseconds"),
            }
            write_status(self._place, {**about, **more})

    def _take(self) -> tuple[int, Held] | None:
        """Return a trial and its lock, None where each is finished or in living hands. Raises Left."""
        while not self._stop.wished and time.monotonic() < self._end:
            with self._journal.alone():
                trials = self._journal.trials()
                running = [trial.number for trial in trials if trial.state == "running"]
                for number in running:
                    if held := self._claimed(number):
                        log.say(f"trial {number} was left, and goes on")
                        return number, held
                if len(trials) < self._study.trials:
                    number = self._journal.begin()
                    if held := self._claimed(number):
                        return number, held
                    continue
            doubtful = [number for number in running if not self._owners.is_sure(number)]
            if not doubtful:
                return None
            self._refuse_silence(doubtful)
            time.sleep(POLL)
        raise Left(ended.STOPPED, f"stopped between two trials; {GO_ON}")

    def _refuse_silence(self, doubtful: list[int]) -> None:
        """Raise Left where the holder of a trial, of another host, has been silent for long: locks may outlive their host."""
        now = time.monotonic()
        self._doubts = {number: self._doubts.get(number, now) for number in doubtful}
        for number, since in self._doubts.items():
            if now - since >= SILENT:
                told = f"trial {number} is locked by {self._owners.holder(number)}, silent for {(now - since) / 60:.0f} minutes"
                raise Left(
                    ended.FAILED, f"{told}: if that host is down, remove the lock, and {GO_ON}"
                )

    def _claimed(self, number: int) -> Held | None:
        """Return the lock of a trial that goes on, None where somebody has it, or had it a moment ago and has finished it."""
        held = self._owners.claim(number)
        if held and self._journal.trial(number).state != "running":
            held.close()
            return None
        return held

    def _carry_out(self, number: int) -> Generator[Order, Ending, None]:
        """Make the runs of a trial, and tell its value. Raises Left where it cannot be finished here."""
        found, values, wished = self._journal.values(number), list[float](), False
        self._say_status("running", trial=number)
        log.say(f"trial {number}: {listed(found)}")
        for place in range(len(self._study.seeds)):
            if wished or self._stop.wished:
                raise Left(ended.STOPPED, f"trial {number}: stopped; {GO_ON}")
            value, wished = yield from self._made(number, found, place, values)
            if value is None:
                break
            values.append(value)
        else:
            self._journal.complete(number, float(np.mean(values)))
            log.say(f"trial {number}: {np.mean(values):,.6g}")
        if wished:
            raise Left(ended.STOPPED, f"stopped after trial {number}; {GO_ON}")

    def _made(
        self, number: int, found: Mapping[str, Any], place: int, values: list[float]
    ) -> Generator[Order, Ending, Result]:
        """Make a trial's run of a seed, or find what became of it. Raises Left."""
        seed = self._study.seeds[place]
        path = self._study.run_of(number, seed)
        status, trial = read_status(path).get("status"), self._journal.trial(number)
        if status == PRUNED or (
            status in UNFINISHED
            and trial.reported > place * PARTS
            and self._journal.is_beaten(number)
        ):
            return self._prune(number, path)
        if status == "failed" and seed in trial.again:
            return self._fail(number, f"the run in {path} failed twice")
        if status == "failed":
            self._journal.again(number, seed)
        try:
            config = self._study.config(
                found, seed=seed, run_dir=str(path), max_hours=self._hours_left()
            )
        except ConfigError as error:
            return self._fail(number, str(error))
        self._given_up = False
        command = ["esac_mpi.train", "search", self._study.source, "trial", str(number)]
        ending = yield Order(config, self._listener(number, config, place, values), command)
        if self._given_up and ending.code == ended.STOPPED:
            return self._prune(number, path, ending.wished)
        if ending.code != ended.FINISHED:
            return self._fail(number, self._judged(number, path, ending), ending.wished)
        try:
            value = outcome(Run.open(path), self._study.measure)
        except Unreadable as error:
            return self._fail(number, str(error), ending.wished)
        if not math.isfinite(value):
            why = f"the run in {path} has no evaluation whose returns are all finite"
            return self._fail(number, why, ending.wished)
        return Result(value, ending.wished)

    def _hours_left(self) -> float:
        """Return what is left of --max-hours, 0 where there is no such limit [h]."""
        return max(self._end - time.monotonic(), 1.0) / 3600 if self._end < math.inf else 0.0

    def _listener(self, number: int, config: Config, place: int, values: list[float]) -> Listener:
        """Return what hears of a run's rows, and ends it where its trial is to be given up, or a signal came before it began.

        A value stands for a part of the budget: the mean of the seeds before this one and of this one so far.
        """
        reported = [self._journal.trial(number).reported]

        def tells(row: dict[str, Any]) -> None:
            value = so_far(row, self._study.measure)
            share = active_run.spent(config, row["generation"], counters(row))
            step = place * PARTS + min(int(share * PARTS), PARTS)
            if value is None or share >= 1 or step == place * PARTS or step <= reported[0]:
                return
            reported[0] = step
            try:
                self._given_up = self._journal.report(
                    number, step, float(np.mean([*values, value]))
                )
            except OSError as error:
                log.warn(f"trial {number}: {error}; its value at step {step} is not in the journal")

        def hears(row: dict[str, Any]) -> bool:
            tells(row)
            return self._given_up or self._stop.wished

        return hears

    def _judged(self, number: int, path: Path, ending: Ending) -> str:
        """Return why a training failed by its trial's own fault. Raises Left where it did not, or cannot be known to have."""
        if ending.code == ended.STOPPED:
            raise Left(ended.STOPPED, f"trial {number}: stopped; {GO_ON}")
        if ending.code == ended.NO_CHECKPOINT and any(
            (path / name).exists() for name in STATE
        ):  # not that of a source
            return ending.said
        if ending.code == ended.FAILED and not ending.said and was_spoilt(read_status(path)):
            return f"no evaluation of the run in {path} had all its returns finite"
        others = any(trial.state in ("complete", PRUNED) for trial in self._journal.trials())
        if ending.of_settings or (
            ending.code == ended.WRONG_USAGE and others and not ending.of_machine
        ):
            return ending.said
        raise Left(
            ending.code, f"trial {number}: {ending.said or 'its run failed; its log.txt tells'}"
        )

    def _fail(self, number: int, why: str, wished: bool = False) -> Result:
        self._journal.fail(number, why)
        log.say(f"trial {number}: failed: {why}")
        return Result(None, wished)

    def _prune(self, number: int, path: Path, wished: bool = False) -> Result:
        """Say of a run that it was given up, then tell it of its trial."""
        write_status(path, {**read_status(path), "status": PRUNED})
        self._journal.prune(number)
        log.say(f"trial {number}: given up")
        return Result(None, wished)


def was_spoilt(status: Mapping[str, Any]) -> bool:
    """Return whether a run failed since no evaluation had all its returns finite: it got on, unlike one started in vain."""
    return (
        status.get("status") == "failed"
        and status.get("best_return", 0.0) is None
        and bool(status.get("progress"))
    )


def so_far(row: Mapping[str, Any], measure: str) -> float | None:
    """Return what a run has come to by a row with an evaluation, None for another row."""
    policies = candidates(
        name.removeprefix(EVALUATION) for name in row if name.startswith(EVALUATION)
    )
    returns = [np.asarray(row[EVALUATION + name]) for name in policies]
    means = [float(column.mean()) for column in returns if np.isfinite(column).all()]
    if not means:
        return None
    if measure == "final":
        return max(means)
    return float(row["best_return"]) if np.isfinite(row["best_return"]) else None


def counters(row: Mapping[str, Any]) -> Counters:
    """Return what a run has counted by a row."""
    return Counters(**{f.name: row[f.name] for f in fields(Counters)})


def listed(found: Mapping[str, Any]) -> str:
    """Return the values of a trial's fields as a person writes them."""
    return ", ".join(
        f"{name} {value:.6g}" if type(value) is float else f"{name} {shown(value)}"
        for name, value in found.items()
    )
