"""Runs read for analysis: in progress, killed, copied, older, damaged; and docs/hdf5.md against fresh runs of every algorithm."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from conftest import LEARNER, PHASES, POPULATION, ROOT, ROUTINE, STRATEGY, TASK, environment

from esac_mpi import record
from esac_mpi.config import Config, updated
from esac_mpi.record import Refused, Run, Unreadable, reading

ALGORITHMS = ("esac", "es", "sac", "td3", "ddpg", "ppo")
PROGRAM = """
import json, sys
from esac_mpi import __main__, record
record.replays.SEGMENT, record.history.SEGMENT_BYTES = 40, 1  # so that short runs close segments
for argv in json.loads(sys.argv[1]):
    if code := __main__.main(argv):
        sys.exit(code)
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Runs of 7 generations whose options make every dataset there is, by algorithm."""
    path = tmp_path_factory.mktemp("fresh")
    more = {
        "esac": [*POPULATION, *PHASES, *LEARNER, "--sac.value_network", "true", "--sac.automatic_temperature", "true"],
        "es": [*STRATEGY, "--es.observation_normalisation", "true"],
        "sac": [*LEARNER, "--sac.steps_per_generation", 20, "--sac.value_network", "true", "--sac.automatic_temperature", "true"],
    }
    for name in ("td3", "ddpg"):
        table = {"steps_per_generation": 20, "start_steps": 20, "batch_size": 16, "replay_capacity": 200}
        more[name] = [token for key, value in table.items() for token in (f"--{name}.{key}", value)]
    more["ppo"] = ["--ppo.steps_per_generation", 20, "--ppo.batch_size", 8]
    common = [*TASK, *ROUTINE, "--budget.generations", 7]
    lines = [[*common, "--algorithm", name, "--run-dir", path / name, *more[name]] for name in ALGORITHMS]
    arguments = json.dumps([list(map(str, line)) for line in lines])
    line = [sys.executable, "-c", PROGRAM, arguments]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return path


def make(path, generations=3, **final):
    """Leave a run behind: fitness [g, i] = 10 g + i, sigma = g / 10, a second a generation."""
    run = Run.begin(path, updated(Config(), {"seed": 5}), {"ranks": 2, "versions": "numpy 2.4.6"})
    for g in range(1, generations + 1):
        run.append({"generation": g, "sigma": g / 10, "fitness": 10.0 * g + np.arange(4)}, {"wall_seconds": float(g)})
    run.checkpoint(generations, {"theta_es": np.arange(3, dtype=np.float32)}, {})
    if final:
        run.final(final)
    run.status("requeue", generations)
    return run


def damage(path, keep=-600):
    path.write_bytes(path.read_bytes()[:keep])


def test_history_is_a_table_of_the_scalars(tmp_path):
    make(tmp_path, generation=np.array(3)).close()
    frame = Run.open(tmp_path).history
    assert frame.index.name == "generation"
    assert frame.index.tolist() == [1, 2, 3]
    assert sorted(frame.columns) == ["sigma", "timing/wall_seconds"]  # not the members, nor what is under final/
    assert frame["sigma"].tolist() == [0.1, 0.2, 0.3]
    assert frame.loc[2, "timing/wall_seconds"] == 2.0


def test_columns_are_all_arrays(tmp_path):
    make(tmp_path, evaluation_sac=np.array([7.0, 9.0])).close()
    run = Run.open(tmp_path)
    names = {"metrics/generation", "metrics/sigma", "metrics/fitness", "timing/wall_seconds", "final/evaluation_sac"}
    assert set(run.columns) == names
    assert len(run.columns) == 5
    assert run.columns["final/evaluation_sac"].tolist() == [7, 9]
    assert run.columns.get("metrics/winners") is None
    assert run.provenance["ranks"] == 2
    assert run.config.seed == 5


def test_members_are_read_only_when_asked_for(tmp_path, monkeypatch):
    make(tmp_path).close()
    asked = []
    array_of = record.files.array_of
    monkeypatch.setattr(record.files, "array_of", lambda file, name, rows=(): asked.append(name) or array_of(file, name, rows))
    run = Run.open(tmp_path)
    assert "metrics/fitness" in run.columns
    assert run.columns.keys() == Run.open(tmp_path).columns.keys()
    assert asked == []
    assert run.members("fitness").tolist() == [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]
    assert asked == ["metrics/fitness"]
    run.columns["metrics/sigma"], run.columns["timing/wall_seconds"]
    assert "metrics/fitness" not in asked[1:]
    assert sorted(asked[1:]) == ["metrics/generation", "metrics/sigma", "timing/wall_seconds"]  # small ones together, once


def test_what_is_missing_is_named_with_file_and_schema(tmp_path):
    make(tmp_path).close()
    run = Run.open(tmp_path)
    with pytest.raises(KeyError, match=r"metrics\.h5 \(schema 3\): no metrics/length_cap; it has .*metrics/sigma"):
        run.columns["metrics/length_cap"]
    with pytest.raises(KeyError, match=r"metrics\.h5 \(schema 3\): no metrics/length;"):
        run.members("length")
    with pytest.raises(KeyError, match="sigma is one number a generation; those with more are metrics/fitness"):
        run.members("sigma")


def test_a_run_without_pandas_still_has_columns(tmp_path, monkeypatch):
    make(tmp_path).close()
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = Run.open(tmp_path)
    with pytest.raises(ImportError, match=r"pip install esac_mpi\[analysis\]"):
        run.history  # noqa: B018
    assert run.columns["metrics/sigma"][-1] == 0.3


def test_a_run_that_goes_on_keeps_the_rows_it_was_opened_with(tmp_path, monkeypatch):
    monkeypatch.setattr(record.run, "PUBLISH_EVERY", 0.0)
    run = make(tmp_path)
    opened = Run.open(tmp_path)
    run.append({"generation": 4, "sigma": 0.4, "fitness": np.zeros(4)}, {"wall_seconds": 4.0})
    run.publish_metrics()
    assert opened.members("fitness").tolist()[-1] == [30, 31, 32, 33]
    assert len(opened.history) == opened.generation == 3
    assert len(Run.open(tmp_path).history) == 4
    run.close()
    content = bytearray((tmp_path / "metrics.h5").read_bytes())
    content[content.rindex(np.float64(31).tobytes())] ^= 1
    (tmp_path / "metrics.h5").write_bytes(content)
    with pytest.raises(Unreadable, match="its sha256 differs"):  # what is published anew is verified anew
        opened.members("fitness")


def test_a_run_that_goes_on_after_its_end_loses_its_final_evaluation_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(record.run, "PUBLISH_EVERY", 0.0)
    run = make(tmp_path, evaluation_sac=np.array([7.0, 9.0]))
    opened = Run.open(tmp_path)
    run.append({"generation": 4, "sigma": 0.4, "fitness": np.zeros(4)}, {"wall_seconds": 4.0})
    run.publish_metrics()
    assert opened.history["sigma"].tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(Unreadable, match="open it again"):
        opened.columns["final/evaluation_sac"]
    run.close()


def test_a_run_that_went_back_must_be_opened_again(tmp_path):
    make(tmp_path / "a").close()
    make(tmp_path / "b", generations=2).close()
    opened = Run.open(tmp_path / "a")
    shutil.copy(tmp_path / "b/metrics.h5", tmp_path / "a/metrics.h5")
    with pytest.raises(Unreadable, match="open it again"):
        opened.history  # noqa: B018
    (tmp_path / "a/metrics.h5").unlink()
    with pytest.raises(Unreadable, match="No such file"):
        opened.members("fitness")


@pytest.mark.parametrize("source", ["metrics.h5", "checkpoint.h5", "checkpoint_prev.h5"])
def test_the_history_comes_from_the_newest_sound_file(tmp_path, caplog, source):
    run = make(tmp_path)
    run.checkpoint(3, {"theta_es": np.zeros(3, np.float32)}, {})
    run.close()
    names = ["metrics.h5", "checkpoint.h5", "checkpoint_prev.h5"]
    for name in names[: names.index(source)]:
        damage(tmp_path / name)
    opened = Run.open(tmp_path)
    assert opened.columns.source == tmp_path / source
    assert opened.history["sigma"].tolist() == [0.1, 0.2, 0.3]
    assert opened.provenance["checkpoint_generation"] == 3
    assert caplog.text.count("truncated") == names.index(source)
    assert "state/theta_es" not in opened.columns


def test_checkpoints_say_whether_they_are_sound(tmp_path, fresh):
    path = tmp_path / "run"
    shutil.copytree(fresh / "esac", path)
    first, second = Run.open(path).checkpoints
    assert (first.source.name, first.generation, first.valid) == ("checkpoint.h5", 7, True)
    assert (second.source.name, second.generation, second.problem) == ("checkpoint_prev.h5", 5, "")
    damage(path / "checkpoint.h5")
    segment = next((path / "replay").glob("segment-00000000-*"))
    damage(segment)
    first, second = Run.open(path).checkpoints
    assert (first.generation, first.valid) == (None, False)
    assert "checkpoint.h5: truncated" in first.problem
    assert second.generation == 5  # its own file is sound
    assert str(segment) in second.problem


def test_policy(tmp_path, fresh):
    run = make(tmp_path)
    assert Run.open(tmp_path).policy is None
    run.close()
    arrays, attributes = Run.open(fresh / "sac").policy
    assert arrays["theta"].shape == (3 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3,)
    assert attributes["task"] == "CyclicMDP-v0"
    assert attributes["policy"] == "sac"


def test_a_young_run(tmp_path):
    Run.begin(tmp_path, updated(Config(), {"seed": 3}), {}).close()
    run = Run.open(tmp_path)
    assert run.config.seed == 3
    assert dict(run.columns) == {}
    assert (run.generation, run.provenance, run.policy, run.checkpoints, len(run.history)) == (0, {}, None, [], 0)
    with pytest.raises(KeyError, match="has published nothing"):
        run.columns["metrics/sigma"]


def test_older_schemas_are_read_and_newer_ones_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(record.files, "SCHEMA", 1)
    make(tmp_path / "old").close()
    monkeypatch.setattr(record.files, "SCHEMA", 9)
    make(tmp_path / "new").close()
    monkeypatch.undo()
    old = Run.open(tmp_path / "old")
    assert (old.columns.schema, old.generation) == (1, 3)
    with pytest.raises(KeyError, match=r"\(schema 1\): no metrics/length_cap"):
        old.columns["metrics/length_cap"]
    assert [c.generation for c in old.checkpoints] == [3]
    assert "schema 1, written by another version of esac_mpi; this one reads schemas 2 to 3" in old.checkpoints[0].problem
    with pytest.raises(
        Refused, match=r"metrics\.h5: schema 9, written by another version of esac_mpi; this one reads schemas 1 to 3"
    ):
        Run.open(tmp_path / "new")


def test_a_read_only_copy_is_read_without_a_trace(tmp_path):
    make(tmp_path / "a").close()
    for file in [*(tmp_path / "a").iterdir(), tmp_path / "a"]:
        file.chmod(0o555 if file.is_dir() else 0o444)
    before = sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "a").iterdir())
    run = Run.open(tmp_path / "a")
    assert len(run.history) == 3
    assert run.members("fitness").shape == (3, 4)
    assert run.state == "requeue"
    assert run.checkpoints[0].valid
    assert before == sorted((file.name, file.stat().st_mtime_ns) for file in (tmp_path / "a").iterdir())
    (tmp_path / "a").chmod(0o755)


HOLD = """
import fcntl, sys
files = [open(path, "rb+") for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
    fcntl.flock(file, fcntl.LOCK_EX)  # HDF5's own kind of lock
print("held", flush=True)
sys.stdin.read()
"""


def test_files_locked_by_their_writer_are_read(tmp_path):
    make(tmp_path).close()
    files = [tmp_path / name for name in ("metrics.h5", "checkpoint.h5", "run.lock")]
    line = [sys.executable, "-c", HOLD, *map(str, files)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with open(files[0], "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        run = Run.open(tmp_path)
        assert run.members("fitness").shape == (3, 4)
        assert run.checkpoints[0].valid
        process.stdin.close()


def test_a_run_of_another_host_lives_as_long_as_its_files_are_touched(tmp_path):
    make(tmp_path).close()
    status = json.loads((tmp_path / "status.json").read_text())
    (tmp_path / "status.json").write_text(json.dumps({**status, "status": "running", "host": "elsewhere"}))
    assert Run.open(tmp_path).state == "running"  # nobody holds the lock, but locks do not reach every host
    long_ago = time.time() - reading.FRESH - 10
    for file in tmp_path.iterdir():
        os.utime(file, (long_ago, long_ago))
    assert Run.open(tmp_path).state == "dead"


def test_bad_directories_are_named(tmp_path):
    with pytest.raises(Refused, match="nowhere: not a run directory"):
        Run.open(tmp_path / "nowhere")
    (tmp_path / "foreign").mkdir()
    with h5py.File(tmp_path / "foreign/metrics.h5", "w") as file:
        file["metrics/sigma"] = np.ones(3)
    with pytest.raises(Unreadable, match=r"metrics\.h5: not a file of esac_mpi"):
        Run.open(tmp_path / "foreign")
    make(tmp_path / "short").close()
    for file in (tmp_path / "short").glob("*.h5"):
        damage(file, 300)
    with pytest.raises(Unreadable, match=r"nothing readable: .*metrics\.h5: its first 512 bytes are damaged; .*checkpoint"):
        Run.open(tmp_path / "short")


# docs/hdf5.md


def page():
    """Return {section: {dataset: (dtype, rank, algorithms)}} and {section: {attribute: (type, algorithms)}} of docs/hdf5.md."""
    datasets, attributes, section = {}, {}, ""
    for line in (ROOT / "docs/hdf5.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or cells[0] in ("dataset", "attribute"):
            continue
        if len(cells) == 6:
            name, dtype, shape, _, algorithms, _ = cells
            assert re.fullmatch(r"\[.*\]", shape), line
            rank = len(shape.strip("[]").split(",")) if shape != "[]" else 0
            entry = dtype, rank, named(algorithms)
            assert datasets.setdefault(section, {}).setdefault(name, entry) is entry, f"{name} stands twice"
        else:
            name, kind, algorithms, _ = cells
            attributes.setdefault(section, {})[name] = kind, named(algorithms)
    return datasets, attributes


def named(algorithms):
    """Return the algorithms of a cell of the page."""
    return frozenset(ALGORITHMS if algorithms == "all" else algorithms.split())


def kind(value):
    """Return the type of an attribute as the page has it."""
    if isinstance(value, str):
        return "string"
    return f"{value.dtype} array" if value.ndim else str(value.dtype)


def found(path):
    """Return the same of the files of fresh runs, read with plain h5py."""
    datasets, attributes, of = {}, {}, {}
    for file in sorted(path.rglob("*.h5")):
        algorithm = file.relative_to(path).parts[0]
        section = f"{file.parent.name}/segment-*.h5" if "segment" in file.name else file.name.replace("_prev", "")
        with h5py.File(file, "r", locking=False) as opened:
            nodes = []
            opened.visititems(lambda name, node, nodes=nodes: nodes.append((name, node)))
            for name, node in nodes:
                name = name.removeprefix("tail/")
                if isinstance(node, h5py.Dataset):
                    dtype = "string" if h5py.check_string_dtype(node.dtype) else str(node.dtype)
                    datasets.setdefault(section, {}).setdefault(name, set()).add((dtype, node.ndim))
                    of.setdefault((section, name), set()).add(algorithm)
            for name, value in opened.attrs.items():
                attributes.setdefault(section, {}).setdefault(name, set()).add(kind(value))
                of.setdefault((section, f"@{name}"), set()).add(algorithm)
    return datasets, attributes, of


def test_the_page_has_every_dataset_as_it_is_in_the_files(fresh):
    (described, _), (datasets, _, of) = page(), found(fresh)
    history = {n: e for n, e in described["metrics.h5"].items() if not n.startswith("final/")}
    described["checkpoint.h5"] |= history
    described["history/segment-*.h5"] = history
    assert described.keys() == datasets.keys()
    for section, entries in described.items():
        assert entries.keys() == datasets[section].keys(), section
        for name, (dtype, rank, algorithms) in entries.items():
            assert datasets[section][name] == {(dtype, rank)}, f"{section}: {name}"
            assert of[section, name] == algorithms, f"{section}: {name}"


def test_the_page_has_every_attribute(fresh):
    (_, described), (_, attributes, of) = page(), found(fresh)
    described["checkpoint.h5"] |= described["metrics.h5"]
    del described["checkpoint.h5"]["checkpoint_generation"]
    assert described.keys() == attributes.keys()
    for section, entries in described.items():
        assert entries.keys() == attributes[section].keys(), section
        for name, (expected, algorithms) in entries.items():
            assert attributes[section][name] == {expected}, f"{section}: {name}"
            assert of[section, f"@{name}"] == algorithms, f"{section}: {name}"


def test_the_examples_of_the_page_run(fresh, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/quickstart").symlink_to(fresh / "esac")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/hdf5.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    ours: dict = {}
    exec(blocks[0], ours)
    exec(blocks[1], {})
    fitness = ours["run"].members("fitness")
    assert capsys.readouterr().out.splitlines()[1] == f"(7, 10) {fitness[-1].max()}"
    header = (fresh / "esac/metrics.h5").read_bytes()[:512].decode().splitlines()[:4]
    assert [line.split()[0] for line in header] == ["esac_mpi", "schema", "bytes", "sha256"]


def test_wide_tables_of_a_fresh_run(fresh):
    run = Run.open(fresh / "esac")
    assert run.members("timing/member_seconds").shape == run.members("length").shape == (7, 10)
    assert len(run.history) == 7
    assert run.history["env_steps_population"].iloc[-1] == run.members("length").sum()
