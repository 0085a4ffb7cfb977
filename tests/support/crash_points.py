"""Every call by which a start, a checkpoint, a status and an end change files, cut or failing.

    LD_PRELOAD=shim.so python tests/support/crash_points.py shim.so DIRECTORY

Each is once a process's last call, and once one that fails. One run in small, in which segments
of the history close, and of the replay that also fall out of the ring, is done in a forked child
for each point (tests/support/shim.c), on a copy of the same directory. After it the directory must
hold the state before or after, whole, and the run must go on from there to the same hash. Prints
one JSON object: the calls of an undisturbed run, what was found after how many points, and what was
wrong. Cost: 10 s.
"""

import ctypes
import errno
import json
import logging
import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import short_runs
from short_runs import Ring, begin

from esac_mpi import record
from esac_mpi.record import Columns, Refused, Run, Unsaved, read
from esac_mpi.record.checkpoints import read_checkpoint

BEFORE, HALF, AFTER, FAIL, SHORT = range(5)  # of tests/support/shim.c
DIED = 42
ADDED = {1: 25, 2: 63, 3: 88, 4: 108}  # transitions in the replay of 40, by generation


def ring(generation: int) -> Ring:
    replay = Ring(40)
    replay.add(ADDED[generation])
    return replay


def make(path: Path) -> None:
    """Leave a run behind that stopped at generation 2."""
    run = begin(path)
    for generation in (1, 2):
        short_runs.save(run, generation, replay=ring(generation))
    run.status("requeue", 2)
    run.close()


def again(action: Callable[[], Any]) -> Any:
    """Do what may fail once."""
    try:
        return action()
    except (Refused, Unsaved):
        return action()


def save(run: Run, generation: int) -> None:
    short_runs.save(run, generation, replay=ring(generation))
    run.save_policy(np.ones(3, np.float32), {})
    run.status("requeue", generation)


def go_on(path: Path) -> None:
    """Make generation 3 from generation 2, trying again what could not be saved."""
    run = again(lambda: begin(path))
    again(lambda: save(run, 3))
    run.close()


def check(path: Path) -> tuple[str, str]:
    """Return what the directory holds, and the hash of generation 4 made from it.

    Raises AssertionError, and whatever reading raises, if that is not one whole state, or cannot be
    gone on from.
    """
    opened = Run.open(path)
    rows = len(opened.columns["metrics/generation"])
    said = (opened.status["status"], opened.status["generation"])
    previous = read_checkpoint(path / "checkpoint_prev.h5").generation
    run = begin(path)
    newest = run.restored.generation
    assert run.restored.source.name == "checkpoint.h5"
    # equal: linked but not renamed, or saved once more
    assert (newest, previous) in [(2, 1), (2, 2), (3, 2), (3, 3)]
    assert 2 <= rows <= newest  # metrics.h5 never says more than the checkpoint
    assert said in [("requeue", 2), ("running", 2)] + [("requeue", 3)] * (newest == 3)
    for name, generation in (("checkpoint.h5", newest), ("checkpoint_prev.h5", previous)):
        assert Columns(path / name)["metrics/generation"].tolist() == list(range(generation))
    np.testing.assert_array_equal(run.restored.state["theta_es"], np.full(5, newest, np.float32))
    replay, expected = Ring(40), ring(newest)
    run.restore_replay(replay)
    assert replay.added == expected.added
    np.testing.assert_array_equal(replay.columns["observation"], expected.columns["observation"])
    save(run, 4)
    run.close()
    assert read(path / "checkpoint_prev.h5")[1]["generation"] == newest
    assert not [p for p in path.rglob("*") if ".tmp" in p.name]
    found = f"checkpoint {newest}, previous {previous}, metrics {rows}, status {said[0]} {said[1]}"
    return found, read(path / "checkpoint.h5")[1]["state_sha256"]


def at_point(shim: ctypes.CDLL, path: Path, call: int, how: int, number: int) -> int:
    """Go on in a child whose `call` is the chosen one; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        shim.shim_arm(os.fsencode(path), call, how, number)
        go_on(path)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def undisturbed(shim: ctypes.CDLL, path: Path) -> tuple[list[str], str]:
    """Return the calls of a run without trouble, and the hash of its generation 4."""
    shim.shim_arm(os.fsencode(path), 0, BEFORE, 0)
    go_on(path)
    shim.shim_disarm()
    shim.shim_calls.restype = ctypes.c_char_p
    return shim.shim_calls().decode().splitlines(), check(path)[1]


def points(calls: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (call, how, errno). After a call is before the next one."""
    for call, name in enumerate(calls, 1):
        yield call, BEFORE, 0
        if name.startswith("write"):
            yield call, HALF, 0
            yield call, SHORT, 0
        yield call, FAIL, errno.ENOSPC if call % 2 else errno.EIO
    yield len(calls), AFTER, 0


def main(library: str, directory: str) -> None:
    logging.disable(logging.CRITICAL)
    # a row of the history is a segment
    record.replays.SEGMENT, record.history.SEGMENT_BYTES = (20, 1)
    shim, place = ctypes.CDLL(library), Path(directory).resolve()
    make(place / "old")
    shutil.copytree(place / "old", place / "run")
    calls, sha256 = undisturbed(shim, place / "run")
    seen: Counter[str] = Counter()
    problems: list[str] = []
    for call, how, number in points(calls):
        shutil.rmtree(place / "run")
        shutil.copytree(place / "old", place / "run")
        try:
            code = at_point(shim, place / "run", call, how, number)
            assert code == (0 if how in (SHORT, FAIL) else DIED), f"exit {code}"
            found, after = check(place / "run")
            assert after == sha256, "another hash"
            seen[found] += 1
        except Exception as error:
            point = f"call {call} ({calls[call - 1]}), how {how}, errno {number}"
            problems.append(f"{point}: {error!r}")
    print(json.dumps({"calls": calls, "seen": seen, "problems": problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
