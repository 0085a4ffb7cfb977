"""The whole program where disk, directory or output fail it, and each call of the publisher."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import CYCLIC_ES, EAGER, PATIENCE, ROOT, SMALL_ES, finish, run
from whole_runs import assert_same_run, ended, rows_published, science, summary, wait_for

from esac_mpi.record import read
from esac_mpi.record.checkpoints import read_checkpoint

pytestmark = pytest.mark.slow


@contextmanager
def mounted(path: Path, *options: object):
    """Mount something on `path`, or skip the test where that is not allowed."""
    path.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *map(str, options), path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


LOST = re.compile(r"No space left on device; needed [\d,]+ bytes, free [\d,]+ bytes")
HUNDRED = ["--budget.generations", 100]


@pytest.fixture
def slow(tmp_path_factory, monkeypatch):
    """The file that says how slow SLOW_ES is: a run lasts until a test lets it end."""
    path = tmp_path_factory.mktemp("slow") / "seconds"
    monkeypatch.setenv("PACE", str(path))
    return path


SLOW_ES = ["--task.id", "own_envs:Paced-v0", *SMALL_ES]


# Every call of the publisher


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """What tests/support/crash_points.py found."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler for the shim")
    shim = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", shim, ROOT / "tests/support/shim.c"], check=True
    )
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        line = [sys.executable, ROOT / "tests/support/crash_points.py", shim, place]
        return json.loads(finish(line, LD_PRELOAD=str(shim)).stdout)


def test_any_call_may_be_the_last_one_or_fail(points):
    assert points["problems"] == []
    assert sum(points["seen"].values()) > 100
    pairs = [(2, 1), (2, 2), (3, 2), (3, 3)]
    expected = {f"checkpoint {newest}, previous {before}" for newest, before in pairs}
    assert {found[:24] for found in points["seen"]} == expected


def test_files_are_on_the_disk_before_they_get_their_names(points):
    """A kill leaves the system's memory as it is; a power cut needs this order."""
    calls = [re.sub(r"\.tmp\.\d+", ".tmp", call).split(" ") for call in points["calls"]]
    renamed = [
        (i, path)
        for i, (name, path) in enumerate(calls)
        if name == "rename" and "_prev" not in path
    ]
    assert [Path(path).name.split("-")[0] for _, path in renamed] == [
        "status.json", "segment", "segment", "checkpoint.h5", "metrics.h5", "policy.h5",
        "status.json"
    ]  # fmt: skip
    for i, path in renamed:
        of_file = [name for name, where in calls[:i] if where == f"{path}.tmp"]
        assert of_file[-1] == "fsync"
        assert "write" in of_file
        folder = path.rpartition("/")[0]
        assert calls[i + 1 : i + 3] == [["open", folder], ["fsync", folder]]


# The disk


def fill(disk: Path) -> Path:
    """Write a file until nothing fits; return it."""
    with open(disk / "theirs", "wb", buffering=0) as theirs, suppress(OSError):
        while theirs.write(bytes(1024)):
            pass
    return disk / "theirs"


def test_a_full_disk_is_survived_and_the_run_goes_on(tmp_path, start, alone, slow):
    alone(*SLOW_ES, *HUNDRED, "--run-dir", tmp_path / "straight")
    slow.write_text("0.05")
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "tmpfs") as disk:
        process = start(2, *SLOW_ES, *HUNDRED, "--run-dir", disk / "run", program=EAGER)
        wait_for(lambda: rows_published(disk / "run") >= 6)
        theirs = fill(disk)
        saved = read(disk / "run/checkpoint.h5")[1]["generation"]
        assert any(LOST.search(line) for line in process.stdout)
        kept = read_checkpoint(disk / "run/checkpoint.h5")  # sound
        theirs.unlink()
        slow.unlink()
        ended(process, 0)
        assert kept.generation >= saved
        assert_same_run(tmp_path / "straight", disk / "run")


def test_a_disk_that_stays_full_ends_with_74(tmp_path, alone, together):
    line = [*CYCLIC_ES, "--run-dir", tmp_path / "disk/run", "--budget.generations"]
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=400k", "tmpfs") as disk:
        alone(*line, 5)
        before = science(disk / "run")
        theirs = fill(disk)
        done = together(2, *line, 12, code=74)
        assert "Traceback" not in done.stderr
        assert LOST.search(done.stdout + done.stderr)
        assert read_checkpoint(disk / "run/checkpoint.h5").generation == 5
        assert summary(disk / "run")["status"] != "complete"  # as it was
        theirs.unlink()
        alone(*line, 12)
        for name, rows in science(disk / "run").items():
            np.testing.assert_array_equal(rows[:5], before[name], err_msg=name)
        assert len(rows) == 12


def test_a_read_only_directory_is_refused_before_any_evaluation(tmp_path, together):
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "ro", "--bind", tmp_path / "disk") as place:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        done = together(2, *CYCLIC_ES, *HUNDRED, "--run-dir", place / "run", code=2)
    assert done.stderr.count("no permission to write in") == 1
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "disk").iterdir())


def under_way(start, slow, path, generations=100):
    """Start a slow run, and return when it has published some rows."""
    slow.write_text("0.05")
    line = [*SLOW_ES, "--budget.generations", generations, "--run-dir", path]
    process = start(2, *line, program=EAGER)
    wait_for(lambda: rows_published(path) >= 2)
    return process


def test_a_directory_removed_in_mid_run_ends_with_74(tmp_path, start, slow):
    process = under_way(start, slow, tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    slow.unlink()
    output, errors = ended(process, 74)
    assert "Traceback" not in errors
    assert "No such file or directory" in output + errors
    assert not list(tmp_path.iterdir())


# Readers, names, outputs


def test_a_notebook_may_hold_the_files_open(tmp_path, start, slow):
    process = under_way(start, slow, tmp_path / "run", 40)
    files = [h5py.File(tmp_path / f"run/{name}.h5", "r") for name in ("metrics", "checkpoint")]
    with files[0] as metrics, files[1] as checkpoint:
        seen = len(metrics["metrics/generation"])
        slow.unlink()
        _, errors = ended(process, 0)
        assert "fail" not in errors.lower()
        # what was opened stays what it was
        assert metrics["metrics/generation"][:].tolist() == list(range(1, seen + 1))
        assert checkpoint.attrs["generation"] < 40
    assert len(science(tmp_path / "run")["metrics/generation"]) == 40


def test_odd_paths(tmp_path, monkeypatch):
    name = f"läufe ü 中 $HOME; 'x' \"y\"/{'x' * 200}/{'y' * 200}"
    monkeypatch.setenv("LC_ALL", "C")
    for generations in (2, 4):
        done = run(2, *CYCLIC_ES, "--budget.generations", generations, "--run-dir", tmp_path / name)
        assert "Traceback" not in done.stderr
    assert "resumed at generation 2" in done.stdout
    assert summary(tmp_path / name)["status"] == "complete"
    assert len(science(tmp_path / name)["metrics/generation"]) == 4


@pytest.mark.parametrize("ranks", [0, 2])
def test_output_that_is_closed_stops_no_run(tmp_path, ranks, start, together):
    """MPICH's mpirun is killed by the signal of the closed pipe, and takes its ranks with it.

    Nothing of ours is asked: the same command goes on. Without a launcher the run itself does.
    """
    path, often = tmp_path / "run", ["--display.every_seconds", 0.01]
    line = [*CYCLIC_ES, *often, "--budget.generations", 30, "--run-dir", path]
    process = start(ranks, *line)
    assert process.stdout.readline().startswith("esac_mpi: es on CyclicMDP-v0")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait(PATIENCE) == 0 or ranks
    wait_for(lambda: summary(path)["status"] in ("dead", "complete"))
    if ranks:
        together(2, *line)
    assert summary(path)["status"] == "complete"
    assert "finished at generation 30" in (path / "log.txt").read_text()
    assert science(path)["metrics/generation"].tolist() == list(range(1, 31))
