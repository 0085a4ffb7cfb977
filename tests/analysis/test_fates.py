"""How often the learner's actor was elite, selected or discarded once injected: curve and table."""

import numpy as np
import pytest
from figure_runs import trained

from esac_mpi.analysis import plots
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import FATES, rate
from esac_mpi.operators.selection import Fate

MET = (-1, 0, -1, 2, 0, 1)  # by generation; -1: the learner's actor was in no slot


def make(path, fates=MET, algorithm="pderl", seed=0):
    rows = [{"learner_fate": fate} for fate in fates]
    return trained(path, algorithm, rows, seed=seed, **{"task.id": "Ant-v5"})


def test_fates_are_named_in_the_order_in_which_they_are_recorded():
    assert [name.upper() for name in FATES] == [fate.name for fate in sorted(Fate)]


def test_rates_are_of_the_selections_that_met_the_learner(tmp_path):
    run = make(tmp_path / "a")
    np.testing.assert_allclose(rate(run, "elite"), [np.nan, 100, 100, 50, 200 / 3, 50])
    np.testing.assert_allclose(rate(run, "selected"), [np.nan, 0, 0, 0, 0, 25])
    np.testing.assert_allclose(rate(run, "discarded"), [np.nan, 0, 0, 50, 100 / 3, 25])


def test_a_table_of_fates_is_beside_the_papers_without_a_best(tmp_path, call):
    runs = [make(tmp_path / "a"), make(tmp_path / "b", (0, 2), seed=1)]
    words = [run.path for run in [*runs, make(tmp_path / "c", (0, 0), "erl")]]
    told = call("table --published pderl-fates --measure fates", *words).out.splitlines()
    heads, row = ([cell.strip() for cell in told[i].split("|")] for i in (-3, -1))
    cells = dict(zip(heads, row, strict=True))
    assert cells["PDERL, elite"] == "50.00 ± 0.00 (50.00, n=2)"
    # of 25 and 0: the std is sqrt(2) * 12.5
    assert cells["PDERL, selected"].startswith("12 ± 18 (12, n=2)")
    assert cells["ERL, elite"] == "100.0 (100.0, n=1)"
    assert cells["ERL, elite [pderl-fates]"] == "66.7 ± 1.7"
    told = call("table --measure fates --at-steps 400 --format csv", *words).out
    assert 'Ant-v5,"PDERL, discarded",50.0,,50.0,1,0,these runs' in told


def test_a_run_without_fates_is_left_out_once(tmp_path, call):
    words = [make(tmp_path / "a").path, make(tmp_path / "b", (-1, -1), seed=1).path]
    assert call("table --measure fates", *words).err.count("left out, nothing to measure: b") == 1


def test_fates_are_drawn_and_a_run_without_them_is_told(tmp_path):
    runs = [make(tmp_path / "a"), make(tmp_path / "b", (0, 2), seed=1)]
    panels = plots.figure(runs, "fates", "generation").axes[:3]
    assert [panel.get_ylabel() for panel in panels] == [f"learner's actor {f} [%]" for f in FATES]
    assert [panel.lines[0].get_ydata()[-1] for panel in panels] == [75, 0, 25]  # at the second
    with pytest.raises(Unusable, match="no run given has any learner's actor elite"):
        plots.figure([make(tmp_path / "none", (-1, -1))], "fates")
