"""AES-RL: the same bits on any ranks though nobody waits for a generation, restarts, counts, what an arrival does."""

import numpy as np
import pytest
from conftest import EAGER, ROUTINE, run
from whole_runs import assert_same_run, summary

from esac_mpi.analysis import Unusable
from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.record import Run

SMALL = [
    *("--algorithm", "aes_rl", "--policy.hidden", 8, 8, *ROUTINE[3:], "--aes_rl.workers", 3, "--aes_rl.start_steps", 200),
    *("--aes_rl.batch_size", 16, "--aes_rl.critic_chunk", 60, "--aes_rl.mean_episodes", 2, "--aes_rl.actor_updates_window", 3),
    *("--aes_rl.arrivals_per_generation", 6, "--aes_rl.relative_baseline", 100, "--checkpoint.every_generations", 2),
]
TASK = ["--task.id", "Pendulum-v1", "--task.horizon", 40]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, alone):
    path = tmp_path_factory.mktemp("aes") / "straight"
    alone(*SMALL, *TASK, "--aes_rl.replay_capacity", 500, "--budget.generations", 8, "--run-dir", path)
    return path


def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(straight, tmp_path, monkeypatch):
    """Delayed at random by the machine; four ranks have a task each, two share them, and one does all."""
    line = [*SMALL, *TASK, "--aes_rl.replay_capacity", 500]  # a ring that is written over
    run(2, *line, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    monkeypatch.setenv("NODES", "2")
    run(4, *line, "--budget.generations", 8, "--run-dir", tmp_path / "parts", program=EAGER)
    assert_same_run(straight, tmp_path / "parts")


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


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch):
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_DIR", str(tmp_path / "counts"))
    run(1, *SMALL, "--task.id", "own_envs:Counting-v0", "--budget.generations", 4, "--run-dir", tmp_path / "run")
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
