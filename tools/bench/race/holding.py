"""Hold the race: run after run, each a process group of its own on all cores, and a row of the results as each ends.

What stands in the results is not run again, but for what failed, so that a race may be stopped and goes on, on another machine
too: a heat, all competitors on a task from a seed, is of one. All of a seed run before the next one's, so that a race that was
stopped early has all competitors on all tasks.
"""

import argparse
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.stop import asking
from esac_mpi.training import provenance
from tools.bench.measurement import Measurement, say
from tools.bench.program import launcher
from tools.bench.race import processes, rows, standings
from tools.bench.race.plans import Run, planned
from tools.bench.race.processes import LOGS, carried_out

ROWS, TABLE, PICTURE = "race.csv", "race.md", "race.png"
BUSY = 0.5  # load average from which other work is noticed
FOLDER, QUICK = Path("runs/race"), Path("runs/race-quick")


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Race; write table and picture; yield the times. Raises Unusable."""
    folder = options.out or (QUICK if options.quick else FOLDER)
    wanted = planned(options)
    before = rows.read(folder / ROWS)
    done = rows.counted(before, {run.key: run.heat for run in wanted}, provenance.cpu())
    left = [
        run for run in wanted if (row := done.get(run.key)) is None or row.outcome == rows.FAILED
    ]
    require(folder, left)
    if others := sum(not any(row is kept for kept in done.values()) for row in before):
        say(
            f"{folder / ROWS}: {others} rows of other settings, tasks, versions, or of another machine's half heats are left out"
        )
    hours = sum(run.course.limit for run in left) / 3600
    say(
        f"{len(left)} of {len(wanted)} runs to make, {hours:.1f} hours at most, and up to half as much for evaluations"
    )
    if left and (load := os.getloadavg()[0]) > BUSY:
        say(
            f"load {load:.1f}: other work is going on here, and the times will not be those of these cores alone"
        )
    with alone(folder):
        found = held(left, [run.key for run in wanted], done, folder)
    yield from found.measurements()


def held(
    left: list[Run], wanted: list[rows.Key], done: dict[rows.Key, rows.Row], folder: Path
) -> standings.Standings:
    """Make the runs that are left and enter them in `done`; publish, however it ends; return how all that are wanted stand."""
    try:
        with ended_by_signals():
            for number, run in enumerate(left, 1):
                row = carried_out(run, folder)
                rows.append(folder / ROWS, row)
                done[run.key] = row
                say(f"{number}/{len(left)} {run.name}: {standings.told(row)}")
    finally:
        found = standings.Standings([done[key] for key in wanted if key in done])
        if found.rows:
            say(published(found, folder))
    return found


def require(folder: Path, left: list[Run]) -> None:
    """Make the folder; raise Unusable where it cannot be one, or where runs that are left want a launcher and there is none."""
    if any(processes.ranks(run) > 1 for run in left):
        launcher()
    try:
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"--out {folder}: not a folder, and none can be made there ({error.strerror}): name another"
        ) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder, where the file system can: two races at once tell nothing of either. Raises Unusable where one is held."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Unusable(
                f"{folder}: a race is going on there; wait for its end, or stop it"
            ) from error
        except OSError:  # no locks on directories here
            pass
        yield
    finally:
        os.close(descriptor)


def published(found: standings.Standings, folder: Path) -> str:
    """Write table and picture; return what was written. Without matplotlib there is no picture."""
    (folder / TABLE).write_text(found.markdown() + "\n", encoding="utf-8")
    try:
        from tools.bench.race import picture

        picture.draw(found, folder / PICTURE)
    except Unusable as error:
        return f"{folder / TABLE}; no picture: {error}"
    return f"{folder / TABLE}, {folder / PICTURE}"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals that ask to stop end the race as Ctrl-C does: its run is ended with it, and what it has is published."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = [
        number
        for number in asking()
        if number != signal.SIGINT and signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
