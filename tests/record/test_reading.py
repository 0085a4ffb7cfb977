"""Runs read for analysis: in progress, killed, copied, older, damaged."""

import fcntl
import os
import pickle
import shutil
import sys

import numpy as np
import pytest
from short_runs import elsewhere, flip, make, row, save

from esac_mpi import record
from esac_mpi.config import Config, ConfigError, amend, read_toml
from esac_mpi.record import Refused, Run, Unreadable


@pytest.fixture
def evaluated(tmp_path, begin):
    run = begin(tmp_path, amend(Config(), {"seed": 5}))
    save(run, 3)
    run.final({"generation": np.array(3), "evaluation_sac": np.array([7.0, 9.0])})
    return run


def test_history_is_a_table_of_the_scalars(tmp_path, evaluated, monkeypatch):
    frame = Run.open(tmp_path).history
    assert (frame.index.name, frame.index.tolist()) == ("generation", [0, 1, 2])
    # not the members, nor what is under final/
    assert sorted(frame.columns) == ["sigma", "timing/wall_seconds"]
    assert frame["sigma"].tolist() == [0, 0.1, 0.2]
    assert frame.loc[2, "timing/wall_seconds"] == 4.0
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = Run.open(tmp_path)
    with pytest.raises(ImportError, match=r"pip install -c constraints\.txt -e '\.\[analysis\]'"):
        run.history  # noqa: B018
    assert run.columns["metrics/sigma"][-1] == 0.2


def test_columns_are_all_arrays(tmp_path, evaluated):
    run = Run.open(tmp_path)
    names = {f"metrics/{name}" for name in ("generation", "sigma", "fitness")}
    names |= {"timing/wall_seconds", "timing/busy_seconds"}
    assert set(run.columns) == names | {"final/generation", "final/evaluation_sac"}
    assert len(run.columns) == 7
    assert run.columns["final/evaluation_sac"].tolist() == [7, 9]
    assert run.columns.get("metrics/winners") is None
    assert (run.provenance["ranks"], run.config.seed) == (2, 5)


def test_members_are_read_only_when_asked_for(tmp_path, monkeypatch):
    make(tmp_path)
    asked, array_of = [], record.files.array_of
    monkeypatch.setattr(
        record.files, "array_of", lambda file, name: asked.append(name) or array_of(file, name)
    )
    run = Run.open(tmp_path)
    assert "metrics/fitness" in run.columns
    assert run.columns.keys() == Run.open(tmp_path).columns.keys()
    assert asked == []
    assert run.members("fitness").tolist() == [[g + i for i in range(4)] for g in range(3)]
    assert asked == ["metrics/fitness"]
    run.columns["metrics/sigma"], run.columns["timing/wall_seconds"]
    # small ones together, once
    assert sorted(asked[1:]) == ["metrics/generation", "metrics/sigma", "timing/wall_seconds"]


def test_what_is_missing_is_named_with_file_and_schema(tmp_path):
    make(tmp_path)
    run = Run.open(tmp_path)
    with pytest.raises(KeyError, match=r"metrics\.h5 \(schema 3\): no metrics/length_cap; it has "):
        run.columns["metrics/length_cap"]
    with pytest.raises(KeyError, match=r"metrics\.h5 \(schema 3\): no metrics/length;"):
        run.members("length")
    with pytest.raises(KeyError, match="those with more are metrics/fitness"):
        run.members("sigma")


def goes_on(run):
    run.append(*row(3))
    run.publish_metrics(force=True)


def test_a_run_that_goes_on_keeps_the_rows_it_was_opened_with(tmp_path, begin):
    run = begin(tmp_path)
    save(run, 3)
    opened = Run.open(tmp_path)
    goes_on(run)
    assert opened.members("fitness").tolist()[-1] == [2, 3, 4, 5]
    assert len(opened.history) == opened.generation == 3
    assert len(Run.open(tmp_path).history) == 4
    flip(tmp_path / "metrics.h5")
    # what is published anew is verified anew
    with pytest.raises(Unreadable, match="its sha256 differs"):
        opened.members("fitness")


def test_going_on_after_the_end_loses_the_final_evaluation_alone(tmp_path, evaluated):
    opened = Run.open(tmp_path)
    goes_on(evaluated)
    assert opened.history["sigma"].tolist() == [0, 0.1, 0.2]
    with pytest.raises(Unreadable, match="open it again"):
        opened.columns["final/evaluation_sac"]


def test_a_run_that_went_back_must_be_opened_again(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", 2)
    opened = Run.open(tmp_path / "a")
    shutil.copy(tmp_path / "b/metrics.h5", tmp_path / "a/metrics.h5")
    with pytest.raises(Unreadable, match="open it again"):
        opened.history  # noqa: B018
    (tmp_path / "a/metrics.h5").unlink()
    with pytest.raises(Unreadable, match="No such file"):
        opened.members("fitness")


def test_a_run_that_has_published_nothing_is_open_and_empty(tmp_path):
    Run.begin(tmp_path, amend(Config(), {"seed": 3}), {}).close()
    run = Run.open(tmp_path)
    assert (run.config.seed, run.status["status"], dict(run.columns)) == (3, "running", {})
    found = run.generation, run.provenance, run.policy, run.newest(), len(run.history)
    assert found == (0, {}, None, None, 0)
    with pytest.raises(KeyError, match="has published nothing"):
        run.columns["metrics/sigma"]


def test_a_read_only_copy_is_read_without_a_trace(tmp_path):
    path = tmp_path / "a"
    make(path)
    for file in [*path.iterdir(), path]:
        file.chmod(0o555 if file.is_dir() else 0o444)
    before = sorted((file.name, file.stat().st_mtime_ns) for file in path.iterdir())
    run = Run.open(path)
    assert len(run.history) == 3
    assert run.members("fitness").shape == (3, 4)
    assert (run.state, run.newest().generation) == ("requeue", 3)
    assert before == sorted((file.name, file.stat().st_mtime_ns) for file in path.iterdir())
    path.chmod(0o755)


PIPES = ["run.lock", "metrics.h5", "checkpoint.h5", "policy.h5", "config.toml", "status.json"]


@pytest.mark.parametrize("kind", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", PIPES)
def test_what_may_have_no_end_is_not_read(tmp_path, kind, name):
    """A pipe or a device in place of a file: all else is read as without it."""
    make(tmp_path, 3, 3)
    file = tmp_path / name
    file.unlink(missing_ok=True)
    kind(file)
    run = Run.open(tmp_path)
    assert len(run.history) == run.newest().generation == 3
    assert run.state == ("unknown" if name == "status.json" else "requeue")
    assert run.columns.source.name == ("checkpoint.h5" if name == "metrics.h5" else "metrics.h5")
    if name == "policy.h5":
        with pytest.raises(Unreadable, match=r"policy\.h5: a pipe or a device, not a file"):
            run.policy  # noqa: B018
    if name == "config.toml":
        with pytest.raises(ConfigError, match=r"config\.toml: a pipe or a device, not a file"):
            read_toml(file)


def test_an_open_run_is_the_same_after_a_change_of_directory(tmp_path, monkeypatch):
    """Also where another run has that name in the new one."""
    for place in ("one", "other"):
        make(tmp_path / place / "run", 3 + len(place) % 2)
    monkeypatch.chdir(tmp_path / "one")
    run, sent = Run.open("run"), pickle.dumps(Run.open("run"))
    monkeypatch.chdir(tmp_path / "other")
    for opened in (run, pickle.loads(sent)):
        assert len(opened.members("fitness")) == len(opened.history) == 4
        assert opened.newest().generation == 4


LOCKED = """
import fcntl, time
files = [open(path, "rb+") for path in {files}]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_EX)  # HDF5's own kind of lock
print("held", flush=True)
time.sleep(600)
"""


def test_files_locked_by_their_writer_are_read(tmp_path):
    make(tmp_path)
    files = [str(tmp_path / name) for name in ("metrics.h5", "checkpoint.h5", "run.lock")]
    with elsewhere(LOCKED.format(files=files)):
        with open(files[0], "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        run = Run.open(tmp_path)
        assert run.members("fitness").shape == (3, 4)
        assert run.newest().generation == 3


def test_bad_directories_are_named(tmp_path):
    make(tmp_path / "runs/one")
    (tmp_path / "runs/jobs.txt").touch()
    for place, told in (
        ("nowhere", "no such directory"),
        ("runs/one/policy.h5", "no such directory"),
        ("runs/one/metrics.h5", f"not a run directory of esac_mpi, but {tmp_path}/runs/one is one"),
        ("runs", f"not a run directory of esac_mpi; it holds 1: {tmp_path}/runs/*/"),
        (".", "not a run directory of esac_mpi"),
        ("runs/jobs.txt",
         "not a run directory of esac_mpi, but a file; */ in place of * takes directories alone"),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            Run.open(tmp_path / place)
        assert str(refused.value) == f"{tmp_path / place}: {told}"
    make(tmp_path / "short")
    for file in (tmp_path / "short").glob("*.h5"):
        os.truncate(file, 300)
    with pytest.raises(Unreadable, match=r"metrics\.h5: its first 512 bytes are damaged; .*check"):
        Run.open(tmp_path / "short")
