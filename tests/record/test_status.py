"""status.json: how a run ended, and what it says to the next start."""

import json
import os
import socket
import subprocess

import numpy as np
import pytest
from short_runs import HOLD, begin, elsewhere, failing, grow, make, state, statuses

from esac_mpi.record import Run, Unsaved
from esac_mpi.record.status import fail_from


def test_starts_without_progress_are_counted(tmp_path):
    def started(number, since):
        run = begin(tmp_path)
        said = statuses(tmp_path)
        assert (run.starts, said["starts"], said["since"]) == (number, number, since)
        return run

    # killed before the first checkpoint, and before any status of their own
    for number in (1, 2, 3):
        started(number, 0).close()
    run = started(4, 0)
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    run.status("requeue", 2, best_return=7.5)
    run.close()
    for number in (1, 2):
        run = started(number, 2)
        assert statuses(tmp_path)["best_return"] == 7.5
        run.checkpoint(2, state(2), {})  # of the same generation: no progress
        run.close()
    run = started(3, 2)
    run.status("requeue", 2)
    run.close()
    assert statuses(tmp_path)["starts"] == 3


@pytest.mark.parametrize(("end", "after"), [("failed", "running"), ("complete", "complete")])
def test_starts_are_counted_anew_after_an_end_that_was_said(tmp_path, end, after):
    make(tmp_path)
    for number in (1, 2, 3):
        run = begin(tmp_path)
        assert run.starts == number
        if number == 3:
            run.status(end, 3)
        run.close()
    run = begin(tmp_path)
    assert (run.starts, statuses(tmp_path)["status"]) == (1, after)
    run.close()


def test_a_run_that_ended_without_a_word_is_named(tmp_path):
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
    run.close()


def test_another_rank_says_that_a_run_failed(tmp_path):
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
    run.close()


def test_another_rank_has_a_temporary_file_of_its_own(tmp_path, monkeypatch):
    """Rank 0, on another host, may write by a process of the same number at the same moment."""
    run, written = begin(tmp_path), []
    monkeypatch.setattr(os, "replace", lambda old, new: written.append(str(old)))
    run.status("running", 0)
    fail_from(tmp_path, run.token, 3, "a bug")
    monkeypatch.undo()
    assert len({*written}) == len(written) == 3
    run.close()


def test_a_status_that_cannot_be_replaced_does_not_stay(tmp_path, monkeypatch):
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
    run.close()


@pytest.mark.parametrize(
    "content",
    ["[1]", '{"status": 7, "starts": "x", "since": null}', "\xff", '{"status"', "[" * 5000],
)
def test_a_strange_status_file_is_no_obstacle(tmp_path, content):
    make(tmp_path)
    (tmp_path / "status.json").write_text(content, encoding="latin-1")
    run = begin(tmp_path)
    assert (run.starts, run.died, run.complete) == (1, "", False)
    run.close()
    assert statuses(tmp_path)["starts"] == 1


def test_status_json_has_the_run_in_plain_numbers(tmp_path):
    make(tmp_path)
    run = begin(tmp_path)
    steps = {"population": np.int64(4)}
    run.status("running", 5, best_return=np.nan, env_steps=steps, final_return=np.float32(2))
    status = json.loads((tmp_path / "status.json").read_text(), parse_constant=pytest.fail)
    assert (status["status"], status["generation"], status["progress"]) == ("running", 5, 2)
    assert (status["best_return"], status["env_steps"]) == (None, {"population": 4})
    assert status["final_return"] == 2
    assert (status["host"], status["pid"]) == (socket.gethostname(), os.getpid())
    assert status["time"].endswith("+00:00")
    assert "state_sha256" not in status  # generation 5 has no checkpoint
    run.status("requeue", 3)
    assert statuses(tmp_path)["state_sha256"] == run.restored.attributes["state_sha256"]
    run.close()


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
