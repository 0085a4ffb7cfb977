"""Run directories of former versions: kept for ever, and read, gone on with, or refused in a
sentence by every later one.

tests/old_runs/VERSION.tar.xz has two runs on the cyclic MDP, as that version left them, with their
replays and checkpoints: `finished`, of ESAC, complete after 5 generations, and `stopped`, of PDERL,
by a signal in its 6th. Nothing in them is ever made again: where a later version refuses one, its
test says here with which words.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import command
from conftest import ROOT, run

from esac_mpi import Config, Policy
from esac_mpi.config import AESRL, load, to_toml
from esac_mpi.record import Run

ARCHIVES = sorted((ROOT / "tests/old_runs").glob("*.tar.xz"))
KNOWN = {  # state, generations, algorithm, gradient updates, steps of the population, best return
    "finished": ("complete", 5, "esac", 101, 255, 20.0),
    "stopped": ("requeue", 6, "pderl", 323, 311, 20.0),
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def old(request, tmp_path) -> Path:
    """Return a folder with the two runs of a version."""
    shutil.unpack_archive(request.param, tmp_path / "old")
    return tmp_path / "old"


def test_archives_are_small_and_there_is_one_of_the_first_version():
    assert "0.1.0.tar.xz" in [path.name for path in ARCHIVES]
    assert all(path.stat().st_size < 100_000 for path in ARCHIVES)


@pytest.mark.parametrize("name", KNOWN)
def test_an_old_run_is_read(old, name):
    found = Run.open(old / name)
    updates, steps = (
        found.columns[f"metrics/{column}"][-1]
        for column in ("gradient_updates", "env_steps_population")
    )
    best = found.columns["metrics/best_return"][-1]
    assert (found.state, found.generation, found.config.algorithm, updates, steps, best) == KNOWN[
        name
    ]
    assert found.newest().generation == found.generation
    assert (
        found.provenance["theta_sha256"]
        == json.loads((old / name / "status.json").read_text())["theta_sha256"]
    )
    policy = Policy.load(old / name)
    assert np.isfinite(policy(np.ones(3, np.float32))).all()
    assert policy.episodic_return == best


def test_the_critics_updates_have_no_cost_of_their_own_in_old_runs_alone(old, tmp_path):
    """0.1.0 had no aes_rl.critic_cost: its runs, whole as they are, mean 1, and everything else the
    default.
    """
    text = (old / "finished/config.toml").read_text()
    assert "critic_cost" not in text
    (tmp_path / "old.toml").write_text(text.replace('"esac"', '"aes_rl"', 1))
    then = load([str(tmp_path / "old.toml")])[0].aes_rl
    assert (then.update_cost, then.critic_cost, then.order, then.mean_reused) == (
        0.5,
        1.0,
        "virtual",
        False,
    )
    assert (Run.open(old / "finished").config.aes_rl, default := AESRL().critic_cost) == (then, 1.8)
    now = to_toml(Config(algorithm="aes_rl"))
    (tmp_path / "now.toml").write_text(
        "\n".join(line for line in now.splitlines() if not line.startswith("critic_cost"))
    )
    (tmp_path / "mine.toml").write_text(
        'algorithm = "aes_rl"\n[aes_rl]\nupdate_cost = 3.0\ntau = 0.01\n'
    )
    for name in ("now", "mine"):
        found = load([str(tmp_path / f"{name}.toml")])[0].aes_rl
        assert (found.critic_cost, found.mean_reused) == (default, True)


def test_tests_in_a_row_were_one_in_old_runs_which_had_no_number_of_them(old):
    text = (old / "stopped/config.toml").read_text()
    assert "adoption_wins" not in text
    assert "reading = " in text
    assert Run.open(old / "stopped").config.esac.transfer_wins == 1
    assert Config().esac.transfer_wins == 3


def test_old_runs_are_tabulated_drawn_exported_and_evaluated(old, tmp_path, capsys):
    paths = [str(old / name) for name in KNOWN]
    assert command("summary").main(paths) == 0
    assert "2 runs: 1 complete, 1 requeue" in capsys.readouterr().out
    assert command("table").main(paths) == 0
    head, _, line = capsys.readouterr().out.splitlines()[-3:]
    assert head == "| task | ESAC, final | PDERL champion, final | PDERL learner, final |"
    assert line.startswith("| CyclicMDP-v0 | ")
    assert command("summary").main([*paths, "--compare"]) == 1
    assert command("plot").main([*paths, "--out", str(tmp_path / "curve.png")]) == 0
    assert (
        command("plot").main(
            [paths[0], "--what", "timeline", "--out", str(tmp_path / "timeline.png")]
        )
        == 0
    )
    assert {path.name for path in tmp_path.glob("*.png")} == {"curve.png", "timeline.png"}
    assert (
        command("export").main([paths[1], "--format", "csv", "--out", str(tmp_path / "rows.csv")])
        == 0
    )
    assert (tmp_path / "rows.csv").read_text().count("\n") == 7


@pytest.mark.parametrize("name", KNOWN)
def test_an_old_run_goes_on_to_a_raised_budget(old, name):
    """Its rows stay, to the bit; those that follow may be others than the old version's."""
    before, last = Run.open(old / name), KNOWN[name][1] + 2
    rows = {
        column: before.columns[column] for column in before.columns if column.startswith("metrics/")
    }
    done = run(
        0, old / name / "config.toml", "--budget.generations", last, "--task.changed", "warn"
    )
    assert f"resumed at generation {KNOWN[name][1]} from checkpoint.h5" in done.stdout
    after = Run.open(old / name)
    assert (after.state, after.generation) == ("complete", last)
    for column, values in rows.items():
        np.testing.assert_array_equal(after.columns[column][: len(values)], values, column)
    assert after.columns["metrics/gradient_updates"][-1] > KNOWN[name][3]
