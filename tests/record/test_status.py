"""status.json: how a run ended, and what it says to the next start; runs that can save nothing."""

import errno
import math
import os
import shutil
import socket
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import CYCLIC_ES
from in_process import started
from short_runs import HOLD, elsewhere, failing, make, save, statuses

from esac_mpi.config import Checkpoint
from esac_mpi.host import run_directory
from esac_mpi.host.stop import Stop
from esac_mpi.record import Run, Unsaved, lock, read
from esac_mpi.record.status import fail_from
from esac_mpi.training import active_run


def test_starts_without_progress_are_counted(tmp_path, begin):
    def started(number, since):
        run = begin(tmp_path)
        said = statuses(tmp_path)
        assert (run.starts, said["starts"], said["since"]) == (number, number, since)
        return run

    # killed before the first checkpoint, and before any status of their own
    for number in (1, 2, 3):
        started(number, 0).close()
    run = started(4, 0)
    save(run, 2)
    run.status("requeue", 2, best_return=7.5)
    run.close()
    for number in (1, 2):
        run = started(number, 2)
        assert statuses(tmp_path)["best_return"] == 7.5
        save(run, 2)  # of the same generation: no progress
        run.close()
    run = started(3, 2)
    run.status("requeue", 2)
    run.close()
    assert statuses(tmp_path)["starts"] == 3


@pytest.mark.parametrize(("end", "after"), [("failed", "running"), ("complete", "complete")])
def test_starts_are_counted_anew_after_an_end_that_was_said(tmp_path, end, after, begin):
    make(tmp_path)
    for number in (1, 2, 3):
        run = begin(tmp_path)
        assert run.starts == number
        if number == 3:
            run.status(end, 3)
        run.close()
    run = begin(tmp_path)
    assert (run.starts, statuses(tmp_path)["status"]) == (1, after)


def test_a_run_that_ended_without_a_word_is_named(tmp_path, begin):
    run = begin(tmp_path)
    assert run.died == ""
    run.status("running", 0)
    run.close()
    when = statuses(tmp_path)["time"]
    run = begin(tmp_path)
    who = f"host {socket.gethostname()}, pid {os.getpid()}, status of {when}"
    assert f"({who}): killed, out of memory" in run.died
    run.status("requeue", 0)
    run.close()
    run = begin(tmp_path)
    assert run.died == ""


def test_another_rank_says_that_a_run_failed(tmp_path, begin):
    run = begin(tmp_path)
    run.status("running", 0, best_return=7.5)
    before = statuses(tmp_path)
    fail_from(tmp_path, b"another 1 run\n", 3, "a bug")  # has taken the directory
    assert statuses(tmp_path) == before
    fail_from(tmp_path, run.token, 3, "a bug")
    after = statuses(tmp_path)
    assert after == {**before, "status": "failed", "reason": "a bug", "time": after["time"]}
    run.status("complete", 0)
    fail_from(tmp_path, run.token, 3, "a bug")  # and nothing after an end that was said
    assert (statuses(tmp_path)["status"], "reason" in statuses(tmp_path)) == ("complete", False)


def test_another_rank_has_a_temporary_file_of_its_own(tmp_path, monkeypatch, begin):
    """Rank 0, on another host, may write by a process of the same number at the same moment."""
    run, written = begin(tmp_path), []
    monkeypatch.setattr(os, "replace", lambda old, new: written.append(str(old)))
    run.status("running", 0)
    fail_from(tmp_path, run.token, 3, "a bug")
    monkeypatch.undo()
    assert len({*written}) == len(written) == 3


def test_a_status_that_cannot_be_replaced_does_not_stay(tmp_path, monkeypatch, begin):
    make(tmp_path)
    run = begin(tmp_path)
    run.status("complete", 3)
    monkeypatch.setattr(os, "replace", failing())
    run.status("running", 3)  # warns
    assert not (tmp_path / "status.json").exists()
    with pytest.raises(Unsaved):
        run.status("requeue", 3)
    monkeypatch.undo()
    run.status("requeue", 3)
    assert statuses(tmp_path)["status"] == "requeue"


@pytest.mark.parametrize(
    "content",
    ["[1]", '{"status": 7, "starts": "x", "since": null}', "\xff", '{"status"', "[" * 5000],
)
def test_a_strange_status_file_is_no_obstacle(tmp_path, content, begin):
    make(tmp_path)
    (tmp_path / "status.json").write_text(content, encoding="latin-1")
    run = begin(tmp_path)
    assert (run.starts, run.died, run.complete) == (1, "", False)
    run.close()
    assert statuses(tmp_path)["starts"] == 1


def test_status_json_has_the_run_in_plain_numbers(tmp_path, begin):
    make(tmp_path)
    run = begin(tmp_path)
    steps = {"population": np.int64(4)}
    run.status("running", 5, best_return=np.nan, env_steps=steps, final_return=np.float32(2))
    status = statuses(tmp_path)
    assert (status["status"], status["generation"], status["progress"]) == ("running", 5, 2)
    assert (status["best_return"], status["env_steps"]) == (None, {"population": 4})
    assert status["final_return"] == 2
    assert (status["host"], status["pid"]) == (socket.gethostname(), os.getpid())
    assert status["time"].endswith("+00:00")
    assert "state_sha256" not in status  # generation 5 has no checkpoint
    run.status("requeue", 3)
    assert statuses(tmp_path)["state_sha256"] == run.restored.attributes["state_sha256"]


@pytest.mark.parametrize("end", ["complete", "dead"])
def test_a_run_that_is_killed_is_dead_and_one_that_ends_is_not(tmp_path, end):
    code = HOLD.format(path=str(tmp_path))
    code = code.replace('print("held"', 'run.status("running", 0); print("held"')
    code = code.replace("time.sleep(600)", 'input(); run.status("complete", 0); run.close()')
    with elsewhere(code, stdin=subprocess.PIPE) as process:
        looked_at = Run.open(tmp_path)
        assert looked_at.state == "running"
        if end == "complete":
            process.communicate("\n")
    assert looked_at.state == end


ENDLESS = [*CYCLIC_ES, "--budget.generations", 100_000, "--checkpoint.every_generations", 3]


def full_after(monkeypatch, room: int) -> None:
    """Let the disk be full once so many checkpoints are written; status.json still fits."""
    written, replace = [], lock.replace

    def limited(path, parts, previous=False):
        if len(written) >= room:
            raise Unsaved(f"{path}: No space left on device")
        written.extend([path] * (path.name == "checkpoint.h5"))
        return replace(path, parts, previous)

    monkeypatch.setattr(lock, "replace", limited)


SHORTLY = "--checkpoint.unsaved_minutes 0.0001 --run-dir"


@pytest.mark.parametrize(("room", "generation"), [(1, 0), (3, 6)])
def test_a_run_that_can_save_nothing_ends_with_74(tmp_path, monkeypatch, caplog, room, generation):
    caplog.set_level("INFO", "esac_mpi")
    full_after(monkeypatch, room)
    path = tmp_path / "run"
    assert started(*ENDLESS, *SHORTLY.split(), path) == 74
    status = statuses(path)
    assert status["status"] == "failed"
    assert status["generation"] == status["progress"] == generation
    assert read(path / "checkpoint.h5")[1]["generation"] == generation
    assert "nothing could be saved for 0.0001 min (checkpoint.unsaved_minutes)" in caplog.text
    # at first, when it ends, at the end
    assert caplog.text.count(f"saved is generation {generation}, in {path / 'checkpoint.h5'}") == 3
    assert (path / "policy.h5").exists() == (generation > 0)
    assert "best policy /" not in caplog.text  # there is none, or it is not the best one
    there = (path / "metrics.h5").exists()
    assert (f"results {path / 'metrics.h5'}" in caplog.text) == ("curve" in caplog.text) == there


def test_where_the_directory_is_gone_no_file_is_named(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "esac_mpi")
    full_after(monkeypatch, 2)
    path, replace = tmp_path / "run", lock.replace

    def gone(where, parts, previous=False):
        if where.parent.exists() and (path / "policy.h5").exists():
            shutil.rmtree(path)
        return replace(where, parts, previous)

    monkeypatch.setattr(lock, "replace", gone)
    assert started(*ENDLESS, *SHORTLY.split(), path) == 74
    assert caplog.text.count(f"nothing is saved in {path}") == 3
    assert "results" not in caplog.text
    assert "curve" not in caplog.text
    assert not path.exists()


def test_a_damaged_checkpoint_is_not_the_one_that_is_saved(tmp_path, begin):
    make(tmp_path)
    os.truncate(tmp_path / "checkpoint.h5", 1000)
    run = begin(tmp_path)
    named = active_run.describe_saved(SimpleNamespace(run=run))
    assert named.endswith(f"generation 2, in {tmp_path / 'checkpoint_prev.h5'}")


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
