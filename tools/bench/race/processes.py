"""A run of the race: its process, what it tells, and the row that comes of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from esac_mpi.training import provenance
from tools import processes
from tools.bench.measurement import say
from tools.bench.program import environ, launcher
from tools.bench.race import field, rows
from tools.bench.race.plans import Run
from tools.bench.race.running import Look, Plan

POLL = 0.2  # [s]
GRACE = 20.0  # from SIGTERM to SIGKILL [s]
LOGS = "logs"  # a folder of the race's, with one of each run
MOST = 200  # of a reason [characters]
SPARE = 60.0  # beside twice its limit, what a process may last that does not end itself [s]


def carried_out(run: Run, folder: Path) -> rows.Row:
    """Run a competitor; return its row."""
    kept = folder / LOGS / run.file_name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="race-") as place:
        plan = replace(run.plan(Path(place)), started=time.monotonic())
        plan.write(Path(place) / "plan.json")
        code, killed = finished(run, plan, Path(place) / "plan.json", kept / "log.txt")
        told = looked_at(plan.looks)
        if plan.looks.exists():
            shutil.copy(plan.looks, kept)
    lasted = time.monotonic() - plan.started
    in_time = not killed and lasted - told.evaluating < plan.limit
    failed = in_time and (code != 0 or told.start_up is None) and not told.reached(plan.goal)
    if failed:
        say(f"{run.name}: failed; see {kept / 'log.txt'}")
    return result(run, told, lasted, reason(code, kept / "log.txt") if failed else "")


def reason(code: int, log: Path) -> str:
    """Return why a process failed, in a line: its exit code, and the last traceback's error, else the last line of its log."""
    lines = [
        line.rstrip()
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    begun = max((i for i, line in enumerate(lines) if line.startswith("Traceback")), default=-1) + 1
    error = next(
        (line for line in lines[begun:] if begun and not line[0].isspace()),
        lines[-1] if lines else "",
    )
    return f"exit code {code}{': ' * bool(error)}{error.strip()[:MOST]}"


def command(run: Run, file: Path) -> list[str]:
    """Return the command line of a competitor: a rank on each core for those of ours that share work out."""
    program = [sys.executable, "-m", "tools.bench.race.running", str(file)]
    return [launcher(), "-n", str(ranks(run)), *program] if ranks(run) > 1 else program


def ranks(run: Run) -> int:
    """Return how many ranks a competitor has."""
    return run.course.cores if run.entry.ours and run.entry.name not in field.ON_ONE else 1


def finished(run: Run, plan: Plan, file: Path, log: Path) -> tuple[int, bool]:
    """Run a competitor's process to its end; return its exit code, and whether it had to be ended."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command(run, file),
            env=environ(**one),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if (
                    time.monotonic() - plan.started - looked_at(plan.looks).evaluating
                    > 2 * plan.limit + SPARE
                ):
                    return process.returncode or 0, True
                time.sleep(POLL)
            return process.returncode, False
        finally:
            end(process)


def end(process: subprocess.Popen) -> None:
    """End a process that still goes on, a launcher with its ranks, and what is left of its group."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    if process.poll() is None:
        processes.end(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Told:
    """What a process has told of itself."""

    start_up: float | None  # None: it did not come to train [s]
    looks: list[Look]

    @property
    def evaluating(self) -> float:
        """Time that its clock left out [s]."""
        return self.looks[-1].evaluating if self.looks else 0.0

    def reached(self, goal: float) -> bool:
        """Return whether it was seen to reach the goal."""
        return bool(self.looks) and self.looks[-1].reached(goal)


def looked_at(path: Path) -> Told:
    """Return what stands in the file of a process so far."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    begun = next((entry["start_up"] for entry in entries if "start_up" in entry), None)
    return Told(begun, [Look(**entry) for entry in entries if "start_up" not in entry])


def result(run: Run, told: Told, lasted: float, why: str = "") -> rows.Row:
    """Return the row of a run that `lasted` so long in all [s]; why: what it failed for, if it did."""
    course, last, clock = (
        run.course,
        told.looks[-1] if told.looks else None,
        lasted - told.evaluating,
    )
    if why:
        outcome = rows.FAILED
    elif last is not None and last.seconds <= course.limit and told.reached(course.task.goal):
        outcome, clock = rows.REACHED, last.seconds
    else:
        outcome = rows.LATE if clock >= course.limit else rows.SPENT
    return rows.Row(
        run.made_with, course.task.id, course.task.goal, run.entry.name, run.seed, outcome, clock,
        clock if told.start_up is None else told.start_up,
        last.env_steps if last else 0, max((look.mean for look in told.looks), default=np.nan), len(told.looks),
        told.evaluating, course.limit, course.cores, run.cpu, run.versions, provenance.git_commit(),
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), why,
    )  # fmt: skip
