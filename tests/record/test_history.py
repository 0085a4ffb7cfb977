"""The history in closed segments: whole columns, nothing lost, the same cost at every age."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from short_runs import flip, grow, make, row, save, snapshot

from esac_mpi import record
from esac_mpi.record import Columns, Run, Unreadable, history, read

ROW = 8 * (1 + 4 + 1 + 1 + 2)  # bytes of a row on 2 ranks


@pytest.fixture
def short(monkeypatch):
    """Segments of ten rows."""
    monkeypatch.setattr(history, "SEGMENT_BYTES", 10 * ROW)


def segments(path):
    return sorted(int(file.name.split("-")[1]) for file in (path / "history").iterdir())


def expected(generations):
    g = np.arange(generations)
    return {
        "metrics/generation": g,
        "metrics/fitness": g[:, None] + np.arange(4.0),
        "timing/wall_seconds": 2.0 * g,
    }


def assert_whole(columns, generations):
    for name, column in expected(generations).items():
        np.testing.assert_array_equal(columns[name][:], column)


def test_whole_columns_for_every_reader(tmp_path, short, monkeypatch):
    make(tmp_path / "run", 34, 57)
    assert segments(tmp_path / "run") == [0, 1, 2, 3, 4]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    os.rename(tmp_path / "run", tmp_path / "moved")
    for path in (Path("../moved"), tmp_path / "moved"):
        run = Run.open(path)
        with h5py.File(path / "metrics.h5", "r") as file:
            for name, column in expected(57).items():
                for found in (file[name][:], run.columns[name], run.columns.read([name])[name]):
                    assert found.dtype == column.dtype
                    np.testing.assert_array_equal(found, column)
    assert (run.generation, run.members("fitness").shape) == (57, (57, 4))
    assert run.history["timing/wall_seconds"].tolist() == (2.0 * np.arange(57)).tolist()


def test_a_short_history_is_a_plain_file(tmp_path):
    make(tmp_path, 57)
    assert not (tmp_path / "history").exists()
    for name in ("metrics.h5", "checkpoint.h5"):
        arrays, attributes = read(tmp_path / name)
        assert "history" not in attributes
        np.testing.assert_array_equal(arrays["metrics/generation"], np.arange(57))


@pytest.mark.parametrize("source", ["metrics.h5", "checkpoint.h5", "checkpoint_prev.h5"])
def test_every_file_that_names_segments_has_the_whole_history(tmp_path, short, caplog, source):
    make(tmp_path, 34, 57)
    names = ["metrics.h5", "checkpoint.h5", "checkpoint_prev.h5"]
    damaged = names[: names.index(source)]
    for name in damaged:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-600])
    opened, rows = Run.open(tmp_path), 34 if "prev" in source else 57
    assert opened.columns.source == tmp_path / source
    assert (opened.generation, opened.provenance["checkpoint_generation"]) == (rows, rows)
    assert caplog.text.count("truncated") == len(damaged)
    assert "state/theta_es" not in opened.columns
    assert_whole(opened.columns, rows)


def test_a_resumed_run_has_the_columns_of_a_straight_one(tmp_path, short, begin):
    for stops in ((57,), (10, 11, 30, 31, 57), (3, 57)):
        path = tmp_path / str(len(stops))
        for stop in stops:
            run = begin(path)
            grow(run, run.generations, stop)
            assert run.last_row()["generation"] == stop - 1
            assert run.wall_seconds == 2.0 * (stop - 1)
            run.publish_metrics(force=True)
            save(run, stop)
            grow(run, stop, stop + 25)  # lost: later than the checkpoint
            run.publish_metrics(force=True)
            run.close()
        run = begin(path)
        assert (run.generations, run.dropped) == (57, 25)
        save(run, 57)
        run.close()
        assert_whole(Run.open(path).columns, 57)


def test_segments_that_nothing_names_are_deleted(tmp_path, short, begin):
    make(tmp_path, 34)
    kept = segments(tmp_path)
    run = begin(tmp_path)
    grow(run, 34, 60)
    run.publish_metrics(force=True)
    run.close()
    assert segments(tmp_path) == [0, 1, 2, 3, 4]
    opened = Run.open(tmp_path)
    # killed before a checkpoint: metrics.h5 is ahead, and readable until it is published anew
    run = begin(tmp_path)
    assert opened.columns["metrics/generation"].tolist() == list(range(60))
    save(run, 34)
    assert segments(tmp_path) == kept
    named = {segment.name.split("/")[1] for segment in run._history.closed}
    assert {file.name for file in (tmp_path / "history").iterdir()} <= named


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path, short, caplog, begin):
    make(tmp_path, 34, 57)
    flip(tmp_path / "checkpoint.h5")
    run = begin(tmp_path)
    restored = run.restored
    assert (restored.generation, restored.source.name) == (34, "checkpoint_prev.h5")
    assert (run.generations, run.dropped) == (34, 23)
    assert "checkpoint.h5: damaged" in caplog.text
    assert "generation 34" in caplog.text
    save(run, 57)  # must not push the good one out by the bad one
    run.close()
    for name, rows in (("metrics.h5", 57), ("checkpoint.h5", 57), ("checkpoint_prev.h5", 34)):
        found = Columns(tmp_path / name)["metrics/generation"]
        np.testing.assert_array_equal(found, np.arange(rows))


def test_a_segment_gone_or_truncated_is_named_at_the_start(tmp_path, short, begin):
    make(tmp_path, 34, 57)
    segment = next((tmp_path / "history").glob("segment-00000001-*"))
    content = segment.read_bytes()
    for damage in (segment.unlink, lambda: segment.write_bytes(content[:-1])):
        damage()
        before = snapshot(tmp_path)
        with pytest.raises(Unreadable, match=r"no readable checkpoint: .*segment-00000001"):
            begin(tmp_path)
        with pytest.raises(Unreadable, match=r"nothing readable: .*segment-00000001"):
            Run.open(tmp_path)
        assert snapshot(tmp_path) == before
        with h5py.File(tmp_path / "metrics.h5") as file:
            if not segment.exists():  # HDF5 reads the rest; this is not a number of the run
                assert (file["metrics/generation"][10:20] == np.iinfo(np.int64).min).all()
                assert np.isnan(file["metrics/fitness"][10:20]).all()
                assert file["metrics/generation"][20:].tolist() == list(range(20, 57))


def test_a_damaged_segment_is_found_when_it_is_read(tmp_path, short):
    make(tmp_path, 57)
    segment = next((tmp_path / "history").glob("segment-00000001-*"))
    opened = Run.open(tmp_path)
    flip(segment)
    for _ in range(2):
        with pytest.raises(Unreadable, match=r"segment-00000001.*sha256 differs"):
            opened.columns["metrics/generation"]


def test_a_reader_of_before_keeps_its_rows_while_segments_close(tmp_path, short, begin):
    run = begin(tmp_path)
    save(run, 8)
    young = Run.open(tmp_path)
    save(run, 57)
    run.final({"evaluation_sac": np.array([7.0, 9.0])})
    assert young.columns["metrics/generation"].tolist() == list(range(8))
    assert young.members("fitness").shape == (8, 4)
    older = Run.open(tmp_path)
    assert older.columns["final/evaluation_sac"].tolist() == [7, 9]
    save(run, 90)
    np.testing.assert_array_equal(older.members("fitness"), expected(57)["metrics/fitness"])


def test_the_number_of_ranks_may_change_between_segments(tmp_path, short, begin):
    for start, ranks in ((0, 2), (20, 4), (40, 1), (60, 5)):
        run = begin(tmp_path)
        grow(run, start, min(start + 20, 70), ranks)
        save(run, min(start + 20, 70))
        run.close()
    columns = Run.open(tmp_path).columns
    with h5py.File(tmp_path / "metrics.h5") as file:
        for busy in (file["timing/busy_seconds"][:], columns["timing/busy_seconds"]):
            assert busy.shape == (70, 5)
            found = np.isfinite(busy).sum(axis=1).tolist()
            assert found == [2] * 20 + [4] * 20 + [1] * 20 + [5] * 10


def test_cost_and_memory_are_those_of_a_young_run(tmp_path, short, begin):
    run, written, sizes, kept = begin(tmp_path), [], [], []
    for generation in (200, 2000):
        save(run, generation)
        grow(run, generation, generation + 1)
        columns = {name: id(column.base) for name, column in run._history.tail.items()}
        grow(run, generation + 1, generation + 8)
        # a row is written in place
        assert {name: id(column.base) for name, column in run._history.tail.items()} == columns
        save(run, generation + 8)
        written.append((run.checkpoint_bytes, len(segments(tmp_path))))
        names = len(read(tmp_path / "checkpoint.h5")[1]["history"])
        sizes.append((tmp_path / "checkpoint.h5").stat().st_size - names)
        kept.append(sum(column.base.nbytes for column in run._history.tail.values()))
    assert kept[0] == kept[1] < 100 * ROW
    assert sizes[0] == pytest.approx(sizes[1], abs=4096)
    more, segments_more = np.diff(written, axis=0)[0]
    # their names, in each of five columns and twice in the manifest
    assert more < 1200 * segments_more


def test_a_publication_maps_closed_segments_once(tmp_path, short, monkeypatch, begin):
    """All ranks wait while it does, a second for a hundred segments of forty columns."""
    add, mapped = record.files.Joined.add, []

    def noted(joined, source, name, *place):
        mapped.append((source, name))
        add(joined, source, name, *place)

    monkeypatch.setattr(record.files.Joined, "add", noted)
    run = begin(tmp_path)
    for stop in (57, 58, 90, 91):
        save(run, stop)
    assert len(mapped) == len({*mapped}) == 5 * len(segments(tmp_path))  # columns each


def test_a_column_of_a_later_version_is_missing_in_earlier_rows(tmp_path, short, begin):
    make(tmp_path, 57)
    run = begin(tmp_path)
    for g in range(57, 80):
        metrics, times = row(g, ranks=3)
        run.append({**metrics, "later": g}, {**times, "busy_mean": 0.5})
    with pytest.raises(ValueError, match="row names differ"):  # once only
        run.append({**metrics, "later": g, "more": 1}, {})
    save(run, 80)
    columns, least = Run.open(tmp_path).columns, np.iinfo(np.int64).min
    with h5py.File(tmp_path / "metrics.h5") as file:
        for found in (columns, file):
            assert found["metrics/later"][:].tolist() == [least] * 57 + list(range(57, 80))
            assert np.isnan(found["timing/busy_mean"][:]).tolist() == [True] * 57 + [False] * 23
            assert found["timing/busy_seconds"].shape == (80, 3)
            assert_whole(found, 80)


def test_virtual_columns_of_every_kind(tmp_path, short, begin):
    kinds = {"flag": np.array(True), "small": np.uint8(7), "none": np.zeros(0)}
    kinds |= {"one": np.float32(0.1), "table": np.ones((2, 3))}
    run = begin(tmp_path)
    for _ in range(30):
        run.append(kinds, {})
    run.publish_metrics(force=True)
    save(run, 30)
    columns = Run.open(tmp_path).columns
    assert run._history.closed
    with h5py.File(tmp_path / "metrics.h5") as file:
        for name, value in kinds.items():
            for found in (file[f"metrics/{name}"][:], columns[f"metrics/{name}"]):
                assert (found.dtype, found.shape) == (value.dtype, (30, *value.shape))
                np.testing.assert_array_equal(found, np.broadcast_to(value, found.shape))
