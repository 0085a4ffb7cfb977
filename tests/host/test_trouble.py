"""The whole program in trouble: what ends a run, what is refused, and what is said about it."""

import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import EAGER, LEARNER, ROUTINE, SMALL, SMALL_ES, TASK, run
from in_process import checked, started
from mpi4py import MPI
from whole_runs import science, sentence, summary

from esac_mpi.analysis import views
from esac_mpi.config import ALGORITHMS
from esac_mpi.envs.probe import PROBE_STEPS
from esac_mpi.host.invocation import call_of
from esac_mpi.learners import LearnerNotFinite
from esac_mpi.record import Run, read
from esac_mpi.training import ended, session

pytestmark = pytest.mark.slow


TOLD = LearnerNotFinite("found by one, told to all")
TOLD.told = True


@pytest.mark.parametrize(("ranks", "rank"), [(0, 0), (2, 0), (3, 2)])
def test_an_error_of_any_rank_is_on_record(tmp_path, monkeypatch, ranks, rank):
    """log.txt ends with it, and status.json names it: not a run that died and may go on."""
    monkeypatch.setenv("FAILS", f"{rank} 1000")
    path, own = tmp_path / "run", "--task.id own_envs:Failing-v0 --budget.generations 1000"
    done = run(ranks, *own.split(), *SMALL_ES, "--run-dir", path, code=1)
    assert Run.open(path).state == "failed"
    said = Run.open(path).status
    where = r"(in generation \d+, member \d \(seed 0\)|in the evaluation of .*, episode \d)"
    error = "RuntimeError: the simulator lost its licence"
    place = r"\(.*own_envs\.py, line \d+\)"
    told = re.fullmatch(f"{error}, {where} {place}", said["reason"])
    assert told
    assert said["reason"] in views.advice(Run.open(path))
    lines = (path / "log.txt").read_text().splitlines()
    assert lines[-2:] == [error, told[1]]
    host = platform.node()
    (first,) = [n for n, line in enumerate(lines) if f"ERROR [rank {rank} {host}] failed:" in line]
    assert lines[first + 1] == "Traceback (most recent call last):"
    assert done.stderr.count(error) == 1
    assert read(path / "checkpoint.h5")[1]["generation"] == said["generation"]
    assert not list(path.glob("*.tmp.*"))


def test_an_error_of_the_task_while_speed_is_measured_is_one_sentence(
    tmp_path, monkeypatch, together
):
    monkeypatch.setenv("FAILS", f"0 {3 * PROBE_STEPS}")
    line = ["--task.id", "own_envs:Failing-v0", "--run-dir", tmp_path / "run"]
    said = sentence(together(2, *line, code=2))
    what = "own_envs:Failing-v0 cannot be played, so nothing was created"
    error = "RuntimeError: the simulator lost its licence"
    assert re.fullmatch(rf"esac_mpi: {what}: {error} \(.*own_envs\.py, line \d+\)", said)
    assert not list(tmp_path.iterdir())


def test_a_learner_that_diverges_while_speed_is_measured_is_one_sentence(tmp_path, together):
    line = [*TASK, *LEARNER, *ROUTINE, "--sac.lr_sac", 1e20, "--run-dir", tmp_path / "run"]
    (said,) = together(2, *line, code=2).stderr.splitlines()
    assert "no longer finite at training step " in said
    assert "while it was measured, so nothing was created: lower its learning rate" in said
    assert not list(tmp_path.iterdir())


def test_a_check_of_a_task_that_fails_when_it_is_played_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("FAILS", f"0 {2 * PROBE_STEPS}")
    monkeypatch.setattr("own_envs.Failing.steps", 0)
    monkeypatch.setattr("esac_mpi.training.check.cost.EPISODES", 100)  # however slow they are
    line = ["--task.id", "own_envs:Failing-v0", *SMALL_ES, "--run-dir", tmp_path / "run"]
    with pytest.raises(ended.Ended, match=r"so nothing was created: RuntimeError: the simulator"):
        checked(*line)


def test_a_rank_that_is_lost_is_no_failure():
    """Where MPI says so on another rank, the run may go on."""
    assert ended.reason(MPI.Exception(MPI.ERR_PROC_FAILED)) == ""


def test_a_theta_es_that_is_not_finite_stops_with_one_line(tmp_path, together):
    path, step = tmp_path / "run", "--es.optimiser sgd --es.lr_es 1e30 --es.weight_decay 1e10"
    own = f"--algorithm es {step} --budget.generations 6 --evaluation.every 2"
    done = together(2, *TASK, *ROUTINE, *own.split(), "--run-dir", path, code=1)
    assert done.stderr.splitlines() == [
        "esac_mpi: generation 1: theta_es is no longer finite, the last checkpoint stands: "
        "begin another run with a lower lr_es, weight_decay or sigma"
    ]
    said = done.stderr.strip().removeprefix("esac_mpi: ")
    assert Run.open(path).status["reason"] == said
    assert (path / "log.txt").read_text().endswith(f"] {said}\n")
    assert Run.open(path).state == "failed"
    assert np.isfinite(read(path / "checkpoint.h5")[0]["state/theta_es"]).all()
    assert not (path / "policy.h5").exists()


def test_a_learner_that_is_not_finite_ends_all_ranks_in_one_line(tmp_path, together):
    """Each rank returns, so that the next test has it."""
    path = tmp_path / "run"
    own = "--td3.start_steps 70 --td3.steps_per_generation 60 --td3.batch_size 16 --td3.lr_td3 1e30"
    few = "--algorithm td3 --budget.generations 5 --checkpoint.every_generations 1"
    line = [*TASK, *ROUTINE, *own.split(), *few.split(), "--run-dir", path]
    done = together(3, *line, nodes=2, code=1)
    assert [line for line in done.stderr.splitlines() if "esac_mpi" in line or "rror" in line] == [
        "esac_mpi: the actor's action is not finite at training step 72, "
        "in the TD3 phase of generation 2; the last checkpoint stands"
    ]
    assert Run.open(path).state == "failed"
    assert read(path / "checkpoint.h5")[1]["generation"] == 1


@pytest.mark.parametrize(
    ("ranks", "error", "released"),
    [
        (1, ValueError("a bug"), True), (3, ValueError("a bug"), False),
        (3, ended.Ended(2, "refused"), True),
        (3, LearnerNotFinite("found here alone"), False),
        (3, TOLD, True),
    ],
)  # fmt: skip
def test_what_ranks_share_is_released_where_all_end_together(monkeypatch, ranks, error, released):
    freed = []
    world = SimpleNamespace(size=ranks, rank=0, free=lambda: freed.append(True))
    monkeypatch.setattr(session, "carry_out", Mock(side_effect=error))
    with pytest.raises(type(error)):
        session.run(world, session.Asked(dict, []))
    assert bool(freed) == released


def test_a_node_that_computes_other_bits_is_caught_by_replays(tmp_path, monkeypatch):
    monkeypatch.setenv("NODES", "2")
    path = tmp_path / "run"
    own = "--task.id own_envs:Poisoned-v0 --esac.resimulated_members 10 --budget.generations 100"
    line = [*SMALL, *own.split(), "--checkpoint.every_generations", 1, "--run-dir", path]
    told = sentence(run(2, *line, program=EAGER, code=1))
    number = r"-\d+\.\d+"
    begins = rf"member \d of generation (\d+) had the return {number}, and has {number} when"
    ends = r"in the SAC phase of generation (\d+); the last checkpoint stands"
    found = re.fullmatch(rf"esac_mpi: {begins} .* {platform.node()}.*, {ends}", told)
    assert found, told
    assert found[1] == found[2]
    assert Run.open(path).state in ("failed", "dead")
    assert read(path / "checkpoint.h5")[1]["generation"] == int(found[1]) - 1


def test_a_learner_whose_evaluations_have_no_return_has_failed(tmp_path, caplog):
    own = "--algorithm sac --task.id own_envs:Spoilt-v0 --policy.hidden 8 8 --sac.start_steps 20"
    few = "--sac.batch_size 8 --sac.steps_per_generation 30 --evaluation.every 2"
    line = [*own.split(), *few.split(), "--budget.generations", 3]
    assert started(*line, "--run-dir", tmp_path / "run") == 1
    none = "the return of no evaluation episode is finite: look at the task"
    assert caplog.text.count(f"generation 2: {none}") == 1
    end = "failed at generation 3, the end of its budget"
    why = "no evaluation and its confirmation had all returns finite; the task's reward is nan"
    assert f"{end}: {why}" in caplog.text
    assert summary(tmp_path / "run")["status"] == "failed"


def test_returns_that_are_not_finite_rank_last_and_are_counted(tmp_path, together):
    own = "--task.id own_envs:Breaking-v0 --budget.generations 6"
    done = together(2, *own.split(), *SMALL, "--run-dir", tmp_path / "run")
    rows = science(tmp_path / "run")
    broken = np.isnan(rows["metrics/fitness"])
    for k in np.flatnonzero(broken.any(axis=1))[:5]:  # the first are told each
        bad = f"generation {k + 1}: the return of member(s) {np.flatnonzero(broken[k]).tolist()}"
        assert f"{bad} is not finite: ranked last, counted; the task's reward is nan" in done.stdout
    evaluations = [rows[f"metrics/evaluation_{name}"][2::3] for name in ("theta_es", "sac")]
    evaluated = np.isnan(evaluations).sum()
    assert broken.any()
    in_phases = rows["metrics/unstable_episodes"][-1] - broken.sum() - evaluated
    assert 0 <= in_phases < rows["metrics/env_steps_learner"][-1] / 10
    for bad, winners in zip(broken, rows["metrics/winners"], strict=True):
        won = winners[winners >= 0]
        assert not bad[won].any()
        assert won.size == min(winners.size, (~bad).sum())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seed x", "seed = 'x'"),
        ("--task.id HalfCheetah-v55", "HalfCheetah"),
        ("--task.id CartPole-v1", "CartPole-v1"),
        ("--task.id dm_control/walker-wolk-v0", "walker-walk"),
        ("--esac.population_size 11", "must be even"),
        ("--learner.device cuda:77", "learner.device"),
        ("--esac.noise table --esac.noise_table_size 1000",
         "noise_table_size = 1000: theta alone has"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_from_one_rank(tmp_path, together, words, message):
    assert message in sentence(together(2, *words.split(), "--run-dir", tmp_path / "run", code=2))
    assert not list(tmp_path.iterdir())


def test_help_fits_two_screens_and_comes_from_one_rank():
    lines = run(2, "--help").stdout.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("  --") for line in lines[:40]) == 12
    found = {line.split()[0] for line in lines if line.startswith("  ") and line[2:].strip()}
    assert found > {*ALGORITHMS, "--task.id", "--esac.sigma", "--budget.minutes"}


def test_the_line_that_plots_works_where_it_is_printed(tmp_path, monkeypatch):
    python = Path(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(tmp_path)
    assert call_of("plot") == "esac-mpi plot"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert call_of("plot") == f"{python.with_name('esac-mpi')} plot"
    subprocess.run(f"{call_of('plot')} --help", shell=True, capture_output=True, check=True)


def test_where_no_command_is_installed_the_line_is_the_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.11"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert call_of("plot") == f"{tmp_path}/python3.11 -m esac_mpi.commands plot"
