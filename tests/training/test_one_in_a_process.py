"""A training in a process that goes on: one at a time; what it gives back when it ends badly."""

import signal
import sys
import time

import own_envs
import pytest
from whole_runs import wait_for

import esac_mpi
from esac_mpi import Run, WrongUsage

SMALL = {
    **{
        "algorithm": "es",
        "task.id": "own_envs:Steep-v0",
        "task.horizon": 9,
        "policy.hidden": [4],
        "es.population_size": 4,
    },
    **{"evaluation.episodes": 1, "budget.generations": 2},
}


def trained(path, callback=None, **more):
    return esac_mpi.train(None, {**SMALL, **more}, run_dir=path, callback=callback, quiet=True)


def test_one_training_at_a_time(tmp_path):
    def again(row):
        with pytest.raises(
            WrongUsage, match="another training goes on in this process: one at a time"
        ):
            trained(tmp_path / "inner")

    assert trained(tmp_path / "run", again).state == "complete"
    assert not (tmp_path / "inner").exists()
    assert trained(tmp_path / "inner").state == "complete"


def test_an_alarm_of_ones_own_comes_after_the_training():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60, 5)
        with pytest.raises(WrongUsage):
            trained("", **{"es.sigma": -1.0})
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 60
        assert interval == 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_alarm_that_was_due_meanwhile_is_not_lost(tmp_path):
    heard = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        trained(tmp_path / "run", lambda row: time.sleep(0.1))
        wait_for(lambda: heard)
        assert heard == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_who_leaves_python_in_a_callback_leaves_a_run_that_failed(tmp_path):
    with pytest.raises(SystemExit):
        trained(tmp_path / "run", lambda row: sys.exit())
    assert Run.open(tmp_path / "run").state == "failed"
    assert trained(tmp_path / "run").state == "complete"


def test_tasks_are_let_go_of_however_a_training_ends(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(own_envs.Steep, "close", lambda env: closed.append(env))
    trained(tmp_path / "run")
    trained(tmp_path / "run")  # it is finished
    with pytest.raises(WrongUsage):
        trained(tmp_path / "run", **{"es.sigma": 0.5})  # it has other settings
    with pytest.raises(KeyError):
        trained(tmp_path / "other", lambda row: {}["x"])
    assert len(closed) == 4
