"""How often the learner's actor was elite, selected or discarded once injected: curve and table."""

import numpy as np
from commands import command
from figure_runs import check_pictures, opened

from esac_mpi.analysis.outcomes import FATES, rate
from esac_mpi.config import Config, updated
from esac_mpi.operators.selection import Fate
from esac_mpi.record import Run

MET = (-1, 0, -1, 2, 0, 1)  # by generation; -1: the learner's actor was in no slot


def make(path, fates=MET, algorithm="pderl", seed=0):
    run = Run.begin(
        path,
        updated(Config(), {"algorithm": algorithm, "seed": seed, "task.id": "Ant-v5"}),
        {"ranks": 1},
    )
    for g, fate in enumerate(fates, 1):
        run.append(
            {"generation": g, "env_steps_population": 100 * g, "learner_fate": fate},
            {"wall_seconds": float(g)},
        )
    run.checkpoint(len(fates), {"theta_es": np.ones(3, np.float32)}, {})
    run.status("complete", len(fates))
    run.close()
    return str(path)


def test_fates_are_named_in_the_order_in_which_they_are_recorded():
    assert [name.upper() for name in FATES] == [fate.name for fate in sorted(Fate)]


def test_rates_are_of_the_selections_that_met_the_learners_actor(tmp_path):
    (run,) = opened(make(tmp_path / "a"))
    np.testing.assert_allclose(rate(run, "elite"), [np.nan, 100, 100, 50, 200 / 3, 50])
    np.testing.assert_allclose(rate(run, "selected"), [np.nan, 0, 0, 0, 0, 25])
    np.testing.assert_allclose(rate(run, "discarded"), [np.nan, 0, 0, 50, 100 / 3, 25])


def test_a_table_of_fates_stands_beside_the_papers_and_has_no_best(tmp_path, capsys):
    runs = [
        make(tmp_path / "a"),
        make(tmp_path / "b", (0, 2), seed=1),
        make(tmp_path / "c", (0, 0), "erl"),
    ]
    assert command("table").main([*runs, "--measure", "fates", "--published", "pderl-fates"]) == 0
    told = capsys.readouterr().out.splitlines()
    cells = dict(
        zip(
            *([cell.strip() for cell in line.split("|")] for line in (told[-3], told[-1])),
            strict=True,
        )
    )
    assert cells["PDERL, elite"] == "50.00 ± 0.00 (50.00, n=2)"
    assert cells["PDERL, selected"].startswith(
        "12 ± 18 (12, n=2)"
    )  # of 25 and 0: the std is sqrt(2) * 12.5
    assert (cells["ERL, elite"], cells["ERL, elite [pderl-fates]"]) == (
        "100.0 (100.0, n=1)",
        "66.7 ± 1.7",
    )
    assert (
        command("table").main([*runs, "--measure", "fates", "--at-steps", "400", "--format", "csv"])
        == 0
    )
    assert 'Ant-v5,"PDERL, discarded",50.0,,50.0,1,0,these runs' in capsys.readouterr().out


def test_fates_are_drawn_and_a_run_without_them_is_told(tmp_path, capsys):
    runs = [make(tmp_path / "a"), make(tmp_path / "b", (0, 2), seed=1)]
    assert command("plot").main([*runs, "--what", "fates", "--out", str(tmp_path / "fates")]) == 0
    check_pictures(capsys, tmp_path / "fates")
    assert command("plot").main([make(tmp_path / "none", (-1, -1)), "--what", "fates"]) == 2
    assert (
        "nothing to draw yet: no run given has any learner's actor elite" in capsys.readouterr().err
    )
