"""The whole program, as a user starts it: the three promises, and what a run says of itself."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from conftest import CYCLIC, EAGER, SMALL, run
from whole_runs import (
    assert_same_run,
    counted,
    rows_published,
    run_once,
    science,
    status,
    summary,
    wait_for,
)

from esac_mpi import Policy, envs
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.play.rollout import play
from esac_mpi.record import Run, read

pytestmark = pytest.mark.slow
TWENTY = [*CYCLIC, "--budget.generations", 20]


straight = run_once(*TWENTY)


def test_the_reference_run_does_all_that_esac_does(straight):
    rows = science(straight)
    assert rows["metrics/generation"].tolist() == list(range(1, 21))
    assert rows["metrics/sac_phase"].sum() >= 5
    assert rows["metrics/gradient_updates"][-1] > 100
    assert rows["metrics/sigma"][-1] > 0.3
    grown = rows["metrics/sigma"][-1] / 0.3
    assert rows["metrics/tuning_multiplier"][-1] == pytest.approx(grown, rel=1e-12)
    assert set(rows["metrics/parent"][5]) == {0, 1, 2, 3}
    assert np.isfinite(rows["metrics/evaluation_theta_es"][2::3]).all()
    assert np.isnan(rows["metrics/evaluation_theta_es"][0]).all()


def test_the_answer_does_not_depend_on_the_ranks(straight, tmp_path):
    run(5, *TWENTY, "--run-dir", tmp_path / "run")
    assert_same_run(straight, tmp_path / "run")


def test_killed_between_checkpoints_and_restarted_is_straight(tmp_path, start, alone, together):
    path = tmp_path / "killed"
    more = "--esac.learner_lag 2 --esac.amt_clip 1e-3"
    more += " --checkpoint.every_minutes 0 --checkpoint.every_generations 16"
    arguments = [*CYCLIC, *more.split(), "--budget.generations"]
    process = start(2, *arguments, 100_000, "--run-dir", path, program=EAGER)
    wait_for(lambda: rows_published(path) >= 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: summary(path)["status"] == "dead")
    before = science(path)
    made = len(before["metrics/generation"])
    arrays, attributes = read(path / "checkpoint.h5")
    saved = int(attributes["generation"])
    assert saved % 16 == 0 < saved
    assert arrays["state/phase_begun"] in (0, saved)  # what a phase in flight began with is in it
    arguments.append(max(made, saved) + 10)
    alone(*arguments, "--run-dir", tmp_path / "straight")
    done = together(3, *arguments, "--run-dir", path)
    dropped = f"; {made - saved} later rows dropped" if made > saved else ""
    assert f"resumed at generation {saved} from checkpoint.h5{dropped}" in done.stdout
    assert_same_run(tmp_path / "straight", path)
    for name, rows in science(path).items():
        np.testing.assert_array_equal(rows[:made], before[name], err_msg=name)


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch, together):
    own = "--task.id own_envs:Counting-v0 --budget.generations 10"
    more = "--esac.transfer tested --esac.transfer_episodes 2 --esac.fitness_episodes 2"
    counts, path = tmp_path / "counts", tmp_path / "run"
    line = [*own.split(), *SMALL, *more.split(), "--run-dir", path]
    made = counted(counts, monkeypatch, together, 2, *line)
    assert len(list(counts.iterdir())) == 2  # both ranks played
    said, history = summary(path), Run.open(path).columns
    # of the last generation, off schedule; the summary counts it too
    assert history["final/env_steps_evaluation"] > 0
    assert sum(said["env_steps"].values()) == made
    lengths = history["metrics/length"]
    trials = np.diff(history["metrics/env_steps_population"], prepend=0) - lengths.sum(axis=1)
    tried = np.isfinite(history["metrics/trial_sac"]).all(axis=1)
    assert tried.any()
    assert ((trials > 0) == tried).all()
    assert trials.max() <= 2 * 2 * 30
    winners = np.take_along_axis(lengths, history["metrics/winners"][:, :2], axis=1).sum(axis=1)
    assert said["env_steps"]["replayed"] == winners[history["metrics/sac_phase"] == 1].sum() > 0
    assert said["env_steps"]["learner"] == said["gradient_updates"] > 30  # one update a step
    assert said["nominal_steps"] == 10 * 30


def replayed(path: Path) -> float:
    """Return the mean return of a run's policy over the start states that confirmed it."""
    policy, config = Policy.load(path), Run.open(path).config
    assert policy.episodic_return == status(path)["best_return"]
    env, address = envs.make(policy.task, policy.horizon), (Purpose.CONFIRMATION, policy.generation)
    seeds = [integer(config.seed, *address, block=e) for e in range(config.evaluation.episodes)]
    return float(np.mean([play(env, policy, seed).episodic_return for seed in seeds]))


def test_the_policy_on_disk_has_the_return_that_confirmed_it(straight, tmp_path, alone):
    assert replayed(straight) == summary(straight)["best_return"]
    own = "--task.id Pendulum-v1 --task.horizon 40"
    normalised = "--esac.observation_normalisation true --esac.sigma 0.5"
    arguments = [*own.split(), *SMALL, *normalised.split(), "--run-dir", tmp_path / "run"]
    for generations in (4, 5, 7):  # rewritten at each start
        alone(*arguments, "--budget.generations", generations)
        assert replayed(tmp_path / "run") == summary(tmp_path / "run")["best_return"]
    assert Policy.load(tmp_path / "run").normaliser is not None


def test_a_finished_run_says_so_and_where_it_comes_from(straight, together):
    assert "finished" in together(2, *TWENTY, "--run-dir", straight).stdout
    about = Run.open(straight).provenance
    assert {*"command git_commit mpi cpu versions hosts ranks device config".split()} <= {*about}
    assert about["config"] == (straight / "config.toml").read_text()
    assert "numpy" in about["versions"]
    assert "run directory" in (straight / "log.txt").read_text()
