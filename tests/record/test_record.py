"""A run's directory: what is in it and its checkpoints, what goes on, and what is refused."""

import hashlib
import os
import socket

import numpy as np
import pytest
from short_runs import CONFIG, flip, make, row, save, snapshot, state

from esac_mpi import record
from esac_mpi.config import Config, amend, read_toml, to_toml
from esac_mpi.record import Refused, Run, Unreadable, read


def test_a_new_run_publishes_nothing_before_a_checkpoint(tmp_path, begin):
    path = tmp_path / "deep" / "run"
    run = begin(path)
    assert (run.restored, run.dropped, run.complete, run.wall_seconds) == (None, 0, False, 0)
    assert amend(Config(), read_toml(path / "config.toml")) == CONFIG
    assert (path / "run.lock").read_text().split()[:2] == [socket.gethostname(), str(os.getpid())]
    run.append(*row(0))
    run.publish_metrics(force=True)
    assert not (path / "metrics.h5").exists()  # not before a checkpoint
    run.close()
    again = begin(path)  # a job killed before its first checkpoint starts again
    assert again.restored is None


def test_going_on_gives_back_everything(tmp_path, begin):
    make(tmp_path)
    before = Run.open(tmp_path)
    (tmp_path / "metrics.h5.tmp.123").write_text("left over")
    run = begin(tmp_path)
    assert not (tmp_path / "metrics.h5.tmp.123").exists()
    restored = run.restored
    assert (restored.generation, restored.source.name) == (3, "checkpoint.h5")
    assert restored.config == CONFIG
    assert restored.attributes["hosts"] == "läufer1"
    assert restored.state["best.policy"] == "sac"
    assert restored.learner["w"].tolist() == [1, 1]
    np.testing.assert_array_equal(restored.state["theta_es"], np.full(5, 3, np.float32))
    assert run._history.tail.keys() == before.columns.keys()
    for name, column in run._history.tail.items():
        np.testing.assert_array_equal(column, before.columns[name])
    assert run.last_row("fit")["fitness"].tolist() == [2, 3, 4, 5]
    assert run.wall_seconds == 4


def test_rows_must_agree_with_the_first(tmp_path, begin):
    run = begin(tmp_path)
    metrics, timing = row(0)
    run.append(metrics, timing)
    for wrong in (
        {**metrics, "new": 1},
        {"generation": 1},
        {**metrics, "fitness": np.ones(5)},
        {**metrics, "generation": 0.5},
    ):
        with pytest.raises(ValueError, match="first row"):
            run.append(wrong, timing)
    with pytest.raises(ValueError, match="busy_seconds"):
        run.append(metrics, {"wall_seconds": 1.0})
    # a refused row leaves nothing behind
    assert {len(column) for column in run._history.tail.values()} == {1}


def test_final_lasts_until_a_row_is_added(tmp_path, begin):
    make(tmp_path)
    run = begin(tmp_path)
    run.final({"evaluation_sac": np.array([7.0, 9.0])})
    run.status("complete", 3)
    run.close()
    assert Run.open(tmp_path).columns["final/evaluation_sac"].tolist() == [7, 9]
    assert not any("final" in name for name in read(tmp_path / "checkpoint.h5")[0])
    again = begin(tmp_path)
    assert again.complete
    save(again, 3)
    assert "final/evaluation_sac" in Run.open(tmp_path).columns
    save(again, 4)
    assert "final/evaluation_sac" not in Run.open(tmp_path).columns


def test_other_settings_are_refused(tmp_path, caplog, begin):
    make(tmp_path)
    before = snapshot(tmp_path)
    other = {"esac.sigma": 0.5, "seed": 7, "budget.generations": 9, "policy.hidden": (16, 8)}
    other = amend(CONFIG, other)
    with pytest.raises(Refused) as refusal:
        begin(tmp_path, other)
    for said in ("esac.sigma: 0.02 -> 0.5", "seed: 0 -> 7", "--fresh", " -> 16 8\n"):
        assert said in str(refusal.value)
    assert "budget" not in str(refusal.value)
    assert snapshot(tmp_path) == before
    for name in ("checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"):
        (tmp_path / name).unlink()
    with pytest.raises(Refused, match="seed: 0 -> 7"):  # by config.toml
        begin(tmp_path, other)
    begin(tmp_path, amend(CONFIG, {"budget.generations": 9, "learner.device": "cpu"})).close()
    assert "learner.device was auto, is now cpu" in caplog.text


def test_an_edited_config_is_named_where_its_settings_are_refused(tmp_path, begin):
    make(tmp_path)
    path, other = tmp_path / "config.toml", amend(CONFIG, {"seed": CONFIG.seed + 1})
    with pytest.raises(Refused, match="with its own settings"):
        begin(tmp_path, other)
    path.write_text(to_toml(other))
    with pytest.raises(Refused, match="was edited: with the former values there it goes on"):
        begin(tmp_path, other)


def test_strange_directories_are_refused(tmp_path, monkeypatch, begin):
    (tmp_path / "file").write_text("x")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    monkeypatch.setattr(record.files, "SCHEMA", 9)
    make(tmp_path / "newer")
    monkeypatch.undo()
    before = snapshot(tmp_path)
    for name, reason in (
        ("file", "not a directory"),
        ("file/sub", "file: not a directory"),
        ("circle", "circle: not a directory"),
        ("mine", "not a run of esac_mpi"),
    ):
        for fresh in (False, True):
            with pytest.raises(Refused, match=reason):
                begin(tmp_path / name, fresh=fresh)
    with pytest.raises(Refused, match="schema 9, written by another version"):
        begin(tmp_path / "newer")
    with pytest.raises(Refused, match="not a run directory"):
        Run.open(tmp_path / "mine")
    assert snapshot(tmp_path) == before
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(Refused, match="no permission to write"):
        begin(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_settings_are_not_looked_for_where_no_file_can_be(tmp_path):
    """Root sees the folders of others: a name that no file has is an error of the same kind."""
    with pytest.raises(Refused, match="File name too long; choose another --run-dir"):
        record.settings_of(tmp_path / ("x" * 300))


def test_hashes_of_a_checkpoint_are_of_theta_and_state(tmp_path, begin):
    run, hashes = begin(tmp_path), []
    for generation in (1, 1, 2):
        run.checkpoint(generation, state(generation), {"w": np.ones(2)})
        about = read(tmp_path / "checkpoint.h5")[1]
        hashes.append([about["theta_sha256"], about["state_sha256"]])
    one, same, other = hashes
    assert one == same
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert one[0] == hashlib.sha256(np.full(5, 1, "<f4").tobytes()).hexdigest()


def test_without_a_readable_checkpoint_nothing_is_begun(tmp_path, begin):
    make(tmp_path)
    flip(tmp_path / "checkpoint.h5")
    flip(tmp_path / "checkpoint_prev.h5")
    before = snapshot(tmp_path)
    with pytest.raises(Unreadable, match=r"checkpoint\.h5: damaged.*checkpoint_prev\.h5: damaged"):
        begin(tmp_path)
    assert snapshot(tmp_path) == before
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / name).unlink()
    for name in ("metrics.h5", "policy.h5"):  # as of a run that was copied in part
        (tmp_path / "metrics.h5").rename(tmp_path / name)
        with pytest.raises(Unreadable, match=rf"{name} is there, but no checkpoint"):
            begin(tmp_path)


def test_pending_arrays_are_in_the_checkpoint_and_in_no_hash(tmp_path, begin):
    run = begin(tmp_path)
    save(run, 2)
    without = read(tmp_path / "checkpoint.h5")[1]["state_sha256"]
    pending = {"fitness": np.arange(4.0), "counters.env_steps": np.array(7)}
    pending["name"] = np.array("läufe")
    save(run, 2, pending=pending)
    assert read(tmp_path / "checkpoint.h5")[1]["state_sha256"] == without
    run.checkpoint(3, state(3), {}, pending=pending)  # the third row was not made
    run.status("requeue", 3)
    run.close()
    assert not any("pending" in name for name in read(tmp_path / "metrics.h5")[0])
    again = begin(tmp_path)
    assert (again.restored.generation, again.dropped, again.last_row()["generation"]) == (3, 0, 1)
    assert again.restored.pending.keys() == pending.keys()
    for name, array in pending.items():
        np.testing.assert_array_equal(again.restored.pending[name], array)
    save(again, 3)
    again.close()
    last = begin(tmp_path)
    assert last.restored.pending == {}
    assert last._history.tail["metrics/generation"].tolist() == [0, 1, 2]


def test_pending_in_the_first_generation(tmp_path, begin):
    run = begin(tmp_path)
    run.checkpoint(1, state(1), {}, pending={"fitness": np.zeros(4)})
    run.close()
    again = begin(tmp_path)
    assert again._history.tail == {}
    save(again, 2)
    assert Run.open(tmp_path).columns["metrics/generation"].tolist() == [0, 1]
