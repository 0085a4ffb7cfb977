"""Checkpoints: what their hashes are of, what is pending in them, which one a run goes on from."""

import hashlib

import numpy as np
import pytest
from short_runs import begin, flip, grow, make, snapshot, state

from esac_mpi.record import Run, Unreadable, read


def test_hashes_of_a_checkpoint_are_of_theta_and_state(tmp_path):
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
    run.close()


def test_without_a_readable_checkpoint_nothing_is_begun(tmp_path):
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


def test_pending_arrays_are_in_the_checkpoint_and_in_no_hash(tmp_path):
    run = begin(tmp_path)
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    without = read(tmp_path / "checkpoint.h5")[1]["state_sha256"]
    pending = {"fitness": np.arange(4.0), "counters.env_steps": np.array(7)}
    pending["name"] = np.array("läufe")
    run.checkpoint(2, state(2), {}, pending=pending)
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
    grow(again, 2, 3)
    again.checkpoint(3, state(3), {})
    again.close()
    last = begin(tmp_path)
    assert last.restored.pending == {}
    assert last._history.tail["metrics/generation"].tolist() == [0, 1, 2]
    last.close()


def test_pending_in_the_first_generation(tmp_path):
    run = begin(tmp_path)
    run.checkpoint(1, state(1), {}, pending={"fitness": np.zeros(4)})
    run.close()
    again = begin(tmp_path)
    assert again._history.tail == {}
    grow(again, 0, 2)
    again.checkpoint(2, state(2), {})
    assert Run.open(tmp_path).columns["metrics/generation"].tolist() == [0, 1]
    again.close()
