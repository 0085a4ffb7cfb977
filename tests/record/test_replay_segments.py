"""The replay on disk: all of it comes back, a damaged segment costs one checkpoint."""

import errno
import itertools
import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import short_runs
from short_runs import Ring, failing, flip, grow, state

from esac_mpi import record
from esac_mpi.config import Config
from esac_mpi.record import Run, Unreadable, Unsaved, read
from esac_mpi.training import set_up


@dataclass
class Theta:
    """A state of one array."""

    theta_es: np.ndarray


def test_the_cost_of_a_checkpoint(tmp_path, begin):
    run, replay = begin(tmp_path), Ring(100)
    assert (run.checkpoint_seconds, run.checkpoint_bytes) == (0, 0)
    save(run, replay, 1, 95)
    files = [p for p in tmp_path.rglob("*.h5") if p.name != "checkpoint_prev.h5"]
    assert len(files) == 9 + 2
    assert run.checkpoint_bytes == sum(p.stat().st_size for p in files)
    start = time.monotonic()
    save(run, replay, 2, 5)  # one segment closes; nine need not be written again
    changed = [tmp_path / "checkpoint.h5", tmp_path / "metrics.h5", segment(tmp_path, 9)]
    assert run.checkpoint_bytes == sum(p.stat().st_size for p in changed)
    assert 0 < run.checkpoint_seconds <= time.monotonic() - start


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(record.replays, "SEGMENT", 10)


def save(run, replay, generation, added=0):
    """Make a checkpoint once the replay has so many more transitions; return its hash."""
    replay.add(added)
    run.checkpoint(generation, state(generation), {}, replay)
    return read(run.path / "checkpoint.h5")[1]["state_sha256"]


def saved_after(path, *added, capacity=100):
    """Leave a run behind that was saved whenever its replay had grown by so many."""
    replay = Ring(capacity)
    with closing(short_runs.begin(path)) as run:
        for generation, count in enumerate(added, 1):
            save(run, replay, generation, count)
    return replay


def segment(path, number):
    return next((path / "replay").glob(f"segment-{number:08}-*"))


@pytest.mark.parametrize(
    "added", [[0], [4], [10], [25, 7, 9, 1], [25, 33], [50, 50, 3], [230], [9, 45, 6]]
)
def test_every_transition_of_the_replay_comes_back(tmp_path, added, begin):
    replay = saved_after(tmp_path, *added, capacity=40)
    hashed = read(tmp_path / "checkpoint.h5")[1]["state_sha256"]
    again, restored = begin(tmp_path), Ring(40)
    again.restore_replay(restored)
    assert restored.added == replay.added
    for name in replay.columns:
        np.testing.assert_array_equal(restored.columns[name], replay.columns[name])
    assert save(again, restored, len(added)) == hashed


def test_state_hash_does_not_depend_on_earlier_checkpoints(tmp_path, begin):
    hashes = set()
    for name, stops in {"often": range(1, 108, 3), "seldom": (55, 107), "once": (107,)}.items():
        run, replay = begin(tmp_path / name), Ring(40)
        for stop in [*stops, 107]:
            saved = save(run, replay, 1, stop - replay.added)
        hashes.add(saved)
        run.close()
    assert len(hashes) == 1


def test_unneeded_segments_are_deleted(tmp_path, begin):
    run, replay, folder = begin(tmp_path), Ring(40), tmp_path / "replay"
    folder.mkdir()
    # of a checkpoint that was never renamed
    (folder / "segment-00000009-abcdef01.h5").write_text("x")

    def indices():
        return sorted(int(p.name.split("-")[1]) for p in folder.iterdir())

    save(run, replay, 1, 35)
    assert indices() == [0, 1, 2]
    written = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    save(run, replay, 2, 27)  # 62: the ring holds 22 .. 62
    assert indices() == [0, 1, 2, 3, 4, 5]  # the previous checkpoint names 0, 1, 2
    assert all(p.stat().st_mtime_ns == when for p, when in written.items())
    save(run, replay, 3)
    assert indices() == [2, 3, 4, 5]


def test_a_segment_that_somebody_deleted_is_published_again(tmp_path, begin):
    """To make room, say, while the run has it in memory."""
    run, replay = begin(tmp_path), Ring(40)
    for generation, lost in enumerate([(), (0, 1), (3,)], 1):
        for number in lost:
            segment(tmp_path, number).unlink()
        hashed = save(run, replay, generation, 25)
    run.close()
    again, restored = begin(tmp_path), Ring(40)
    assert again.restored.generation == 3
    again.restore_replay(restored)
    np.testing.assert_array_equal(restored.columns["number"], replay.columns["number"])
    assert save(again, restored, 3) == hashed


def test_segments_of_an_unconfirmed_checkpoint_are_kept(tmp_path, monkeypatch, begin):
    run, replay = begin(tmp_path), Ring(40)
    save(run, replay, 1, 35)
    replay.add(27)
    honest, calls = record.files._sync_directory, itertools.count()

    def fails_once(*arguments):
        if next(calls) == 3:  # closed: 3, 4 and 5
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return honest(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(record.files, "_sync_directory", fails_once)
        with pytest.raises(Unsaved):
            save(run, replay, 2)
    # renamed before that
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint.h5").generation == 2
    save(run, replay, 3, 40)
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint_prev.h5").generation == 2


@pytest.mark.parametrize("first", [15, 0])
def test_a_damaged_segment_falls_back_on_the_checkpoint_before(tmp_path, caplog, first, begin):
    saved_after(tmp_path, first, 25 - first)
    flip(segment(tmp_path, 1))
    again, restored = begin(tmp_path), Ring(100)
    again.restore_replay(restored)  # which reads the segment, and finds it
    assert (again.restored.generation, again.restored.source.name) == (1, "checkpoint_prev.h5")
    assert "segment-00000001" in caplog.text
    assert "going on from" in caplog.text
    np.testing.assert_array_equal(restored.columns["number"][:first], np.arange(first))
    assert restored.added == first
    save(again, restored, 2)  # must not push the good one out by the bad one
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint_prev.h5").generation == 1


def test_the_checkpoint_before_has_no_last_evaluation_of_the_newest(tmp_path, begin):
    run, replay = begin(tmp_path), Ring(100)
    for generation, count in ((1, 15), (2, 10)):
        replay.add(count)
        grow(run, generation - 1, generation)
        save(run, replay, generation)
    run.final({"evaluation_sac": np.ones(2)})
    run.close()
    flip(segment(tmp_path, 1))
    again, restored = begin(tmp_path), Ring(100)
    again.restore_replay(restored)
    save(again, restored, 1)  # it stops before another row
    columns = Run.open(tmp_path).columns
    assert (columns.generations, "final/evaluation_sac" in columns) == (1, False)


def test_a_replay_damaged_in_both_checkpoints_is_unreadable(tmp_path, begin):
    saved_after(tmp_path, 15, 0)
    first = segment(tmp_path, 0)
    flip(first)
    again = begin(tmp_path)
    with pytest.raises(Unreadable, match="segment-00000000"):
        again.restore_replay(Ring(100))
    again.close()
    first.unlink()
    with pytest.raises(Unreadable, match=r"no readable checkpoint: .*segment-00000000.*--fresh"):
        begin(tmp_path)


def test_a_folder_that_cannot_be_listed_ends_no_run(tmp_path, monkeypatch, begin):
    """What is to be deleted is deleted at the next checkpoint."""
    run, replay = begin(tmp_path), Ring(20)
    save(run, replay, 1, 15)
    replay.add(25)
    with monkeypatch.context() as m:
        m.setattr(Path, "glob", failing(errno.ESTALE))
        save(run, replay, 2)
    save(run, replay, 3)
    save(run, replay, 4)
    left = sorted(file.name[:16] for file in (tmp_path / "replay").iterdir())
    assert left == ["segment-00000002", "segment-00000003"]


def test_a_resume_reads_each_segment_once(tmp_path, monkeypatch, begin):
    saved_after(tmp_path, 35, capacity=40)
    seen, verify = [], record.files.verify
    monkeypatch.setattr(
        record.files, "verify", lambda path, *rest: seen.append(path.name) or verify(path, *rest)
    )
    again = begin(tmp_path)
    again.restore_replay(Ring(40))
    again.close()
    read_once = sorted(name for name in seen if name.startswith("segment"))
    assert read_once == sorted(os.listdir(tmp_path / "replay"))


def test_state_and_learner_are_of_the_replays_checkpoint(tmp_path, begin):
    run, replay = begin(tmp_path), Ring(100)
    for generation, count in ((1, 15), (2, 10)):
        replay.add(count)
        theta = np.full(2, generation, np.float32)
        run.checkpoint(generation, {"theta_es": theta}, {"w": np.array(generation)}, replay)
    run.close()
    flip(segment(tmp_path, 1))
    loaded = []
    learner = SimpleNamespace(replay=Ring(100), load=lambda saved: loaded.append(int(saved["w"])))
    job = SimpleNamespace(run=begin(tmp_path), learner=learner, config=Config(), unevaluated=None)
    job.state, job.env = Theta(np.zeros(2, np.float32)), SimpleNamespace(horizon=9)
    set_up.restore(job, {})
    assert (job.state.theta_es.tolist(), loaded, learner.replay.added) == ([1, 1], [1], 15)
    job.run.close()
