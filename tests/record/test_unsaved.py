"""A run directory that takes no more: how long a run goes on, and what it says is saved."""

import errno
import json
import math
import shutil
from types import SimpleNamespace

import pytest
from conftest import CYCLIC_ES
from in_process import started
from short_runs import failing

from esac_mpi.config import Checkpoint
from esac_mpi.host import run_directory
from esac_mpi.host.errors import Unsaved
from esac_mpi.host.stop import Stop
from esac_mpi.record import files, read
from esac_mpi.training import active_run

ENDLESS = [*CYCLIC_ES, "--budget.generations", 100_000, "--checkpoint.every_generations", 3]


def full_after(monkeypatch, room: int) -> None:
    """Let the disk be full once so many checkpoints are written; status.json still fits."""
    written, replace = [], files.replace

    def limited(path, parts, previous=False):
        if len(written) >= room:
            raise Unsaved(f"{path}: No space left on device")
        replace(path, parts, previous)
        written.extend([path] * (path.name == "checkpoint.h5"))

    monkeypatch.setattr(files, "replace", limited)


SHORTLY = "--checkpoint.unsaved_minutes 0.0001 --run-dir"


@pytest.fixture
def logged(caplog):
    """Return a function that returns what was said so far."""
    caplog.set_level("INFO", "esac_mpi")
    return lambda: caplog.text


@pytest.mark.parametrize(("room", "generation"), [(1, 0), (3, 6)])
def test_a_run_that_can_save_nothing_ends_with_74(tmp_path, monkeypatch, logged, room, generation):
    full_after(monkeypatch, room)
    path = tmp_path / "run"
    assert started(*ENDLESS, *SHORTLY.split(), path) == 74
    status = json.loads((path / "status.json").read_text())
    assert status["status"] == "failed"
    assert status["generation"] == status["progress"] == generation
    assert read(path / "checkpoint.h5")[1]["generation"] == generation
    assert "nothing could be saved for 0.0001 min (checkpoint.unsaved_minutes)" in logged()
    # at first, when it ends, at the end
    saved = f"saved is generation {generation}, in {path / 'checkpoint.h5'}"
    assert logged().count(saved) == 3
    assert (path / "policy.h5").exists() == (generation > 0)
    assert "best policy /" not in logged()  # there is none, or it is not the best one
    there = (path / "metrics.h5").exists()
    assert (f"results {path / 'metrics.h5'}" in logged()) == ("curve" in logged()) == there


def test_where_the_directory_is_gone_no_file_is_named(tmp_path, monkeypatch, logged):
    full_after(monkeypatch, 2)
    path, replace = tmp_path / "run", files.replace

    def gone(where, parts, previous=False):
        if where.parent.exists() and (path / "policy.h5").exists():
            shutil.rmtree(path)
        replace(where, parts, previous)

    monkeypatch.setattr(files, "replace", gone)
    assert started(*ENDLESS, *SHORTLY.split(), path) == 74
    assert logged().count(f"nothing is saved in {path}") == 3
    assert "results" not in logged()
    assert "curve" not in logged()
    assert not path.exists()


def job(monkeypatch, clock, save, **checkpoint):
    """Return a job that saves as is given."""
    world = SimpleNamespace(clock=clock, stop=Stop(lambda: 0.0, lambda: None))
    config = SimpleNamespace(checkpoint=Checkpoint(**checkpoint))
    state = SimpleNamespace(generation=1000)
    monkeypatch.setattr(active_run, "save", lambda *_: save())
    monkeypatch.setattr(active_run, "describe_saved", lambda _: "")
    run = SimpleNamespace(path="nowhere", saved_generation=0)
    return active_run.Job(config, world, None, None, state, None, None, run)


def test_a_failed_checkpoint_is_tried_every_minute(monkeypatch):
    """By the clock, whatever every_generations and every_minutes say; anew once one was written."""
    now, tried, room, last = [0.0], [], [], (0, 0.0)
    often = {"every_generations": 1000, "every_minutes": 0.0, "unsaved_minutes": 5.0}
    one = job(monkeypatch, lambda: now[0], lambda: tried.append(now[0]) or bool(room), **often)

    def until(end: float):
        nonlocal last
        while now[0] < end and not one.world.stop.wished:
            last = active_run.checkpoint_if_due(one, last)
            now[0] += 20.0

    until(200)
    assert tried == [0, 60, 120, 180]
    room.append(True)
    until(400)
    assert (tried[4:], one.unsaved) == ([240], math.inf)
    room.clear()
    one.state.generation = 2000
    until(10_000)
    assert tried[5:] == [400, 460, 520, 580, 640, 700]
    assert now[0] == 720


def test_without_a_limit_the_run_goes_on(monkeypatch):
    one = job(monkeypatch, lambda: 1e9, lambda: False, unsaved_minutes=0.0)
    one.unsaved = 1.0
    assert active_run.checkpoint_if_due(one, (0, 0.0)) == (1000, 1e9)
    assert not one.world.stop.wished


def test_a_file_system_that_is_away_may_have_the_file(monkeypatch, tmp_path):
    assert not run_directory.is_there(tmp_path / "none")
    assert not run_directory.is_there(tmp_path / "none" / "deeper")
    monkeypatch.setattr(run_directory.os, "lstat", failing(errno.ESTALE))
    assert run_directory.is_there(tmp_path / "none")
