"""ERL and its forms: the three promises, what a generation does, and what is refused."""

import pytest
from conftest import EAGER, ROUTINE, run
from whole_runs import assert_same_run

from esac_mpi.config.genetic import FORMS
from esac_mpi.record import Run

SMALL = [
    *("--task.id", "Pendulum-v1", "--task.horizon", 30, "--policy.hidden", 8, 8, *ROUTINE[3:]),
    *("--erl.population_size", 6, "--erl.sync_interval", 2, "--erl.memory_size", 80),
]
OWN = ["--erl.batch_size", 16, "--erl.replay_capacity", 400, "--erl.critic_hidden", 8, 8]
OF_FORM = {
    "n_point": [],
    "distillation": ["--erl.distillation_batch", 8, "--erl.distillation_epochs", 2],
    "gaussian": [],
    "proximal": ["--erl.mutation_batch", 16],
}


def arguments(name, *more):
    crossover, mutation = FORMS[name]
    return ["--algorithm", name, *SMALL, *OWN, *OF_FORM[crossover], *OF_FORM[mutation], *more]


MORE = {  # switches that are off by default, one form each
    "erl": ["--erl.fitness_episodes", 2],
    "perl": ["--erl.elite_fraction", 0.4],
    "derl": ["--erl.reading", "repo", "--erl.parent_selection", "mixed"],
    "pderl": ["--erl.parent_selection", "distance"],
}


@pytest.mark.parametrize("name", FORMS)
def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(name, tmp_path, alone, monkeypatch):
    line = arguments(name, *MORE[name])
    alone(*line, "--budget.generations", 6, "--run-dir", tmp_path / "straight")
    run(2, *line, "--budget.generations", 2, "--run-dir", tmp_path / "parts")
    monkeypatch.setenv("NODES", "2")
    run(3, *line, "--budget.generations", 6, "--run-dir", tmp_path / "parts", program=EAGER)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    rows = Run.open(tmp_path / "straight").columns
    assert rows["metrics/gradient_updates"][-1] > 0
    assert {0, 1, 2} == {*rows["metrics/slot_kind"].ravel().tolist()}
    assert (rows["metrics/injected"] >= 0).tolist() == [False, True] * 3
    assert (rows["metrics/learner_fate"] >= 0).tolist() == [False, False, True, False, True, False]
