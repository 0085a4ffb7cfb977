"""Run directories of a few rows, made by record alone, and what befalls them."""

import errno
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from conftest import environment, finish

from esac_mpi.config import Config
from esac_mpi.record import Run

CONFIG = Config()
PROVENANCE = {"ranks": 2, "hosts": "läufer1", "command": "python -m esac_mpi"}


class Ring:
    """A replay of two columns, the first of which is the transition's number."""

    def __init__(self, capacity):
        self.capacity, self.added = capacity, 0
        self.columns = {
            "number": np.zeros(capacity, np.int64),
            "observation": np.zeros((capacity, 3), np.float32),
        }

    def add(self, count):
        numbers = np.arange(self.added, self.added + count)
        observations = np.outer(numbers, [1, 2, 3]).astype(np.float32)
        self.restore(self.added, {"number": numbers, "observation": observations})

    def rows(self, start, stop):
        assert max(0, self.added - self.capacity) <= start <= stop <= self.added
        places = np.arange(start, stop) % self.capacity
        return {name: column[places] for name, column in self.columns.items()}

    def restore(self, start, rows):
        places = np.arange(start, start + len(rows["number"]))
        for name, column in self.columns.items():
            column[places % self.capacity] = rows[name]
        self.added = start + len(places)


def begin(path, config=CONFIG, **options):
    return Run.begin(path, config, PROVENANCE, **options)


def state(generation):
    counted = {"generation": np.array(generation), "best.policy": np.array("sac")}
    return {"theta_es": np.full(5, generation, np.float32), **counted}


def row(generation, ranks=2):
    fitness = np.arange(4.0) + generation
    metrics = {"generation": generation, "fitness": fitness, "sigma": generation / 10}
    return metrics, {"wall_seconds": 2.0 * generation, "busy_seconds": np.full(ranks, 0.5)}


def grow(run, start, stop, ranks=2):
    for generation in range(start, stop):
        run.append(*row(generation, ranks))


def save(run, generation, **more):
    grow(run, run.generations, generation)
    run.checkpoint(generation, state(generation), {"w": np.ones(2)}, **more)


def make(path, *generations):
    """Leave a run behind with checkpoints at these generations, or at 2 and 3."""
    run = begin(path)
    for generation in generations or (2, 3):
        save(run, generation)
    run.status("requeue", generation)
    run.close()


def snapshot(path):
    return {
        str(p): (p.lstat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
        for p in sorted(path.rglob("*"))
    }


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@contextmanager
def elsewhere(code, **pipes):
    """Run code in another process, once it has printed a line; it is killed at the end."""
    streams = {"env": environment(), "stdout": subprocess.PIPE, "text": True, **pipes}
    process = subprocess.Popen([sys.executable, "-c", code], **streams)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def keeps_others_out(path):
    """Return whether another process gets no lock on a run's."""
    lock = f"fcntl.lockf(open({str(path / 'run.lock')!r}, 'rb+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return "BlockingIOError" in finish([sys.executable, "-c", f"import fcntl; {lock}"], None).stderr


HOLD = """
import time
from short_runs import begin
run = begin({path!r})
print("held", flush=True)
time.sleep(600)
"""


def failing(number=errno.ENOSPC):
    return mock.Mock(side_effect=OSError(number, os.strerror(number)))


def statuses(path):
    """Read status.json, which has no NaN and no infinity."""
    text = (path / "status.json").read_text()
    return json.loads(text, parse_constant=pytest.fail)
