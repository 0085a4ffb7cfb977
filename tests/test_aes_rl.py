"""AES-RL: the same bits on any ranks though nobody waits for a generation, restarts, counts, what an arrival does."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import EAGER, ROOT, ROUTINE, environment, run
from whole_runs import assert_same_run, summary

from esac_mpi.analysis import Unusable
from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.record import Run

SMALL = [
    *("--algorithm", "aes_rl", "--policy.hidden", 8, 8, *ROUTINE[3:], "--aes_rl.workers", 3, "--aes_rl.start_steps", 200),
    *("--aes_rl.batch_size", 16, "--aes_rl.critic_chunk", 60, "--aes_rl.mean_episodes", 2, "--aes_rl.actor_updates_window", 3),
    *("--aes_rl.arrivals_per_generation", 6, "--aes_rl.relative_baseline", 100, "--checkpoint.every_generations", 2),
]
TASK = ["--task.id", "own_envs:Delayed-v0"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, alone):
    path = tmp_path_factory.mktemp("aes") / "straight"
    alone(*SMALL, *TASK, "--aes_rl.replay_capacity", 500, "--budget.generations", 8, "--run-dir", path)
    return path


def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(straight, tmp_path, monkeypatch, together):
    """Delayed at random by machine and task; four ranks have a task each, two share them, and one does all."""
    line = [*SMALL, *TASK, "--aes_rl.replay_capacity", 500]  # a ring that is written over
    together(2, *line, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    monkeypatch.setenv("NODES", "2")
    run(4, *line, "--budget.generations", 8, "--run-dir", tmp_path / "parts", program=EAGER)
    assert_same_run(straight, tmp_path / "parts")


KILLS = [
    ("esac_mpi.record.held:Held.publish", 3),
    ("esac_mpi.algorithms.aes_driver:Driver._taught", 2),
    ("esac_mpi.algorithms.aes_driver:Driver._give", 17),
    ("esac_mpi.record.held:Held.store", 2),
]


def test_killed_at_any_moment_it_goes_on_as_it_would_have(straight, tmp_path, alone):
    line = [*SMALL, *TASK, "--aes_rl.replay_capacity", 500, "--budget.generations", 8, "--run-dir", tmp_path / "killed"]
    program = [sys.executable, ROOT / "tests/kills.py", json.dumps(KILLS), *line]
    done = subprocess.run(list(map(str, program)), env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert json.loads(done.stdout) == [-signal.SIGKILL] * len(KILLS), done.stderr
    alone(*line)
    assert_same_run(straight, tmp_path / "killed")


def test_the_clock_goes_on_and_individuals_are_trained_by_a_critic_that_never_stops(straight):
    rows = Run.open(straight).columns
    ends = rows["metrics/virtual_end"].ravel()
    assert (np.diff(ends) >= 0).all()
    trained = rows["metrics/learned"].ravel().astype(bool)
    assert 0 < trained.mean() < 1
    length = rows["metrics/length"].ravel()
    assert (np.cumsum(length)[trained][0]) > 200
    assert rows["metrics/gradient_updates"][-1] % 60 == 0
    assert rows["metrics/gradient_updates"][-1] <= length.sum()
    assert {*rows["metrics/worker"].ravel().astype(int).tolist()} == {0, 1, 2}
    assert rows["metrics/lag"].max() >= 2  # others arrive between, and are not waited for
    assert (rows["metrics/p"].ravel()[: int(np.searchsorted(np.cumsum(length), 200))] == 0).all()  # nothing moves before
    said = summary(straight)
    assert said["env_steps"]["population"] == length.sum() == said["nominal_steps"]


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch, alone):
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_DIR", str(tmp_path / "counts"))
    alone(*SMALL, "--task.id", "own_envs:Counting-v0", "--budget.generations", 4, "--run-dir", tmp_path / "run")
    counted = sum(f.stat().st_size for f in (tmp_path / "counts").iterdir())
    said, probe = summary(tmp_path / "run"), Run.open(tmp_path / "run").provenance["probe_steps"]
    in_flight = counted - probe - sum(said["env_steps"].values())
    assert 0 <= in_flight <= 3 * (1 + 2) * 30  # at most a task of each worker is begun and not told


def test_bad_rules_are_refused(capsys):
    done = run(0, *SMALL, "--aes_rl.variance_rule", "success", code=2)
    assert "aes_rl.variance_rule = success: goes with mean_rule = full_move, not relative" in done.stderr


def test_a_variance_that_is_no_longer_finite_ends_the_run_on_all_ranks(tmp_path):
    wide = [*SMALL, "--policy.activation", "tanh", "--aes_rl.variance_init", 1e38, "--aes_rl.start_steps", 0]  # (1e19 x)**2
    done = run(2, *wide, *TASK, "--budget.generations", 2, "--run-dir", tmp_path / "run", code=1)
    assert done.stderr.count("generation 1: mean or variance is not finite, the last checkpoint stands") == 1
    assert "Traceback" not in done.stderr


def test_a_clock_on_other_ranks_is_not_made_up(straight):
    with pytest.raises(Unusable, match="its tasks are in no generation"):
        computed(Run.open(straight), Machine(8))
