"""--check's line about the run: it says what a start then does, and changes nothing."""

import json
import re

import pytest
from conftest import TINY_ES
from conftest import run as program
from in_process import checked, started
from short_runs import HOLD, child, flip, snapshot

from esac_mpi.envs import identity
from esac_mpi.training.check import cost, directory

pytestmark = pytest.mark.slow

FURTHER = ["--budget.generations", "3"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "WRITTEN", 2**20)
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
    (path / "status.json").write_text(
        json.dumps({**status, "status": "running", "starts": 10, "since": 2})
    )


def edited(path, monkeypatch):
    complete(path, monkeypatch)
    monkeypatch.setattr(
        identity, "identity", lambda env: {"model": "", "source": "arm 1234", "wrappers": ""}
    )


@pytest.mark.parametrize(
    ("before", "options", "code", "found"),
    [
        (nothing, [], 0, r"a new run +ok"),
        (empty, ["--fresh"], 0, r"a new run +ok"),
        (
            strange,
            [],
            2,
            r"refused +WRONG: {path}: not empty, and not a run of esac_mpi; "
            r"choose another --run-dir",
        ),
        (strange, ["--fresh"], 2, r"refused +WRONG: {path}: not empty"),
        (
            complete,
            [],
            0,
            r"finished at generation 2 +NOTE: the run in {path} is finished; raise its budget",
        ),
        (complete, FURTHER, 0, r"goes on from generation 2, checkpoint.h5 +ok"),
        (complete, ["--fresh"], 0, r"a new run; the old one is moved to {path}.old-1 +ok"),
        (
            complete,
            ["--es.sigma", "0.5"],
            2,
            r"refused +WRONG: {path} holds a run of other settings:\n {{10}}es.sigma: .*-> 0.5\n",
        ),
        (damaged, FURTHER, 65, r"refused +WRONG: {path}: no readable checkpoint"),
        (in_vain, FURTHER, 1, r"failed at generation 2 +WRONG: 10 starts in a row"),
        (
            edited,
            FURTHER,
            2,
            r"refused +WRONG: {path} holds a run of another task; changed: "
            r"its source \(arm\)\.\n {{8}}Choose",
        ),
        (
            edited,
            [*FURTHER, "--task.changed", "warn"],
            0,
            r"goes on .* NOTE: the task has changed: its source \(arm\); the best",
        ),
    ],
)
def test_the_check_says_what_a_start_then_does_and_leaves_all_as_it_was(
    place, before, options, code, found, monkeypatch, capfd
):
    before(place, monkeypatch)
    line = [*TINY_ES, "--stop.starts", "10", "--run-dir", str(place), *options]
    there = snapshot(place.parent)
    checked, text = said(line, capfd)
    assert re.match(found.format(path=re.escape(str(place))), text), text
    # the directory's time: it was tried
    old = {name: entry for name, entry in there.items() if name != str(place)}
    assert {
        name: entry for name, entry in snapshot(place.parent).items() if name != str(place)
    } == old
    assert checked == started(*line) == code


def test_a_task_whose_model_changes_at_every_reset_is_the_same_task(place, capfd):
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
    assert (
        code,
        f"in use by another run: host {(place / 'run.lock').read_text().split()[0]}, "
        f"pid {process.pid}" in text,
    ) == (2, True)
    assert started(*line) == 2  # it still holds its lock
    process.kill()
    process.wait()
    process.stdout.close()
    assert "a new run" not in said(line, capfd)[1]  # its config.toml is of other settings


def test_check_and_fresh_are_given_together(tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "run.lock").write_text("")
    arguments = [*TINY_ES, "--check", "--run-dir", tmp_path]
    assert "holds a run of other settings" in program(0, *arguments, code=2).stdout
    assert (
        f"a new run; the old one is moved to {tmp_path}.old-1"
        in program(2, *arguments, "--fresh").stdout
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.toml", "run.lock"]


def test_a_forecast_is_of_what_is_left(place, monkeypatch, capfd):
    monkeypatch.setattr(cost, "PLAYING", 0.01)
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
