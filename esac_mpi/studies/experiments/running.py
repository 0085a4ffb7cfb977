"""Carry out the runs of an experiment: so many at once, each to its end, resumed where it was.

A run with a number of ranks has the machine to itself. Interrupted (by a signal), the runs save
themselves, and the next start goes on.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from esac_mpi.analysis import measures
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import AUTO, SURVIVAL, Config, amend, differences, flatten
from esac_mpi.host.batch_system import PMI
from esac_mpi.host.errors import INSTALL, Interrupted, RunError
from esac_mpi.host.stop import stop_signals
from esac_mpi.record import Run, RunFiles
from esac_mpi.record.directory_check import list_changes
from esac_mpi.studies.experiments.plan import Planned

POLL = 0.1  # [s]


@dataclass
class Going:
    """A run in progress, or just ended."""

    planned: Planned
    process: subprocess.Popen[bytes]
    start: float  # of its process, on the monotonic clock [s]
    interrupted: bool = False  # whether it was asked to stop

    def stop(self) -> None:
        """Ask it to save itself and end; USR1, unlike TERM, leaves Open MPI's ranks alive."""
        self.interrupted = True
        self.process.send_signal(signal.SIGUSR1 if self.planned.ranks > 1 else signal.SIGTERM)

    @cached_property
    def end(self) -> str:
        """How it ended: done by its files, as launchers garble exit codes, stopped or failed."""
        if is_done(self.planned):
            return "done"
        if self.interrupted or self.process.returncode == Interrupted.code:
            return "stopped"
        return "failed"

    def __str__(self) -> str:
        run, name = open_files(self.planned), self.planned.run_dir.name
        at = f", generation {run.generation}" if run else ""
        best = run.status.get("best_return") if run else None
        reached = f", best return {best:,.6g}" if best is not None else ""
        said = f"{name}: {self.end}{at}, {time.monotonic() - self.start:.0f} s{reached}"
        if self.end == "failed":
            said += f"; exit code {self.process.returncode}, see {log_of(self.planned)}"
        return said


def open_files(planned: Planned) -> RunFiles | None:
    """Return a run's files, None where there is nothing of it yet, or nothing readable."""
    try:
        return Run.open(planned.run_dir)
    except (RunError, OSError):
        return None


def take_automatic(config: Config, run: RunFiles) -> Config:
    """Return a configuration, with a run's values for what task and machine decide."""
    planned, has = dict(flatten(config)), dict(flatten(run.config))
    published = run.provenance  # nothing before the first checkpoint: the run itself compares then
    names = str(published.get("settled", "")).split() if published else planned
    return amend(config, {name: has[name] for name in names if planned[name] in (SURVIVAL, AUTO)})


def log_of(planned: Planned) -> Path:
    """Return the file that has what a run printed, in a folder that `*/` passes over."""
    return planned.run_dir.parent / ".logs" / f"{planned.run_dir.name}.txt"


def is_done(planned: Planned) -> bool:
    """Tell whether a run is complete.

    Raises Unusable where there is one of other settings, or beyond the budget.
    """
    run = open_files(planned)
    if run is None:
        return False
    if changed := differences(run.config, take_automatic(planned.config, run)):
        listing = "\n  ".join(list_changes(changed))
        raise Unusable(
            f"{planned.run_dir} holds a run of other settings:\n  {listing}\n"
            "Remove it, or choose another --root"
        )
    if planned.ranks not in (0, ranks := run.provenance.get("ranks", planned.ranks)):
        raise Unusable(
            f"{planned.run_dir} was made on {ranks} rank(s), and is planned on {planned.ranks}: did"
            " a job script's LAUNCH start another number? Remove it, or choose another --root"
        )
    if run.state != "complete" or run.config.budget == planned.config.budget:
        return run.state == "complete"
    limits = measures.budget(replace(run, config=planned.config)).values()
    if any((count[:-1] >= limit).any() for count, limit in limits):
        raise Unusable(
            f"{planned.run_dir} holds a run beyond the budget that is planned now: "
            "remove it, or choose another --root"
        )
    return any(count[-1] >= limit for count, limit in limits)


def launcher(ranks: int) -> list[str]:
    """Begin the line of so many ranks, by this environment's mpirun or PATH's. Raises Unusable."""
    ours = Path(sys.executable).with_name("mpirun")
    found = str(ours) if ours.exists() else shutil.which("mpirun")
    if found is None:
        raise Unusable(f"no mpirun here: {INSTALL} '.[mpich]', or load the cluster's MPI")
    return [found, "-n", str(ranks)]


def command(planned: Planned) -> list[str]:
    """Return the command line of a run. Raises Unusable."""
    program = [sys.executable, "-m", "esac_mpi", *planned.arguments]
    return [*launcher(planned.ranks), *program] if planned.ranks > 1 else program


def begin(planned: Planned) -> Going:
    """Start a run, in a session of its own: signals from the terminal reach it through us alone.

    Nor is it a rank of who has started us, to whom PMI_FD leads, which is closed there.
    """
    log, env = log_of(planned), dict(os.environ)
    if "PMI_FD" in env:
        env = {name: value for name, value in env.items() if not name.startswith(PMI)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command(planned),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
    return Going(planned, process, time.monotonic())


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect the signals that ask us to stop in a list; under nohup SIGHUP is not one."""
    signals: list[int] = []
    numbers = stop_signals()
    before = [
        signal.signal(number, lambda given, frame: signals.append(given)) for number in numbers
    ]
    try:
        yield signals
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run_all(work: list[Planned], at_once: int, signals: list[int]) -> Generator[Going, None, None]:
    """Run what is to be run; yield each as it ends.

    Every signal is passed on, as SIGTERM or, to a launcher, SIGUSR1: all that go on save
    themselves, and nothing new is started. Left in the middle, by an error here or in who reads
    this, it waits until they have.
    """
    waiting, going, passed = list(work), list[Going](), 0
    try:
        while going or (waiting and not signals):
            while waiting and not signals and has_room(waiting[0], going, at_once):
                going.append(begin(waiting.pop(0)))
            passed = wait(going, signals, passed)
            for one in list(going):
                if one.process.poll() is not None:
                    going.remove(one)
                    yield one
    finally:
        for one in going:
            one.stop()
        while any(one.process.poll() is None for one in going):
            passed = wait(going, signals, passed)


def wait(going: list[Going], signals: list[int], passed: int) -> int:
    """Wait a moment; pass on the signals after the first `passed`; return their number."""
    time.sleep(POLL)
    count = len(signals)
    if count > passed:
        for one in going:
            one.stop()
    return count


def has_room(planned: Planned, going: list[Going], at_once: int) -> bool:
    """Return whether a run may start beside those that go on."""
    if planned.ranks or any(one.planned.ranks for one in going):
        return not going
    return len(going) < at_once
