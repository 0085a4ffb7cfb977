"""record.py: what is published survives kills, full disks and flipped bits; what is read is what was written."""

import errno
import hashlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from esac_mpi import record, set_up
from esac_mpi.config import Config, read_toml, updated
from esac_mpi.record import Refused, Run, Unreadable, Unsaved, digest, publish, read

ROOT = Path(__file__).parent.parent
CONFIG = Config()
PROVENANCE = {"ranks": 2, "hosts": "läufer1", "command": "python -m esac_mpi"}


class Ring:
    """A replay of two columns, the first of which is the transition's number."""

    def __init__(self, capacity):
        self.capacity, self.added = capacity, 0
        self.columns = {"number": np.zeros(capacity, np.int64), "observation": np.zeros((capacity, 3), np.float32)}

    def add(self, count):
        numbers = np.arange(self.added, self.added + count)
        self.restore(self.added, {"number": numbers, "observation": np.outer(numbers, [1, 2, 3]).astype(np.float32)})

    def rows(self, start, stop):
        assert max(0, self.added - self.capacity) <= start <= stop <= self.added
        return {name: column[np.arange(start, stop) % self.capacity] for name, column in self.columns.items()}

    def restore(self, start, rows):
        places = np.arange(start, start + len(rows["number"]))
        for name, column in self.columns.items():
            for place, value in zip(places, rows[name], strict=True):
                column[place % self.capacity] = value
        self.added = start + len(places)


@dataclass
class Theta:
    """A state of one array."""

    theta_es: np.ndarray


def begin(path, config=CONFIG, **options):
    return Run.begin(path, config, PROVENANCE, **options)


def state(generation):
    return {"theta_es": np.full(5, generation, np.float32), "generation": np.array(generation), "best.policy": np.array("sac")}


def row(generation, ranks=2):
    metrics = {"generation": generation, "fitness": np.arange(4.0) + generation, "sigma": 0.5}
    return metrics, {"wall_seconds": 2.0 * generation, "busy_seconds": np.full(ranks, 0.5)}


def grow(run, start, stop, ranks=2):
    for generation in range(start, stop):
        run.append(*row(generation, ranks))


def make(path, generations=3):
    """Leave a run with two checkpoints behind, at generations - 1 and generations."""
    run = begin(path)
    grow(run, 0, generations - 1)
    run.checkpoint(generations - 1, state(generations - 1), {"w": np.ones(2)})
    grow(run, generations - 1, generations)
    run.checkpoint(generations, state(generations), {"w": np.ones(2)})
    run.status("requeue", generations)
    run.close()


def snapshot(path):
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None) for p in sorted(path.rglob("*"))}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def child(code, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, **kwargs
    )


HOLD = """
import sys, time
from esac_mpi.config import Config
from esac_mpi.record import Run
run = Run.begin({path!r}, Config(), {{}})
print("held", flush=True)
time.sleep(60)
"""


# Files

ARRAYS = {
    "state/theta": np.linspace(0, 1, 300, dtype=np.float32),
    "empty": np.zeros((0, 17)),
    "scalar": np.array(7, np.int64),
    "flag": np.array(True),
    "big-endian": np.arange(3, dtype=">f8"),
    "name": np.array("läufe"),
    "names": np.array(["a", "bcd"]),
}


def test_round_trip(tmp_path):
    path = tmp_path / "x.h5"
    publish(path, ARRAYS, {"text": "ü", "none": "", "long": "x" * 100_000, "n": 3, "f": 1.5, "a": np.arange(2)})
    arrays, attributes = read(path)
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)
    assert attributes.pop("a").tolist() == [0, 1]
    assert attributes == {"text": "ü", "none": "", "long": "x" * 100_000, "n": 3, "f": 1.5}
    assert digest(arrays) == digest(ARRAYS)
    with h5py.File(path) as file:  # by plain h5py
        np.testing.assert_array_equal(file["state/theta"][:], ARRAYS["state/theta"])


def test_digest_tells_names_types_and_shapes_apart():
    zeros = np.zeros(4, np.float32)
    others = [{"a": zeros}, {"b": zeros}, {"a": zeros.reshape(2, 2)}, {"a": zeros.view(np.int32)}, {"a": zeros, "b": zeros[:0]}]
    assert len({digest(arrays) for arrays in others}) == len(others)
    assert digest({"a": np.arange(3, dtype=">i4")}) == digest({"a": np.arange(3, dtype="<i4")})
    assert digest({"a": np.eye(3)[:, 1]}) == digest({"a": np.array([0.0, 1.0, 0.0])})


def test_every_truncation_and_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "x.h5"
    publish(path, ARRAYS, {"n": 1})
    content = path.read_bytes()
    for length in range(0, len(content), 512):
        path.write_bytes(content[:length])
        with pytest.raises(Unreadable):
            read(path)
    choose = random.Random(0)
    for bit in [choose.randrange(8 * len(content)) for _ in range(250)] + [choose.randrange(8 * 512) for _ in range(50)]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
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


def failing(number=errno.ENOSPC):
    def call(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "x.h5"
    publish(path, {"a": np.ones(1)}, {})
    monkeypatch.setattr(os, call, failing())
    with pytest.raises(Unsaved, match=r"No space left.*needed [\d,]+ bytes, free [\d,]+ bytes"):
        publish(path, {"a": np.zeros(1)}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]
    assert read(path)[0]["a"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_full_disk(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("cannot mount here")
    try:
        path = tmp_path / "x.h5"
        publish(path, {"a": np.ones(60_000)}, {})
        with pytest.raises(Unsaved, match="No space left"):
            publish(path, {"a": np.zeros(100_000)}, {}, previous=True)
        assert [p.name for p in tmp_path.iterdir()] == ["x.h5"]
        assert read(path)[0]["a"].all()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("hard_links", [True, False])
def test_previous_is_kept(tmp_path, monkeypatch, hard_links):
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


def test_killed_while_publishing(tmp_path):
    path = tmp_path / "x.h5"
    code = f"""
import itertools, pathlib, numpy as np
from esac_mpi.record import publish
publish(pathlib.Path({str(path)!r}), {{"n": np.array(0)}}, {{}})
print("go", flush=True)
for n in itertools.count():
    publish(pathlib.Path({str(path)!r}), {{"n": np.array(n), "a": np.full(50_000, n)}}, {{}}, previous=True)
"""
    choose = random.Random(1)
    for _ in range(10):
        process = child(code)
        process.stdout.readline()
        time.sleep(choose.uniform(0.01, 0.15))
        process.kill()
        process.wait()
        process.stdout.close()
        current = read(path)[0]
        assert (current.get("a", current["n"]) == current["n"]).all()
        assert current["n"] == 0 or read(tmp_path / "x_prev.h5")[0]["n"] in (current["n"], current["n"] - 1)


def test_reading_while_a_run_publishes(tmp_path):
    make(tmp_path / "run", 2)
    code = f"""
import numpy as np
from esac_mpi.config import Config
from esac_mpi.record import Run
run = Run.begin({str(tmp_path / "run")!r}, Config(), {{}})
print("go", flush=True)
for g in range(2, 10_000):
    row = {{"generation": g, "fitness": np.arange(4.0) + g, "sigma": 0.5}}
    run.append(row, {{"wall_seconds": g, "busy_seconds": np.ones(2)}})
    run.publish_metrics(force=True)
"""
    process = child(code)
    process.stdout.readline()
    seen = []
    while len(set(seen)) < 5:
        with h5py.File(tmp_path / "run" / "metrics.h5") as file:
            seen.append(len(file["metrics/generation"]))
            np.testing.assert_array_equal(file["metrics/fitness"][:, 0], np.arange(seen[-1]))
        seen.append(len(Run.open(tmp_path / "run").columns["metrics/generation"]))
    process.kill()
    process.wait()
    process.stdout.close()
    assert seen == sorted(seen)


# A run, and going on with it


def test_new_run(tmp_path):
    path = tmp_path / "deep" / "run"
    run = begin(path)
    assert run.restored is None
    assert run.dropped == 0
    assert not run.complete
    assert run.wall_seconds == 0
    assert updated(Config(), read_toml(path / "config.toml")) == CONFIG
    assert (path / "run.lock").read_text().split()[:2] == [socket.gethostname(), str(os.getpid())]
    run.append(*row(0))
    run.publish_metrics(force=True)
    assert not (path / "metrics.h5").exists()  # not before a checkpoint
    run.close()
    again = begin(path)  # a job killed before its first checkpoint starts again
    assert again.restored is None
    again.close()


@pytest.mark.parametrize("name", ["läufe ü 中", "with spaces and 'quotes'", "x" * 250, "a" * 200 + "/" + "b" * 200])
def test_odd_paths(tmp_path, name):
    make(tmp_path / name)
    run = begin(tmp_path / name)
    assert run.restored.generation == 3
    run.close()


def test_going_on_gives_back_everything(tmp_path):
    make(tmp_path)
    before = Run.open(tmp_path)
    (tmp_path / "metrics.h5.tmp.123").write_text("left over")
    run = begin(tmp_path)
    assert not (tmp_path / "metrics.h5.tmp.123").exists()
    restored = run.restored
    assert (restored.generation, restored.source.name, restored.config) == (3, "checkpoint.h5", CONFIG)
    assert restored.attributes["hosts"] == "läufer1"
    assert restored.state["best.policy"] == "sac"
    assert restored.learner["w"].tolist() == [1, 1]
    np.testing.assert_array_equal(restored.state["theta_es"], np.full(5, 3, np.float32))
    assert run.tail.keys() == before.columns.keys()
    for name, column in run.tail.items():
        np.testing.assert_array_equal(column, before.columns[name])
    assert run.last_row("fit")["fitness"].tolist() == [2, 3, 4, 5]
    assert run.wall_seconds == 4
    run.close()


def test_rows_beyond_the_checkpoint_are_dropped_and_made_again(tmp_path):
    make(tmp_path)
    run = begin(tmp_path)
    grow(run, 3, 10)
    run.publish_metrics(force=True)
    straight = run.tail
    run.close()
    again = begin(tmp_path)
    assert again.dropped == 7
    assert len(again.tail["metrics/sigma"]) == 3
    grow(again, 3, 10)
    for name, column in again.tail.items():
        np.testing.assert_array_equal(column, straight[name])
    again.close()


def test_long_history(tmp_path):
    run = begin(tmp_path)
    grow(run, 0, 5000)
    run.checkpoint(5000, state(5000), {})
    run.close()
    history = Run.open(tmp_path).columns
    assert history["metrics/fitness"].shape == (5000, 4)
    np.testing.assert_array_equal(history["metrics/fitness"][:, 3], np.arange(5000) + 3)


def test_rows_must_agree_with_the_first(tmp_path):
    run = begin(tmp_path)
    metrics, timing = row(0)
    run.append(metrics, timing)
    for wrong in ({**metrics, "new": 1}, {"generation": 1}, {**metrics, "fitness": np.ones(5)}, {**metrics, "generation": 0.5}):
        with pytest.raises(ValueError, match="first row"):
            run.append(wrong, timing)
    with pytest.raises(ValueError, match="busy_seconds"):
        run.append(metrics, {"wall_seconds": 1.0})
    assert {len(column) for column in run.tail.values()} == {1}  # a refused row leaves nothing behind
    run.close()


def test_rank_count_may_change(tmp_path):
    run = begin(tmp_path)
    for generation, ranks in enumerate((2, 4, 1)):
        run.append(*row(generation, ranks))
    nan = np.nan
    np.testing.assert_array_equal(run.tail["timing/busy_seconds"], [[0.5, 0.5, nan, nan], [0.5] * 4, [0.5, nan, nan, nan]])
    run.close()


def test_final_lasts_until_a_row_is_added(tmp_path):
    make(tmp_path)
    run = begin(tmp_path)
    run.final({"evaluation_sac": np.array([7.0, 9.0])})
    run.status("complete", 3)
    run.close()
    assert Run.open(tmp_path).columns["final/evaluation_sac"].tolist() == [7, 9]
    assert not any("final" in name for name in read(tmp_path / "checkpoint.h5")[0])
    again = begin(tmp_path)
    assert again.complete
    again.checkpoint(3, state(3), {})
    assert "final/evaluation_sac" in Run.open(tmp_path).columns
    again.append(*row(3))
    again.checkpoint(4, state(4), {})
    assert "final/evaluation_sac" not in Run.open(tmp_path).columns
    again.close()


def test_checkpoint_hashes(tmp_path):
    run = begin(tmp_path)
    hashes = []
    for generation in (1, 1, 2):
        run.checkpoint(generation, state(generation), {"w": np.ones(2)})
        hashes.append([read(tmp_path / "checkpoint.h5")[1][name] for name in ("theta_sha256", "state_sha256")])
    assert hashes[0] == hashes[1]
    assert hashes[0][0] != hashes[2][0]
    assert hashes[0][1] != hashes[2][1]
    assert hashes[0][0] == hashlib.sha256(np.full(5, 1, "<f4").tobytes()).hexdigest()
    run.close()


def test_damaged_newest_checkpoint(tmp_path, caplog):
    make(tmp_path)
    flip(tmp_path / "checkpoint.h5")
    run = begin(tmp_path)
    assert run.restored.generation == 2
    assert run.restored.source.name == "checkpoint_prev.h5"
    assert "checkpoint.h5: damaged" in caplog.text
    assert "generation 2" in caplog.text
    assert run.dropped == 1
    grow(run, 2, 3)
    run.checkpoint(3, state(3), {})  # must not push the good one out by the bad one
    assert read(tmp_path / "checkpoint_prev.h5")[1]["generation"] == 2
    assert read(tmp_path / "checkpoint.h5")[1]["generation"] == 3
    run.close()


def test_no_readable_checkpoint(tmp_path):
    make(tmp_path)
    flip(tmp_path / "checkpoint.h5")
    flip(tmp_path / "checkpoint_prev.h5")
    before = snapshot(tmp_path)
    with pytest.raises(Unreadable, match=r"checkpoint\.h5: damaged.*checkpoint_prev\.h5: damaged"):
        begin(tmp_path)
    assert snapshot(tmp_path) == before
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        (tmp_path / name).unlink()
    with pytest.raises(Unreadable, match=r"metrics\.h5 is there, but no checkpoint"):
        begin(tmp_path)


def test_pending_arrays_are_in_the_checkpoint_and_in_no_hash(tmp_path):
    run = begin(tmp_path)
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    without = read(tmp_path / "checkpoint.h5")[1]["state_sha256"]
    pending = {"fitness": np.arange(4.0), "counters.env_steps": np.array(7), "name": np.array("läufe")}
    run.checkpoint(3, state(3), {}, pending=pending)  # the third row was not made
    run.checkpoint(2, state(2), {}, pending=pending)
    assert read(tmp_path / "checkpoint.h5")[1]["state_sha256"] == without
    run.checkpoint(3, state(3), {}, pending=pending)
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
    assert last.tail["metrics/generation"].tolist() == [0, 1, 2]
    last.close()


def test_pending_in_the_first_generation(tmp_path):
    run = begin(tmp_path)
    run.checkpoint(1, state(1), {}, pending={"fitness": np.zeros(4)})
    run.close()
    again = begin(tmp_path)
    assert again.tail == {}
    grow(again, 0, 2)
    again.checkpoint(2, state(2), {})
    assert Run.open(tmp_path).columns["metrics/generation"].tolist() == [0, 1]
    again.close()


def test_the_cost_of_a_checkpoint(tmp_path, short_segments):
    run, replay = begin(tmp_path), Ring(100)
    assert (run.checkpoint_seconds, run.checkpoint_bytes) == (0, 0)
    replay.add(95)
    run.checkpoint(1, state(1), {}, replay)
    files = [p for p in tmp_path.rglob("*.h5") if p.name != "checkpoint_prev.h5"]
    assert len(files) == 9 + 2
    assert run.checkpoint_bytes == sum(p.stat().st_size for p in files)
    start = time.monotonic()
    replay.add(5)  # one segment closes; nine need not be written again
    run.checkpoint(2, state(2), {}, replay)
    changed = ["checkpoint.h5", "metrics.h5", next((tmp_path / "replay").glob("segment-00000009-*"))]
    assert run.checkpoint_bytes == sum((tmp_path / p).stat().st_size for p in changed)
    assert 0 < run.checkpoint_seconds <= time.monotonic() - start
    run.close()


# Starts


def statuses(path):
    return json.loads((path / "status.json").read_text())


def test_starts_without_progress_are_counted(tmp_path):
    for number in (1, 2, 3):  # killed before the first checkpoint, and before any status of their own
        run = begin(tmp_path)
        assert (run.starts, statuses(tmp_path)["starts"], statuses(tmp_path)["since"]) == (number, number, 0)
        run.close()
    run = begin(tmp_path)
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    run.status("requeue", 2, best_return=7.5)
    assert (run.starts, statuses(tmp_path)["starts"], statuses(tmp_path)["since"]) == (4, 4, 0)
    run.close()
    for number in (1, 2):
        run = begin(tmp_path)
        assert (run.starts, statuses(tmp_path)["since"], statuses(tmp_path)["best_return"]) == (number, 2, 7.5)
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
    assert f"(host {socket.gethostname()}, pid {os.getpid()}, status of {when}): killed, out of memory" in run.died
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


@pytest.mark.parametrize("content", ["[1]", '{"status": 7, "starts": "x", "since": null}', "\xff", '{"status"', "[" * 5000])
def test_a_strange_status_file_is_no_obstacle(tmp_path, content):
    make(tmp_path)
    (tmp_path / "status.json").write_text(content, encoding="latin-1")
    run = begin(tmp_path)
    assert (run.starts, run.died, run.complete) == (1, "", False)
    run.close()
    assert statuses(tmp_path)["starts"] == 1


# Refusals


def test_other_settings_are_refused(tmp_path, caplog):
    make(tmp_path)
    before = snapshot(tmp_path)
    other = updated(CONFIG, {"esac.sigma": 0.5, "seed": 7, "budget.generations": 9})
    with pytest.raises(Refused) as refusal:
        begin(tmp_path, other)
    assert "esac.sigma: 0.005 -> 0.5" in str(refusal.value)
    assert "seed: 0 -> 7" in str(refusal.value)
    assert "budget" not in str(refusal.value)
    assert "--fresh" in str(refusal.value)
    assert snapshot(tmp_path) == before
    for name in ("checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"):
        (tmp_path / name).unlink()
    with pytest.raises(Refused, match="seed: 0 -> 7"):  # by config.toml
        begin(tmp_path, other)
    begin(tmp_path, updated(CONFIG, {"budget.generations": 9, "learner.device": "cpu"})).close()
    assert "learner.device was 'auto', is now 'cpu'" in caplog.text


def test_fresh_moves_the_old_run_aside(tmp_path):
    path = tmp_path / "run"
    for number in (1, 2):
        make(path)
        run = begin(path, updated(CONFIG, {"seed": number}), fresh=True)
        assert run.restored is None
        assert not (path / "checkpoint.h5").exists()
        assert Run.open(tmp_path / f"run.old-{number}").columns["metrics/generation"].tolist() == [0, 1, 2]
        run.close()
        (path / "config.toml").unlink()


def test_strange_directories_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    before = snapshot(tmp_path)
    for name, reason in (("file", "not a directory"), ("file/sub", "no permission"), ("mine", "not a run of esac_mpi")):
        for fresh in (False, True):
            with pytest.raises(Refused, match=reason):
                begin(tmp_path / name, fresh=fresh)
    with pytest.raises(Refused, match="not a run directory"):
        Run.open(tmp_path / "mine")
    assert snapshot(tmp_path) == before


def test_no_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(Refused, match="no permission to write"):
        begin(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_other_versions_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(record.files, "SCHEMA", 9)
    make(tmp_path)
    monkeypatch.undo()
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match="schema 9, written by another version"):
        begin(tmp_path)
    assert snapshot(tmp_path) == before


def test_a_locked_directory_is_refused_and_a_stale_lock_taken_over(tmp_path):
    process = child(HOLD.format(path=str(tmp_path)))
    assert process.stdout.readline() == "held\n"
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=f"host {socket.gethostname()}, pid {process.pid}"):
        begin(tmp_path)
    assert snapshot(tmp_path) == before
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    run = begin(tmp_path)
    assert (tmp_path / "run.lock").read_text().split()[1] == str(os.getpid())
    run.close()


def test_a_run_whose_directory_was_taken_stops_writing(tmp_path):
    run = begin(tmp_path)
    (tmp_path / "run.lock").write_text("another 1 now\n")  # as on a file system without locks
    with pytest.raises(Refused, match="another run has taken"):
        run.checkpoint(1, state(1), {})
    assert not (tmp_path / "checkpoint.h5").exists()
    run.close()


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(record.lock.fcntl, "lockf", failing(errno.ENOLCK))


def touched(path, ago):
    when = time.time() - ago
    os.utime(path / "run.lock", (when, when))


def test_without_locks_a_run_that_let_go_is_taken_at_once(tmp_path, no_locks, caplog):
    make(tmp_path)
    assert "no locks on this file system" in caplog.text
    assert (tmp_path / "run.lock").read_bytes().isspace()
    begin(tmp_path).close()
    assert "taken over" not in caplog.text


def test_without_locks_a_run_that_showed_life_is_refused(tmp_path, no_locks):
    make(tmp_path)
    (tmp_path / "run.lock").write_text("elsewhere 77 2026-01-01T00:00:00\n")
    touched(tmp_path, ago=590)
    before = snapshot(tmp_path)
    with pytest.raises(Refused, match=r"host elsewhere, pid 77, since 2026\S+, last sign of life 59\d s ago.*10 minutes"):
        begin(tmp_path)
    assert snapshot(tmp_path) == before
    assert not record.lock.is_free(tmp_path)


def test_without_locks_a_silent_run_is_taken_over(tmp_path, no_locks, caplog):
    make(tmp_path)
    (tmp_path / "run.lock").write_text("elsewhere 77 2026-01-01T00:00:00\n")
    touched(tmp_path, ago=610)
    assert record.lock.is_free(tmp_path)
    run = begin(tmp_path)
    assert "taken over from host elsewhere, pid 77: last sign of life 61" in caplog.text
    (tmp_path / "run.lock").write_text("elsewhere 78 2026-01-01T00:00:00\n")  # two at the same moment: the later one stays
    with pytest.raises(Refused, match="another run has taken"):
        run.status("running", 3)
    run.close()
    assert (tmp_path / "run.lock").read_text().split()[1] == "78"


def test_without_locks_a_dead_process_of_this_host_is_taken_over_at_once(tmp_path, no_locks, caplog):
    make(tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid, free in ((ended.pid, True), (os.getppid(), False)):
        (tmp_path / "run.lock").write_text(f"{socket.gethostname()} {pid} 2026-01-01T00:00:00\n")
        assert record.lock.is_free(tmp_path) == free
        if free:
            begin(tmp_path).close()
            assert f"taken over from host {socket.gethostname()}, pid {pid}" in caplog.text
        else:
            with pytest.raises(Refused, match="last sign of life 0 s ago"):
                begin(tmp_path)


def test_the_age_of_the_lock_is_told_by_the_file_server_not_by_this_host(tmp_path, no_locks, monkeypatch):
    make(tmp_path)
    (tmp_path / "run.lock").write_text("elsewhere 77 2026-01-01T00:00:00\n")
    monkeypatch.setattr(time, "time", lambda: 4e9)
    with pytest.raises(Refused, match="last sign of life"):
        begin(tmp_path)


def test_a_run_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("esac_mpi.record.lock.BEAT", 0.1)
    run = begin(tmp_path)
    for action in (run.beat, lambda: run.status("running", 1), lambda: time.sleep(1)):  # at each publication, and between
        touched(tmp_path, ago=1000)
        action()
        assert (tmp_path / "run.lock").stat().st_mtime > time.time() - 60
    run.close()
    touched(tmp_path, ago=1000)
    run.beat()  # does nothing
    time.sleep(0.3)
    assert (tmp_path / "run.lock").stat().st_mtime < time.time() - 900


def test_a_run_begun_afresh_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("esac_mpi.record.lock.BEAT", 0.05)
    make(tmp_path / "run")
    run = begin(tmp_path / "run", fresh=True)
    touched(tmp_path / "run", ago=1000)
    end = time.monotonic() + 20
    while (tmp_path / "run/run.lock").stat().st_mtime < time.time() - 900:
        assert time.monotonic() < end, "no sign of life"
        time.sleep(0.05)
    run.close()


def test_vanished_directory(tmp_path):
    run = begin(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "gone")
    with pytest.raises(Unsaved):
        run.checkpoint(1, state(1), {})
    run.status("running", 1)  # warns
    with pytest.raises(Unsaved):
        run.status("requeue", 1)
    assert not (tmp_path / "run").exists()
    run.close()


# Replay


@pytest.fixture
def short_segments(monkeypatch):
    monkeypatch.setattr(record.replays, "SEGMENT", 10)


def save(run, replay, generation):
    run.checkpoint(generation, state(generation), {}, replay)
    return read(run.path / "checkpoint.h5")[1]["state_sha256"]


@pytest.mark.parametrize("added", [[0], [4], [10], [25, 7, 9, 1], [25, 33], [50, 50, 3], [230], [9, 45, 6]])
def test_replay_comes_back(tmp_path, short_segments, added):
    run, replay = begin(tmp_path), Ring(40)
    for generation, count in enumerate(added):
        replay.add(count)
        saved = save(run, replay, generation)
    run.close()
    again, restored = begin(tmp_path), Ring(40)
    again.restore_replay(restored)
    assert restored.added == replay.added
    for name in replay.columns:
        np.testing.assert_array_equal(restored.columns[name], replay.columns[name])
    assert save(again, restored, len(added) - 1) == saved
    again.close()


def test_state_hash_does_not_depend_on_when_checkpoints_were_made(tmp_path, short_segments):
    hashes = set()
    for name, stops in {"often": range(1, 108, 3), "seldom": (55, 107), "once": (107,)}.items():
        run, replay = begin(tmp_path / name), Ring(40)
        for stop in [*stops, 107]:
            replay.add(stop - replay.added)
            saved = save(run, replay, 1)
        hashes.add(saved)
        run.close()
    assert len(hashes) == 1


def test_unneeded_segments_are_deleted(tmp_path, short_segments):
    run, replay = begin(tmp_path), Ring(40)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "segment-00000009-abcdef01.h5").write_text("of a checkpoint that was never renamed")

    def indices():
        return sorted(int(p.name.split("-")[1]) for p in (tmp_path / "replay").iterdir())

    replay.add(35)
    save(run, replay, 1)
    assert indices() == [0, 1, 2]
    written = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "replay").iterdir()}
    replay.add(27)  # 62: the ring holds 22 .. 62
    save(run, replay, 2)
    assert indices() == [0, 1, 2, 3, 4, 5]  # the previous checkpoint names 0, 1, 2
    assert all((tmp_path / "replay" / name).stat().st_mtime_ns == when for name, when in written.items())
    save(run, replay, 3)
    assert indices() == [2, 3, 4, 5]
    run.close()


def test_segments_of_a_checkpoint_whose_name_was_not_confirmed_are_kept(tmp_path, short_segments, monkeypatch):
    run, replay = begin(tmp_path), Ring(40)
    replay.add(35)
    save(run, replay, 1)
    replay.add(27)
    monkeypatch.setattr(record.files, "_sync_directory", fails_after(record.files._sync_directory, 3))  # closed: 3, 4 and 5
    with pytest.raises(Unsaved):
        save(run, replay, 2)
    monkeypatch.undo()
    monkeypatch.setattr(record.replays, "SEGMENT", 10)
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint.h5").generation == 2  # renamed before that
    replay.add(40)
    save(run, replay, 3)
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint_prev.h5").generation == 2
    run.close()


def fails_after(action, count):
    """Return the action, failing once after so many times."""
    calls = itertools.count()

    def call(*arguments):
        if next(calls) == count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return action(*arguments)

    return call


def test_damaged_segment_falls_back(tmp_path, short_segments, caplog):
    run, replay = begin(tmp_path), Ring(100)
    replay.add(15)
    save(run, replay, 1)
    replay.add(10)
    save(run, replay, 2)
    run.close()
    flip(next((tmp_path / "replay").glob("segment-00000001-*")))
    again, restored = begin(tmp_path), Ring(100)
    again.restore_replay(restored)  # which reads the segment, and finds it
    assert (again.restored.generation, again.restored.source.name) == (1, "checkpoint_prev.h5")
    assert "segment-00000001" in caplog.text
    assert "going on from" in caplog.text
    np.testing.assert_array_equal(restored.columns["number"][:15], np.arange(15))
    assert restored.added == 15
    replay.added = 15
    save(again, restored, 2)  # must not push the good one out by the bad one
    assert record.checkpoints.read_checkpoint(tmp_path / "checkpoint_prev.h5").generation == 1
    again.close()


def test_a_damaged_segment_of_the_first_full_replay_leaves_an_empty_one(tmp_path, short_segments):
    run, replay = begin(tmp_path), Ring(100)
    save(run, replay, 0)
    replay.add(25)
    save(run, replay, 1)
    run.close()
    flip(next((tmp_path / "replay").glob("segment-00000001-*")))
    again, restored = begin(tmp_path), Ring(100)
    again.restore_replay(restored)
    assert (again.restored.generation, restored.added) == (0, 0)
    again.close()


def test_a_replay_that_is_damaged_in_both_checkpoints_is_unreadable(tmp_path, short_segments):
    run, replay = begin(tmp_path), Ring(100)
    replay.add(15)
    for generation in (1, 2):
        save(run, replay, generation)
    run.close()
    flip(next((tmp_path / "replay").glob("segment-00000000-*")))
    again = begin(tmp_path)
    with pytest.raises(Unreadable, match="segment-00000000"):
        again.restore_replay(Ring(100))
    again.close()
    next((tmp_path / "replay").glob("segment-00000000-*")).unlink()
    with pytest.raises(Unreadable, match=r"no readable checkpoint: .*segment-00000000"):  # seen without reading any
        begin(tmp_path)


def test_a_resume_reads_each_segment_once(tmp_path, short_segments, monkeypatch):
    run, replay = begin(tmp_path), Ring(40)
    replay.add(35)
    save(run, replay, 1)
    run.close()
    seen, verify = [], record.files.verify
    monkeypatch.setattr(record.files, "verify", lambda path, *rest: seen.append(path.name) or verify(path, *rest))
    again = begin(tmp_path)
    again.restore_replay(Ring(40))
    again.close()
    assert sorted(name for name in seen if name.startswith("segment")) == sorted(os.listdir(tmp_path / "replay"))


def test_state_and_learner_are_those_of_the_checkpoint_that_the_replay_is_of(tmp_path, short_segments):
    run, replay = begin(tmp_path), Ring(100)
    for generation, count in ((1, 15), (2, 10)):
        replay.add(count)
        run.checkpoint(generation, {"theta_es": np.full(2, generation, np.float32)}, {"w": np.array(generation)}, replay)
    run.close()
    flip(next((tmp_path / "replay").glob("segment-00000001-*")))
    loaded = []
    learner = SimpleNamespace(replay=Ring(100), load=lambda saved: loaded.append(int(saved["w"])))
    job = SimpleNamespace(run=begin(tmp_path), learner=learner, state=Theta(np.zeros(2, np.float32)), unevaluated=None)
    set_up.restore(job)
    assert (job.state.theta_es.tolist(), loaded, learner.replay.added) == ([1, 1], [1], 15)
    job.run.close()


# Status and reading


def test_status(tmp_path):
    make(tmp_path)
    run = begin(tmp_path)
    run.status("running", 5, best_return=float("nan"), env_steps={"population": np.int64(4)}, final_return=np.float32(2))
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
    assert json.loads((tmp_path / "status.json").read_text())["state_sha256"] == run.restored.attributes["state_sha256"]
    run.close()


def test_open_reads_what_is_there(tmp_path):
    run = begin(tmp_path, replace(CONFIG, seed=3))
    early = Run.open(tmp_path)
    assert early.config.seed == 3
    assert early.columns == {}
    assert early.status["status"] == "running"
    grow(run, 0, 2)
    run.checkpoint(2, state(2), {})
    run.status("running", 2)
    run.close()
    whole = Run.open(tmp_path)
    assert whole.provenance["ranks"] == 2
    assert whole.provenance["checkpoint_generation"] == 2
    assert whole.state == "running"
    (tmp_path / "metrics.h5").unlink()
    assert Run.open(tmp_path).columns.keys() == whole.columns.keys()


def test_a_killed_run_is_dead(tmp_path):
    code = HOLD.format(path=str(tmp_path)).replace('print("held"', 'run.status("running", 0); print("held"')
    process = child(code)
    process.stdout.readline()
    assert Run.open(tmp_path).state == "running"
    process.kill()
    process.wait()
    process.stdout.close()
    assert Run.open(tmp_path).state == "dead"


def test_reading_does_not_disturb_the_lock(tmp_path):
    process = child(HOLD.format(path=str(tmp_path)))
    process.stdout.readline()
    Run.open(tmp_path).state  # noqa: B018
    with pytest.raises(Refused):
        begin(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()


def test_policy(tmp_path):
    run = begin(tmp_path)
    run.save_policy(np.arange(3, dtype=np.float32), {"sizes": np.array([1, 1]), "task": "CyclicMDP-v0", "episodic_return": 2.5})
    arrays, attributes = read(tmp_path / "policy.h5")
    assert arrays["theta"].tolist() == [0, 1, 2]
    assert attributes["task"] == "CyclicMDP-v0"
    assert attributes["sizes"].tolist() == [1, 1]
    run.close()
