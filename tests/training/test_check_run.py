"""--check's line about the run: it says what a start then does, and changes nothing."""

import json
import re

import pytest
from conftest import TINY_ES
from in_process import checked, started
from short_runs import HOLD, child, flip, snapshot

from esac_mpi.envs import identity
from esac_mpi.training.check import cost

pytestmark = pytest.mark.slow

FURTHER = ["--budget.generations", "3"]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "run"


def said(argv, capfd):
    """Return the exit code of --check, its line about the run and the lines that go on with it."""
    capfd.readouterr()
    code = checked(*argv)
    return code, re.search(r"^  run  +(.*(?:\n {8}.*)*)", capfd.readouterr().out, re.M)[1]


def nothing(path, monkeypatch):
    pass


def strange(path, monkeypatch):
    path.mkdir()
    (path / "x").write_text("kept")


def empty(path, monkeypatch):
    path.mkdir()


def complete(path, monkeypatch):
    assert started(*TINY_ES, "--run-dir", path) == 0


def damaged(path, monkeypatch):
    complete(path, monkeypatch)
    for file in path.glob("checkpoint*.h5"):
        flip(file)


def in_vain(path, monkeypatch):
    complete(path, monkeypatch)
    status = json.loads((path / "status.json").read_text())
    status |= {"status": "running", "starts": 10, "since": 2}
    (path / "status.json").write_text(json.dumps(status))


def edited(path, monkeypatch):
    complete(path, monkeypatch)
    made = {"model": "", "source": "arm 1234", "wrappers": ""}
    monkeypatch.setattr(identity, "identity", lambda env: made)


WARNED = [*FURTHER, "--task.changed", "warn"]
STARTS = [  # before, options, exit code, what the check says
    (nothing, [], 0, r"a new run +ok"),
    (empty, ["--fresh"], 0, r"a new run +ok"),
    (strange, [], 2, r"refused +WRONG: {path}: not empty, and not a run of esac_mpi"),
    (strange, ["--fresh"], 2, r"refused +WRONG: {path}: not empty"),
    (complete, [], 0, r"finished at generation 2 +NOTE: the run in {path} is finished"),
    (complete, FURTHER, 0, r"goes on from generation 2, checkpoint.h5 +ok"),
    (complete, ["--fresh"], 0, r"a new run; the old one is moved to {path}.old-1 +ok"),
    (complete, ["--es.sigma", "0.5"], 2, r"refused +WRONG: {path} .*\n {{10}}es.sigma: .*-> 0.5\n"),
    (damaged, FURTHER, 65, r"refused +WRONG: {path}: no readable checkpoint"),
    (in_vain, FURTHER, 1, r"failed at generation 2 +WRONG: 10 starts in a row"),
    (edited, FURTHER, 2, r"refused +WRONG: {path} .*its source \(arm\)\.\n {{8}}Choose"),
    (edited, WARNED, 0, r"goes on .* NOTE: the task has changed: its source \(arm\); the best"),
]


def others(place):
    """Return what lies beside a directory and in it, but for its own time: it was tried."""
    return {name: entry for name, entry in snapshot(place.parent).items() if name != str(place)}


@pytest.mark.parametrize(("before", "options", "code", "found"), STARTS)
def test_the_check_says_what_a_start_does_and_changes_nothing(
    place, before, options, code, found, monkeypatch, capfd
):
    before(place, monkeypatch)
    line = [*TINY_ES, "--stop.starts", "10", "--run-dir", str(place), *options]
    there = others(place)
    checked, text = said(line, capfd)
    assert re.match(found.format(path=re.escape(str(place))), text), text
    assert others(place) == there
    assert checked == started(*line) == code


def test_a_task_whose_model_changes_at_resets_is_the_same(place, capfd):
    # its target is drawn
    line = [*TINY_ES, "--task.id", "dm_control/fish-swim-v0", "--run-dir", str(place)]
    assert started(*line) == 0
    code, text = said([*line, *FURTHER], capfd)
    assert code == 0
    assert re.match(r"goes on from generation 2, checkpoint.h5 +ok", text), text


def test_a_run_in_use_is_refused_and_goes_on(place, capfd):
    process = child(HOLD.format(path=str(place)))
    assert process.stdout.readline() == "held\n"
    line = [*TINY_ES, "--run-dir", str(place)]
    code, text = said(line, capfd)
    assert code == 2
    host = (place / "run.lock").read_text().split()[0]
    assert f"in use by another run: host {host}, pid {process.pid}" in text
    assert started(*line) == 2  # it still holds its lock
    process.kill()
    process.wait()
    process.stdout.close()
    assert "a new run" not in said(line, capfd)[1]  # its config.toml is of other settings


def test_a_forecast_is_of_what_is_left(place, monkeypatch, capfd):
    for before, told in (
        (nothing, "for the whole budget"),
        (complete, "for what is left of the budget"),
    ):
        before(place, monkeypatch)
        capfd.readouterr()
        assert checked(*TINY_ES, *FURTHER, "--run-dir", place) == 0
        assert told in capfd.readouterr().out
    assert checked(*TINY_ES, "--run-dir", place) == 0
    assert "a generation, " not in capfd.readouterr().out  # it is finished


def test_what_a_rank_cannot_measure_leaves_a_line(place, monkeypatch, capfd):
    """And no rank waits for another: all exchange what they found."""

    def fails(*given):
        raise MemoryError("no room for a child")

    monkeypatch.setattr(cost.measured, "seconds", fails)
    assert checked(*TINY_ES, "--run-dir", place) == 0
    assert "none: MemoryError: no room for a child" in capfd.readouterr().out
