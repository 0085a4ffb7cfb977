"""status.json: how a run ended, and what it says to the next start."""

import json
import os
import socket
import subprocess

import numpy as np
import pytest
from short_runs import HOLD, begin, child, failing, grow, make, state, statuses

from esac_mpi.record import Run, Unsaved


def test_starts_without_progress_are_counted(tmp_path):
    for number in (
        1,
        2,
        3,
    ):  # killed before the first checkpoint, and before any status of their own
        run = begin(tmp_path)
        assert (run.starts, statuses(tmp_path)["starts"], statuses(tmp_path)["since"]) == (
            number,
            number,
            0,
        )
        run.close()
    run = begin(tmp_path)
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    run.status("requeue", 2, best_return=7.5)
    assert (run.starts, statuses(tmp_path)["starts"], statuses(tmp_path)["since"]) == (4, 4, 0)
    run.close()
    for number in (1, 2):
        run = begin(tmp_path)
        assert (run.starts, statuses(tmp_path)["since"], statuses(tmp_path)["best_return"]) == (
            number,
            2,
            7.5,
        )
        run.checkpoint(2, state(2), {})  # of the same generation: no progress
        run.close()
    run = begin(tmp_path)
    run.status("requeue", 2)
    run.close()
    assert statuses(tmp_path)["starts"] == 3


@pytest.mark.parametrize("end", ["failed", "complete"])
def test_starts_are_counted_anew_after_an_end_that_was_said(tmp_path, end):
    make(tmp_path)
    for number in (1, 2):
        run = begin(tmp_path)
        assert run.starts == number
        run.close()
    run = begin(tmp_path)
    run.status(end, 3)
    run.close()
    run = begin(tmp_path)
    assert run.starts == 1
    assert statuses(tmp_path)["status"] == ("complete" if end == "complete" else "running")
    run.close()


def test_a_run_that_ended_without_a_word_is_named(tmp_path):
    run = begin(tmp_path)
    assert run.died == ""
    run.status("running", 0)
    run.close()
    when = statuses(tmp_path)["time"]
    run = begin(tmp_path)
    assert (
        f"(host {socket.gethostname()}, pid {os.getpid()}, status of {when}): killed, out of memory"
        in run.died
    )
    run.status("requeue", 0)
    run.close()
    run = begin(tmp_path)
    assert run.died == ""
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
    run.status(
        "running",
        5,
        best_return=float("nan"),
        env_steps={"population": np.int64(4)},
        final_return=np.float32(2),
    )
    status = json.loads((tmp_path / "status.json").read_text(), parse_constant=pytest.fail)
    assert status["status"] == "running"
    assert status["generation"] == 5
    assert status["progress"] == 2
    assert status["best_return"] is None
    assert status["env_steps"] == {"population": 4}
    assert status["final_return"] == 2
    assert status["host"] == socket.gethostname()
    assert status["pid"] == os.getpid()
    assert status["time"].endswith("+00:00")
    assert "state_sha256" not in status  # generation 5 has no checkpoint
    run.status("requeue", 3)
    assert (
        json.loads((tmp_path / "status.json").read_text())["state_sha256"]
        == run.restored.attributes["state_sha256"]
    )
    run.close()


def test_a_run_that_ends_while_it_is_looked_at_is_not_dead(tmp_path):
    code = HOLD.format(path=str(tmp_path)).replace(
        "time.sleep(60)", 'input(); run.status("complete", 0); run.close()'
    )
    process = child(
        code.replace('print("held"', 'run.status("running", 0); print("held"'),
        stdin=subprocess.PIPE,
    )
    process.stdout.readline()
    looked_at = Run.open(tmp_path)
    assert looked_at.state == "running"
    process.communicate("\n")
    assert looked_at.state == "complete"


def test_a_killed_run_is_dead(tmp_path):
    code = HOLD.format(path=str(tmp_path)).replace(
        'print("held"', 'run.status("running", 0); print("held"'
    )
    process = child(code)
    process.stdout.readline()
    assert Run.open(tmp_path).state == "running"
    process.kill()
    process.wait()
    process.stdout.close()
    assert Run.open(tmp_path).state == "dead"
