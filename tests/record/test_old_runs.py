"""Run directories of former versions: kept for ever, and read, gone on with, or refused in a
sentence by every later one.

tests/old_runs/VERSION.tar.xz has two runs on the cyclic MDP, as that version left them, with their
replays and checkpoints: `finished`, of ESAC, complete, and `stopped`, of PDERL, by a signal.
Nothing in them is ever made again: where a later version refuses one, its test says here with which
words.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from words import written

from esac_mpi import Config, Policy
from esac_mpi.config import AESRL, load, to_toml
from esac_mpi.record import Run

ARCHIVES = sorted((ROOT / "tests/old_runs").glob("*.tar.xz"))
NAMES = ("finished", "stopped")
KNOWN = {  # state, generations, algorithm, gradient updates, steps of the population, best return
    ("0.1.0", "finished"): ("complete", 5, "esac", 101, 255, 20.0),
    ("0.1.0", "stopped"): ("requeue", 6, "pderl", 323, 311, 20.0),
    ("0.2.0", "finished"): ("complete", 5, "esac", 30, 184, 1.0),
    ("0.2.0", "stopped"): ("requeue", 7, "pderl", 369, 356, 20.0),
    ("0.3.0", "finished"): ("complete", 9, "esac", 60, 128, 0.0),
    ("0.3.0", "stopped"): ("requeue", 7, "pderl", 369, 356, 20.0),
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def old(request, tmp_path) -> Path:
    """Return a folder with the two runs of a version."""
    version = request.param.name.removesuffix(".tar.xz")
    shutil.unpack_archive(request.param, tmp_path / version)
    return tmp_path / version


def test_archives_are_small_and_each_version_has_one():
    assert [path.name for path in ARCHIVES] == [
        "0.1.0.tar.xz",
        "0.2.0.tar.xz",
        "0.3.0.tar.xz",
    ]
    assert all(path.stat().st_size < 100_000 for path in ARCHIVES)


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_read(old, name):
    found = Run.open(old / name)
    kept = ("gradient_updates", "env_steps_population", "best_return")
    last = [found.columns[f"metrics/{column}"][-1] for column in kept]
    assert (found.state, found.generation, found.config.algorithm, *last) == KNOWN[old.name, name]
    assert found.newest().generation == found.generation
    status = json.loads((old / name / "status.json").read_text())
    assert found.provenance["theta_sha256"] == status["theta_sha256"]
    policy = Policy.load(old / name)
    assert np.isfinite(policy(np.ones(3, np.float32))).all()
    assert policy.episodic_return == KNOWN[old.name, name][-1]


@pytest.mark.parametrize("old", ARCHIVES[:1], ids=["0.1.0"], indirect=True)
def test_the_critics_updates_have_no_cost_in_old_runs_alone(old, tmp_path):
    """Runs of 0.1.0, which had no aes_rl.critic_cost, mean 1, and a default stays a default."""
    text = (old / "finished/config.toml").read_text()
    assert "critic_cost" not in text
    file = written(tmp_path / "old.toml", text.replace('"esac"', '"aes_rl"', 1))
    then = load([file])[0].aes_rl
    assert (then.update_cost, then.critic_cost) == (0.5, 1.0)
    assert (then.order, then.mean_reused) == ("virtual", False)
    assert (Run.open(old / "finished").config.aes_rl, default := AESRL().critic_cost) == (then, 1.8)
    now = to_toml(Config(algorithm="aes_rl")).splitlines()
    now = "\n".join(line for line in now if not line.startswith("critic_cost"))
    mine = 'algorithm = "aes_rl"\n[aes_rl]\nupdate_cost = 3.0\ntau = 0.01\n'
    for text in (now, mine):
        found = load([written(tmp_path / "new.toml", text)])[0].aes_rl
        assert (found.critic_cost, found.mean_reused) == (default, True)


@pytest.mark.parametrize("old", ARCHIVES[:1], ids=["0.1.0"], indirect=True)
def test_old_runs_adopt_after_one_test_and_shift_no_reward(old):
    text = (old / "stopped/config.toml").read_text()
    assert "adoption_wins" not in text
    assert "reward_shift" not in text
    assert "reading = " in text
    then, now = Run.open(old / "stopped").config, Config()
    assert (then.esac.transfer_wins, now.esac.transfer_wins) == (1, 3)
    for table in ("es", "esac", "cem", "cem_rl", "aes_rl", "erl"):
        assert getattr(then, table).reward_shift == 0.0
    assert (then.es.scaled_noise, then.esac.scaled_noise) == (False, False)


def test_old_runs_are_tabulated_drawn_exported_and_evaluated(old, tmp_path, call):
    paths = [old / name for name in NAMES]
    assert "2 runs: 1 complete, 1 requeue" in call("summary", *paths).out
    head, _, line = call("table", *paths).out.splitlines()[-3:]
    assert head == "| task | ESAC, final | PDERL champion, final | PDERL learner, final |"
    assert line.startswith("| CyclicMDP-v0 | ")
    call("summary --compare", *paths, code=1)
    curve, timeline, rows = (tmp_path / name for name in ("curve.png", "timeline.png", "rows.csv"))
    call("plot --out", curve, *paths)
    call("plot --what timeline --out", timeline, paths[0])
    assert curve.exists()
    assert timeline.exists()
    call("export --format csv --out", rows, paths[1])
    assert rows.read_text().count("\n") == 1 + KNOWN[old.name, "stopped"][1]


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_goes_on_to_a_raised_budget(old, name, alone):
    """Its rows stay, to the bit; those that follow may be others than the old version's."""
    before, (_, first, _, updates, *_) = Run.open(old / name), KNOWN[old.name, name]
    names = [column for column in before.columns if column.startswith("metrics/")]
    rows = before.columns.read(names)
    more = ["--budget.generations", first + 6, "--task.changed", "warn"]
    done = alone(old / name / "config.toml", *more)
    assert f"resumed at generation {first} from checkpoint.h5" in done.stdout
    after = Run.open(old / name)
    assert (after.state, after.generation) == ("complete", first + 6)
    for column, values in rows.items():
        np.testing.assert_array_equal(after.columns[column][: len(values)], values, column)
    assert after.columns["metrics/gradient_updates"][-1] > updates
