"""Who holds a trial: a living process alone, and no task waits to hear so."""

import errno
import os
import socket
import subprocess
import sys
import time

import pytest
from conftest import environment
from short_runs import failing
from small_studies import made

from esac_mpi.record import lock
from esac_mpi.studies.search.journal import Journal
from esac_mpi.studies.search.owners import FOLDER, Owners, name

HOLD = """
import sys, time
from pathlib import Path
from esac_mpi.studies.search.owners import Owners
held = Owners(Path(sys.argv[1])).claim(3)
print("held", flush=True)
time.sleep(100)
"""


def test_a_trial_is_held_by_a_living_process_alone(tmp_path):
    owners, file = Owners(tmp_path), tmp_path / FOLDER / name(3)
    line = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert (owners.claim(3), owners.is_left(3), owners.is_sure(3)) == (None, False, True)
        process.kill()
    assert owners.is_left(3)
    owners.claim(3).close()
    assert file.read_text().strip() == ""
    file.write_text("elsewhere 1 then\n")  # its lock does not reach us
    assert (owners.claim(3), owners.is_left(3), owners.is_sure(3)) == (None, False, False)
    os.utime(file, (time.time() + 3, time.time() + 3))
    assert owners.is_sure(3)  # it was touched meanwhile
    later = Owners(tmp_path, clock=lambda: time.time() + 200)
    assert later.is_left(3)
    held = later.claim(3)
    assert file.read_text().split()[:2] == [socket.gethostname(), str(os.getpid())]
    held.close()


def test_a_trial_in_living_hands_is_not_waited_for(tmp_path, monkeypatch):
    """A task asks for every trial that goes on, and all others wait for its answer."""
    owners, line = Owners(tmp_path), [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        monkeypatch.setattr(lock.time, "sleep", lambda seconds: pytest.fail("it waited"))
        assert owners.claim(3) is None
        process.kill()


def test_without_locks_a_silent_trial_is_taken_over_and_one_that_shows_life_is_not(
    tmp_path, monkeypatch
):
    """Its host is another one, and its last sign of life is older than ten minutes."""
    file, now = tmp_path / FOLDER / name(3), time.time()
    file.parent.mkdir()
    file.write_text("elsewhere 77 then\n")
    os.utime(file, (now - 700, now - 700))
    monkeypatch.setattr(lock.fcntl, "lockf", failing(errno.ENOLCK))
    waited = []
    monkeypatch.setattr(
        lock.time,
        "sleep",
        lambda seconds: (waited.append(seconds), os.utime(file, (now - 650, now - 650))),
    )
    assert Owners(tmp_path).claim(3) is None
    monkeypatch.setattr(lock.time, "sleep", waited.append)
    os.utime(file, (now - 700, now - 700))
    Owners(tmp_path).claim(3).close()
    assert (
        max(waited) < Journal(made(tmp_path), fresh=True)._taking.grace_period
    )  # nobody else takes a trial meanwhile
