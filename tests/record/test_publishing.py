"""A published file is whole at every moment, and damage to one is found."""

import errno
import os
import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from run_files import publish
from short_runs import elsewhere, failing, make

from esac_mpi import record
from esac_mpi.record import Run, Unreadable, Unsaved, digest, read

ARRAYS = {
    "state/theta": np.linspace(0, 1, 300, dtype=np.float32),
    "empty": np.zeros((0, 17)),
    "scalar": np.array(7, np.int64),
    "flag": np.array(True),
    "big-endian": np.arange(3, dtype=">f8"),
    "name": np.array("läufe"),
    "names": np.array(["a", "bcd"]),
}


def test_arrays_and_attributes_are_read_as_they_were_published(tmp_path):
    path = tmp_path / "x.h5"
    about = {"text": "ü", "none": "", "long": "x" * 100_000, "n": 3, "f": 1.5}
    publish(path, ARRAYS, {**about, "a": np.arange(2)})
    arrays, attributes = read(path)
    np.testing.assert_equal(arrays, ARRAYS)
    assert all(arrays[name].shape == array.shape for name, array in ARRAYS.items())
    assert attributes.pop("a").tolist() == [0, 1]
    assert attributes == about
    assert digest(arrays) == digest(ARRAYS)
    with h5py.File(path) as file:  # by plain h5py
        np.testing.assert_array_equal(file["state/theta"][:], ARRAYS["state/theta"])


def test_digest_tells_names_types_and_shapes_apart():
    zeros = np.zeros(4, np.float32)
    others = [{"a": zeros}, {"b": zeros}, {"a": zeros.reshape(2, 2)}]
    others += [{"a": zeros.view(np.int32)}, {"a": zeros, "b": zeros[:0]}]
    assert len({digest(arrays) for arrays in others}) == len(others)
    assert digest({"a": np.arange(3, dtype=">i4")}) == digest({"a": np.arange(3, dtype="<i4")})
    assert digest({"a": np.eye(3)[:, 1]}) == digest({"a": np.array([0.0, 1.0, 0.0])})


def test_every_truncation_and_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "x.h5"
    publish(path, ARRAYS, {"n": 1})
    content, choose = path.read_bytes(), random.Random(0)
    damaged = [content[:length] for length in range(0, len(content), 512)]
    for bit in [choose.randrange(8 * size) for size in [len(content)] * 250 + [512] * 50]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(flipped)
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(Unreadable):
            read(path)


def test_unreadable_says_what_is_wrong(tmp_path, monkeypatch):
    path = tmp_path / "x.h5"
    with pytest.raises(Unreadable, match="No such file"):
        read(path)
    with h5py.File(path, "w") as file:
        file["a"] = 1
    with pytest.raises(Unreadable, match="not a file of esac_mpi"):
        read(path)
    publish(path, ARRAYS, {})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unreadable, match="truncated"):
        read(path)
    monkeypatch.setattr(record.files, "SCHEMA", 9)
    publish(path, ARRAYS, {})
    monkeypatch.undo()
    with pytest.raises(Unreadable, match="schema 9, written by another version"):
        read(path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "x.h5"
    publish(path, {"a": np.ones(1)}, {})
    monkeypatch.setattr(os, call, failing())
    with pytest.raises(Unsaved, match=r"No space left.*needed [\d,]+ bytes, free [\d,]+ bytes"):
        publish(path, {"a": np.zeros(1)}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]
    assert read(path)[0]["a"] == 1


def test_a_disk_without_inodes_is_told(tmp_path, monkeypatch):
    disk = {"f_bavail": 3, "f_frsize": 1000, "f_files": 9, "f_favail": 0}
    monkeypatch.setattr(os, "statvfs", lambda path: path.is_dir() and SimpleNamespace(**disk))
    told = record.files.describe_free(tmp_path / "to/be/made")
    assert told == "3,000 bytes but no inodes: remove files"
    disk["f_files"] = 0  # a file system that counts none
    assert record.files.describe_free(tmp_path) == "3,000 bytes"


@pytest.mark.parametrize("hard_links", [True, False])
def test_the_file_before_is_kept(tmp_path, monkeypatch, hard_links):
    if not hard_links:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    path, previous = tmp_path / "x.h5", tmp_path / "x_prev.h5"
    for number in range(3):
        publish(path, {"a": np.array(number)}, {}, previous=True)
    assert (read(path)[0]["a"], read(previous)[0]["a"]) == (2, 1)
    monkeypatch.undo()
    previous.unlink()
    os.link(path, previous)  # as a kill between the two renames leaves it
    publish(path, {"a": np.array(3)}, {}, previous=True)
    assert (read(path)[0]["a"], read(previous)[0]["a"]) == (3, 2)
    assert {p.name for p in tmp_path.iterdir()} == {"x.h5", "x_prev.h5"}


def test_reading_while_a_run_publishes(tmp_path):
    make(tmp_path / "run", 1, 2)
    code = f"""
from short_runs import begin, row
run = begin({str(tmp_path / "run")!r})
print("go", flush=True)
for g in range(2, 10_000):
    run.append(*row(g))
    run.publish_metrics(force=True)
"""
    seen = []
    with elsewhere(code):
        while len(set(seen)) < 5:
            with h5py.File(tmp_path / "run" / "metrics.h5") as file:
                seen.append(len(file["metrics/generation"]))
                np.testing.assert_array_equal(file["metrics/fitness"][:, 0], np.arange(seen[-1]))
            seen.append(len(Run.open(tmp_path / "run").columns["metrics/generation"]))
    assert seen == sorted(seen)


def test_threads_publish_at_the_same_time(tmp_path):
    """HDF5 tells files in memory apart by their names."""

    def publishes(name):
        for _ in range(30):
            publish(tmp_path / name, {str(i): np.arange(9.0) for i in range(20)}, {"name": name})

    names = ["0.h5", "1.h5", "2.h5"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(publishes, names))  # raises what a thread raised
    assert [read(tmp_path / name)[1]["name"] for name in names] == names
