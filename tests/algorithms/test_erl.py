"""ERL and its forms: the three promises, what a generation does, and what is refused."""

import pytest
from small_erl import arguments
from whole_runs import assert_same_run

from esac_mpi.config.genetic import FORMS
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

MORE = {  # switches that are off by default, one form each
    "erl": ["--erl.fitness_episodes", 2],
    "perl": ["--erl.elite_fraction", 0.4],
    "derl": ["--erl.preset", "reference-code", "--erl.parent_selection", "mixed"],
    "pderl": ["--erl.parent_selection", "distance"],
}


@pytest.mark.parametrize("name", FORMS)
def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(name, tmp_path, alone, together):
    line = arguments(name, *MORE[name])
    alone(*line, "--budget.generations", 6, "--run-dir", tmp_path / "straight")
    together(2, *line, "--budget.generations", 2, "--run-dir", tmp_path / "parts")
    together(3, *line, "--budget.generations", 6, "--run-dir", tmp_path / "parts", nodes=2)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    rows = Run.open(tmp_path / "straight").columns
    children = (rows["metrics/slot_kind"][0] == 2).sum()
    imitated = (
        2 * (60 // 8) if name in ("derl", "pderl") else 0
    )  # epochs, of both parents' 30 transitions
    assert rows["metrics/member_updates"][0] == imitated * children
    assert rows["metrics/gradient_updates"][-1] > 0
    assert {0, 1, 2} == {*rows["metrics/slot_kind"].ravel().tolist()}
    assert (rows["metrics/injected"] >= 0).tolist() == [False, True] * 3
    assert (rows["metrics/learner_fate"] >= 0).tolist() == [False, False, True, False, True, False]
