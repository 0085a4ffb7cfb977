"""A budget of time: it ends a run with a complete generation; its bits are any run's."""

import time

import numpy as np
import pytest
from conftest import CYCLIC, CYCLIC_ES, ROUTINE, TASK, TINY_ES
from in_process import started
from whole_runs import assert_same_run, science
from words import words

from esac_mpi.config import Budget, ConfigError, load
from esac_mpi.host import log
from esac_mpi.record import Run
from esac_mpi.training import active_run

AES = words("--algorithm aes_rl", *TASK, *ROUTINE)
AES += words("--aes_rl.workers 2 --aes_rl.start_steps 100 --aes_rl.batch_size 16")
SOON = 0.002  # [min]


def test_time_counts_beside_the_other_limits():
    config, _ = load(["--budget.minutes", "2", "--budget.generations", "10"])
    assert config.budget == Budget(10, 0, 0, 2.0)
    for seconds, share in ((0.0, 0.5), (90.0, 0.75), (120.0, 1.0)):
        assert config.budget.spent(5, 0, 0, seconds) == share
    assert config.budget.left(4, 0, 0, 30.0) == Budget(6, 0, 0, 1.5)
    assert config.budget.left(4, 0, 0, 105.0) == Budget(6, 0, 0, 0.25)
    assert config.budget.left(10, 0, 0, 120.0) == Budget(1, 0, 0, 0.01)
    assert load(["--budget.minutes", "2"])[0].budget == Budget(0, 0, 0, 2.0)
    with pytest.raises(ConfigError, match="no limit is set"):
        load(["--budget.minutes", "0"])


def test_a_run_that_time_ended_is_finished(tmp_path, monkeypatch):
    save = active_run.checkpoint_if_due
    shown = []
    monkeypatch.setattr(
        active_run, "checkpoint_if_due", lambda *given: time.sleep(0.05) or save(*given)
    )
    monkeypatch.setattr(log.Display, "update", lambda self, values: shown.append(values))
    limits = "--budget.generations 0 --budget.minutes 0.004"
    line = (*TINY_ES, *words(limits), "--run-dir", tmp_path / "run")
    assert started(*line) == 0
    count = Run.open(tmp_path / "run").generation
    # each line counts its own generation's time, too
    seconds = Run.open(tmp_path / "run").columns["timing/wall_seconds"]
    shares = [values["progress"] for values in shown]
    np.testing.assert_allclose(shares, np.minimum(seconds / 0.24, 1.0))
    assert started(*line) == 0
    assert Run.open(tmp_path / "run").generation == count


@pytest.mark.parametrize("line", [CYCLIC, CYCLIC_ES, AES], ids=["esac", "es", "aes_rl"])
def test_the_run_is_complete_and_as_one_that_generations_end(tmp_path, line, alone, together):
    together(2, *line, "--budget.minutes", SOON, "--run-dir", tmp_path / "a")
    found = Run.open(tmp_path / "a")
    assert found.status["status"] == "complete"
    assert (found.columns["timing/wall_seconds"][:-1] < 60 * SOON).all()
    alone(*line, "--budget.generations", found.generation, "--run-dir", tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_the_time_of_all_starts_counts(tmp_path, alone):
    line = (*CYCLIC_ES, "--run-dir", tmp_path / "run")
    alone(*line, "--budget.generations", 4)
    before = Run.open(tmp_path / "run").columns["timing/wall_seconds"][-1]
    alone(*line, "--budget.minutes", before / 120)
    assert Run.open(tmp_path / "run").generation == 4
    alone(*line, "--budget.minutes", before / 60 + SOON)
    rows = Run.open(tmp_path / "run")
    assert rows.generation > 4
    assert rows.columns["timing/wall_seconds"][-2] < before + 60 * SOON
    assert np.isfinite(science(tmp_path / "run")["metrics/fitness"]).all()


def test_a_record_that_time_ended_is_made_again(tmp_path, alone):
    arrival = (*AES, "--aes_rl.order", "arrival")
    alone(*arrival, "--budget.minutes", SOON, "--run-dir", tmp_path / "a")
    again = (*arrival, "--aes_rl.replay", tmp_path / "a", "--run-dir", tmp_path / "b")
    done = alone(*again, "--budget.minutes", 1, code=2)
    count = Run.open(tmp_path / "a").generation
    assert f"budget.generations = {count}" in done.stderr
    alone(*again, "--budget.generations", count)
    assert_same_run(tmp_path / "a", tmp_path / "b")
