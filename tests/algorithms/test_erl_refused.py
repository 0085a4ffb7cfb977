"""ERL and its forms as they begin and are looked at.

What is refused, what --check counts, what a run counts and tells.
"""

import re

import numpy as np
import pytest
from conftest import EAGER, run
from in_process import started
from short_runs import snapshot
from small_erl import arguments, made
from small_runs import shared_bytes

from esac_mpi.config import load
from esac_mpi.config.genetic import FORMS
from esac_mpi.envs import TaskError, make
from esac_mpi.record import Run
from esac_mpi.training import check, set_up
from esac_mpi.training.check import memory

pytestmark = pytest.mark.slow


def words(name, *more):
    return list(map(str, arguments(name, *more)))


@pytest.mark.parametrize("name", FORMS)
def test_discrete_tasks_are_refused(name):
    config, _ = load(["--algorithm", name, "--task.id", "CartPole-v1"])
    with pytest.raises(
        TaskError, match=f"CartPole-v1 has 2 discrete actions; {name} needs continuous ones"
    ):
        set_up.make_task(config)


def test_memories_that_do_not_fit_are_named_with_their_bytes_and_what_to_lower(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("FREE", "300000")  # room for the rest
    line = arguments(
        "pderl", "--erl.memory_size", 4000, "--budget.generations", 1, "--run-dir", tmp_path / "run"
    )
    done = run(2, *line, code=2, program=EAGER)
    need = 7 * 4000 * 4 * 4
    assert f"has 300000 bytes free; the shared arrays need {need} more" in done.stderr
    assert "or lower erl.memory_size = 4000: memories take 1.3 MiB a node" in done.stderr
    assert done.stderr.count("esac_mpi:") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FORMS)
def test_shared_memory_needed_is_what_a_run_allocates(name, world):
    config, _ = load(words(name))
    env, sizes = make("Pendulum-v1", 30), shared_bytes(world)
    made(world, name, env=env)
    memories = 2 * 7 * 80 * (4 * 4 + 8)  # rows of four float32 and ages, twice
    assert memory.needed(config, env, 1) - 2**20 == sum(sizes) > memories * (name != "erl")


@pytest.mark.parametrize("name", FORMS)
def test_a_run_is_looked_at_beforehand(name, world, tmp_path, capsys):
    config, _ = load(words(name, "--run-dir", tmp_path / "run"))
    assert check.check(config, world) == 0
    said = capsys.readouterr().out
    assert re.search(r"memory +the run holds \d.* a node", said)
    assert re.search(r"work +7 episodes a generation on 1 evaluating rank", said)
    assert not list(tmp_path.iterdir())


def test_a_run_is_not_gone_on_with_by_another_crossover(tmp_path, alone, capsys):
    more = "--budget.generations", 1, "--run-dir", tmp_path / "run"
    alone(*arguments("pderl", *more))
    there = snapshot(tmp_path)
    assert started(*words("perl", *more)) == 2
    told = capsys.readouterr().err
    assert "algorithm: 'pderl' -> 'perl'" in told
    assert "erl.crossover: 'distillation' -> 'n_point'" in told
    assert snapshot(tmp_path) == there


def test_members_whose_return_is_not_finite_are_told_with_their_generation(tmp_path, alone):
    task = (
        "--task.id",
        "own_envs:Breaking-v0",
        "--budget.generations",
        4,
        "--erl.updates_per_step",
        0,
    )
    alone(*arguments("perl", *task, "--run-dir", tmp_path / "run"))
    fitness = Run.open(tmp_path / "run").columns["metrics/fitness"]
    expected = [
        (k, np.flatnonzero(np.isnan(row)).tolist())
        for k, row in enumerate(fitness, 1)
        if np.isnan(row).any()
    ]
    assert expected
    said = (tmp_path / "run/log.txt").read_text()
    told = re.findall(
        r"generation (\d+): the return of member\(s\) \[(.*)\] is not finite: "
        r"ranked last, counted$",
        said,
        re.M,
    )
    assert [(int(k), [int(i) for i in members.split(",")]) for k, members in told] == expected


def test_counters_are_what_the_environment_counted(tmp_path, monkeypatch):
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_DIR", str(tmp_path / "counts"))
    more = [
        "--erl.fitness_episodes",
        2,
        "--erl.start_steps",
        200,
        "--erl.updates_per_step",
        0.5,
        "--budget.generations",
        4,
    ]
    assert (
        started(
            *words(
                "pderl", "--task.id", "own_envs:Counting-v0", *more, "--run-dir", tmp_path / "run"
            )
        )
        == 0
    )
    (counts,) = (tmp_path / "counts").iterdir()
    opened = Run.open(tmp_path / "run")
    rows = {
        name.removeprefix("metrics/"): opened.columns[name][-1] for name in opened.columns.scalars
    }
    steps = rows["env_steps_population"] + rows["env_steps_learner"]
    evaluated = rows["env_steps_evaluation"] + opened.columns["final/env_steps_evaluation"]
    assert steps + evaluated == counts.stat().st_size - opened.provenance["probe_steps"]
    assert rows["env_steps_population"] == opened.columns["metrics/length"].sum()
    assert rows["nominal_steps"] == steps
    assert rows["gradient_updates"] == round(0.5 * steps) - 100
