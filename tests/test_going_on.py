"""How a run is found again: its directory wherever it is, the line that a refusal prints, --fresh in a job's later rounds."""

import json
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from mpi4py import MPI

import esac_mpi
from esac_mpi import __main__, batch_system, config, job, train
from esac_mpi.comm import World
from esac_mpi.config import Config, load, updated
from esac_mpi.counters import Best
from esac_mpi.record import Run

TINY = [
    *("--algorithm", "es", "--task.id", "CyclicMDP-v0", "--task.horizon", "9", "--policy.hidden", "4"),
    *("--es.population_size", "4", "--budget.generations", "2", "--evaluation.episodes", "1", "--display.style", "plain"),
]


@pytest.fixture
def begun(tmp_path):
    """Leave a run of two generations in a directory whose name has a space; return it."""
    path = tmp_path / "the arm"
    assert go_on([*TINY, "--run-dir", str(path), "--max-hours", "3"]) == 0
    return path


def go_on(argv):
    """Run the program's work in this process; return the exit code."""
    world = World(MPI.COMM_SELF)
    try:
        return train.train(*load(argv), world, ["python", "-m", "esac_mpi", *argv])
    finally:
        world.free()


def generation(path):
    return json.loads((path / "status.json").read_text())["generation"]


@pytest.mark.parametrize("older", [False, True])
def test_a_moved_run_and_a_copy_go_on_where_they_are(begun, tmp_path, older):
    if older:  # as it was saved before: with its path and time
        text = (begun / "config.toml").read_text()
        (begun / "config.toml").write_text(f"run_dir = {json.dumps(str(begun))}\nmax_hours = 1e-9\n{text}")
    moved, copy = tmp_path / "moved", tmp_path / "copy"
    shutil.copytree(begun, copy)
    begun.rename(moved)
    for path, budget in ((moved, 3), (copy, 4)):
        assert go_on([str(path / "config.toml"), "--budget.generations", str(budget)]) == 0
    assert not begun.exists()
    assert (generation(moved), generation(copy)) == (3, 4)
    assert load([str(moved / "config.toml"), "--run-dir", "elsewhere", "--max-hours", "2"])[0].max_hours == 2
    assert load([str(moved / "config.toml"), "--run-dir", "elsewhere"])[0].run_dir == "elsewhere"


def test_where_a_run_lies_and_what_ends_its_job_is_not_saved_with_it(begun):
    for text in ((begun / "config.toml").read_text(), Run.open(begun).provenance["config"]):
        assert "run_dir" not in text
        assert "max_hours" not in text
    found, _ = load([str(begun / "config.toml")])
    assert (found.run_dir, found.max_hours) == (str(begun), 0)


def test_a_file_of_that_name_elsewhere_is_a_configuration_like_any(tmp_path):
    (tmp_path / "config.toml").write_text('run_dir = "runs/x"\nmax_hours = 2.0\n')
    found, _ = load([str(tmp_path / "config.toml")])
    assert (found.run_dir, found.max_hours) == ("runs/x", 2.0)


@pytest.mark.parametrize("edited", [False, True])
def test_the_line_that_a_refusal_prints_goes_on_with_the_run(begun, edited, capfd):
    if edited:
        text = (begun / "config.toml").read_text()
        (begun / "config.toml").write_text(text.replace("seed = 0", "seed = 4").replace("hidden = [4]", "hidden = [5, 5]"))
        refused = [str(begun / "config.toml")]
    else:
        refused = [*TINY, "--run-dir", str(begun), "--es.sigma", "0.5"]
    assert go_on(refused) == 2
    line = capfd.readouterr().err.rpartition("with any launcher: ")[2].strip()
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", "esac_mpi", str(begun / "config.toml")]
    assert words[4:] == (["--seed", "0", "--policy.hidden", "4"] if edited else [])
    assert go_on([*words[3:], "--budget.generations", "3"]) == 0
    assert generation(begun) == 3


def test_what_neither_run_reads_does_not_keep_a_run_from_going_on():
    changes = {"esac.sigma": 0.7, "learner.threads": 3, "es.noise_table_size": 5}
    es = updated(Config(), {"algorithm": "es"})
    assert config.differences(es, updated(es, changes)) == {}
    assert [*config.differences(updated(es, {"es.noise": "table"}), updated(es, changes))] == ["es.noise", "es.noise_table_size"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"ROUND": "3"}, ""),  # anybody's variable, outside PBS
        ({"PBS_JOBID": "7.server", "ROUND": "0"}, ""),
        ({"PBS_JOBID": "7.server", "ROUND": "2"}, "ROUND=2"),
        ({"SLURM_JOB_ID": "7"}, ""),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "0"}, ""),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "12"}, "SLURM_RESTART_COUNT=12"),
    ],
)
def test_fresh_is_ignored_in_a_later_round_of_a_job(environ, said, monkeypatch, caplog):
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "ROUND"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert batch_system.later_round(environ) == said
    monkeypatch.setattr(__main__.log.logger, "propagate", True)
    world = SimpleNamespace(rank=0, from_root=lambda value: value)
    found, fresh = __main__.parse(world, ["--seed", "3", "--fresh"])
    assert (found.seed, fresh) == (3, not said)
    assert (f"--fresh is ignored in a job's later round ({said})" in caplog.text) == bool(said)


@pytest.mark.parametrize("fresh", [False, True])
def test_the_advice_to_run_a_command_again_leaves_fresh_out(fresh, monkeypatch, tmp_path):
    said = []
    monkeypatch.setattr(train.log, "say", said.append)
    monkeypatch.setattr(train, "save", lambda *arguments: True)
    state = SimpleNamespace(generation=5, best=Best(), counters=SimpleNamespace(env_steps=0, nominal_steps=0))
    run = SimpleNamespace(path=tmp_path, starts=1, restored=None, close=lambda: None)
    stopped = job.Job(Config(), SimpleNamespace(from_root=lambda code: code), None, None, state, None, None, run)
    assert train.finish(stopped, *([True] if fresh else [])) == job.STOPPED
    but = ", without --fresh," if fresh else ""
    assert said[0] == f"stopped at generation 5, saved; run the same command again{but} to go on"


def test_run_is_had_from_the_package_and_only_who_asks_loads_it():
    assert esac_mpi.Run is Run
    line = "import sys, esac_mpi; before = 'h5py' in sys.modules; esac_mpi.Run; print(before, 'h5py' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", line], text=True) == "False True\n"
