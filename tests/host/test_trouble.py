"""The whole program in trouble: what ends a run, what is refused, and what is said about it."""

import platform
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import CYCLIC_ES, EAGER, ROUTINE, SMALL, TASK, run
from in_process import started
from whole_runs import science, summary

from esac_mpi.config import ALGORITHMS
from esac_mpi.host.invocation import called
from esac_mpi.learners import LearnerNotFinite
from esac_mpi.record import Run, read
from esac_mpi.training import ended, session

pytestmark = pytest.mark.slow


def found(error):
    """Return an error as ranks raise it that were told."""
    error.told = True
    return error


def test_one_rank_that_raises_ends_the_job_and_says_where(tmp_path):
    arguments = [
        "--task.id=own_envs:Raising-v0",
        *SMALL,
        "--budget.generations=1000",
        f"--run-dir={tmp_path / 'run'}",
    ]
    done = run(3, *arguments, code=None)
    assert done.returncode == 1
    assert "the simulator lost its licence" in done.stderr
    assert "failed:" in done.stderr
    read(tmp_path / "run" / "checkpoint.h5")  # sound
    assert Run.open(tmp_path / "run").state in ("failed", "dead")
    assert re.search(
        r"in generation \d+, member \d|in the SAC phase of generation \d|in the evaluation of .* "
        r"generation \d",
        done.stderr,
    )


def test_a_theta_es_that_is_not_finite_stops_with_one_line_and_leaves_the_checkpoint_before_it(
    tmp_path,
):
    step = ["--es.optimiser", "sgd", "--es.lr_es", 1e30, "--es.weight_decay", 1e10]
    arguments = [
        "--algorithm=es",
        *TASK,
        *ROUTINE,
        *step,
        "--budget.generations=6",
        "--evaluation.every=2",
    ]
    done = run(2, *arguments, "--run-dir", tmp_path / "run", code=1)
    assert done.stderr.splitlines() == [
        "esac_mpi: generation 1: theta_es is no longer finite, the last checkpoint stands: "
        "begin another run with a lower "
        "lr_es, weight_decay or sigma"
    ]
    assert Run.open(tmp_path / "run").state == "failed"
    assert np.isfinite(read(tmp_path / "run" / "checkpoint.h5")[0]["state/theta_es"]).all()
    assert not (tmp_path / "run" / "policy.h5").exists()


def test_a_learner_that_is_not_finite_ends_all_ranks_in_one_line(tmp_path, together):
    """Its first update, in generation 2, makes an actor that is not finite; each rank returns, so
    that the next test has it.
    """
    learner = [
        "--td3.start_steps=70",
        "--td3.steps_per_generation=60",
        "--td3.batch_size=16",
        "--td3.lr_td3=1e+30",
    ]
    arguments = [
        "--algorithm=td3",
        *TASK,
        *ROUTINE,
        *learner,
        "--budget.generations=5",
        "--checkpoint.every_generations=1",
    ]
    done = together(3, *arguments, "--run-dir", tmp_path / "run", nodes=2, code=1)
    assert [line for line in done.stderr.splitlines() if "esac_mpi" in line or "rror" in line] == [
        "esac_mpi: the actor's action is not finite at training step 72, "
        "in the TD3 phase of generation 2; the last "
        "checkpoint stands"
    ]
    assert Run.open(tmp_path / "run").state == "failed"
    assert read(tmp_path / "run/checkpoint.h5")[1]["generation"] == 1


@pytest.mark.parametrize(
    ("ranks", "error", "released"),
    [
        (1, ValueError("a bug"), True), (3, ValueError("a bug"), False),
        (3, ended.Ended(2, "refused"), True),
        (3, LearnerNotFinite("found here alone"), False),
        (3, found(LearnerNotFinite("found by one, told to all")), True),
    ],
)  # fmt: skip
def test_what_ranks_share_is_released_where_all_end_together(monkeypatch, ranks, error, released):
    freed = []
    world = SimpleNamespace(size=ranks, rank=0, free=lambda: freed.append(True))

    def fails(*arguments):
        raise error

    monkeypatch.setattr(session, "do", fails)
    with pytest.raises(type(error)):
        session.run(world, session.Asked(dict, []))
    assert bool(freed) == released


def test_a_node_that_computes_other_bits_is_caught_where_its_episodes_are_played_again(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("NODES", "2")
    arguments = [
        "--task.id=own_envs:Poisoned-v0",
        *SMALL,
        "--esac.resimulated_members=10",
        "--checkpoint.every_generations=1",
    ]
    done = run(
        2,
        *arguments,
        "--budget.generations=100",
        f"--run-dir={tmp_path / 'run'}",
        program=EAGER,
        code=1,
    )
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("esac_mpi: ")]
    number = r"-\d+\.\d+"
    begins = (
        rf"esac_mpi: member \d of generation (\d+) had the return {number}, "
        rf"and has {number} when it is played again, "
    )
    ends = r"in the SAC phase of generation (\d+); the last checkpoint stands"
    found = re.fullmatch(rf"{begins}.* {platform.node()}.*, {ends}", told)
    assert found, told
    assert found[1] == found[2]
    assert Run.open(tmp_path / "run").state in ("failed", "dead")
    assert read(tmp_path / "run/checkpoint.h5")[1]["generation"] == int(found[1]) - 1
    assert "Traceback" not in done.stderr


def test_a_learner_whose_evaluations_have_no_return_says_so_and_has_failed(tmp_path, caplog):
    line = [
        "--algorithm=sac",
        "--task.id=own_envs:Spoilt-v0",
        "--policy.hidden",
        8,
        8,
        "--sac.start_steps=20",
    ]
    line += [
        "--sac.batch_size=8",
        "--sac.steps_per_generation=30",
        "--evaluation.every=2",
        "--budget.generations=3",
    ]
    assert started(*line, "--run-dir", tmp_path / "run") == 1
    said = caplog.text
    assert (
        said.count("generation 2: the return of no evaluation episode is finite: look at the task")
        == 1
    )
    assert (
        "failed at generation 3, the end of its budget: no evaluation had all its returns finite"
        in said
    )
    assert summary(tmp_path / "run")["status"] == "failed"


def test_returns_that_are_not_finite_rank_last_and_are_counted(tmp_path, together):
    arguments = [
        "--task.id=own_envs:Breaking-v0",
        *SMALL,
        "--budget.generations=6",
        f"--run-dir={tmp_path / 'run'}",
    ]
    done = together(2, *arguments)
    assert "is not finite: ranked last, counted" in done.stdout
    rows = science(tmp_path / "run")
    broken = np.isnan(rows["metrics/fitness"])
    evaluated = sum(
        np.isnan(rows[f"metrics/evaluation_{name}"][2::3]).sum() for name in ("theta_es", "sac")
    )
    assert broken.any()
    in_phases = rows["metrics/unstable_episodes"][-1] - broken.sum() - evaluated
    assert 0 <= in_phases < rows["metrics/env_steps_learner"][-1] / 10
    for bad, winners in zip(broken, rows["metrics/winners"], strict=True):
        won = winners[winners >= 0]
        assert not bad[won].any()
        assert won.size == min(winners.size, (~bad).sum())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task.id", "HalfCheetah-v55"], "HalfCheetah"),
        (["--task.id", "CartPole-v1"], "CartPole-v1"),
        (["--task.id", "dm_control/walker-wolk-v0"], "walker-walk"),
        (["--esac.population_size", "11"], "must be even"),
        (["--esac.popsize", "11"], "did you mean"),
        (["--esac.population_size", "many"], "esac.population_size = 'many': expected an integer"),
        (["--esac.sac_copies", "30"], "SAC copies"),
        (["--learner.device", "cuda:77"], "learner.device"),
        (
            ["--esac.preset", "corrected", "--esac.learner_lag", "6"],
            "esac.learner_lag = 6: must be at most esac.gradient_interval (5)",
        ),
        (["--esac.length_cap", "0.5"], "esac.length_cap = 0.5"),
        (
            ["--esac.noise", "table", "--esac.noise_table_size", "1000"],
            "noise_table_size = 1000: theta alone has",
        ),
    ],
)
def test_bad_input_is_one_message_from_one_rank_and_creates_nothing(
    tmp_path, together, arguments, message
):
    done = together(2, *arguments, "--run-dir", tmp_path / "run", code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("esac_mpi:")]) == 1
    assert not list(tmp_path.iterdir())


def test_a_run_whose_checkpoints_are_both_broken_is_65_and_fresh_starts_over(tmp_path, alone):
    arguments = [*CYCLIC_ES, "--budget.generations", 2, "--run-dir", tmp_path / "run"]
    alone(*arguments)
    for name in ("checkpoint.h5", "checkpoint_prev.h5"):
        content = bytearray((tmp_path / "run" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "run" / name).write_bytes(content)
    done = run(2, *arguments, code=65)
    assert done.stderr.count("no readable checkpoint") == 1
    run(2, *arguments, "--fresh")
    assert summary(tmp_path / "run")["status"] == "complete"
    assert (tmp_path / "run.old-1" / "checkpoint.h5").exists()


def test_help_fits_two_screens_and_comes_from_one_rank():
    lines = run(2, "--help").stdout.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("  --") for line in lines[:40]) == 12
    found = {line.split()[0] for line in lines if line.startswith("  ") and line[2:].strip()}
    assert found > {*ALGORITHMS, "--task.id", "--esac.sigma", "--budget.minutes"}


def test_the_line_that_draws_the_curve_works_from_where_it_is_printed(tmp_path, monkeypatch):
    python = Path(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(tmp_path)
    assert called("plot") == "esac-mpi plot"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert called("plot") == f"{python.with_name('esac-mpi')} plot"
    assert (
        subprocess.run(f"{called('plot')} --help", shell=True, capture_output=True).returncode == 0
    )


def test_where_no_command_is_installed_the_line_is_the_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.11"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert called("plot") == f"{tmp_path}/python3.11 -m esac_mpi.commands plot"
