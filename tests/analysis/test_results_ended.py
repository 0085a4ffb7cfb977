"""Runs short of the time at which rows of results are compared, and a figure's age, by hand."""

import dataclasses

import pytest
from result_rows import history, stored, study

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import traces
from esac_mpi.analysis.results.scores import by_task


def test_a_run_that_ended_before_has_no_verdict_at_that_time(tmp_path, call):
    path = stored(tmp_path / "r.csv", study())
    said = call("results table --seconds 40", path).out
    assert "Ended before 40 s, so counted as they ended: 2 (2 of ESAC), after 30 to 31 s." in said
    assert "| A-v0 | ESAC > SAC? |" in said
    assert "| none, ended before: 2 of ESAC (at 40 s) |" in said
    assert "at the most true and nominal steps that all runs of the two have reached." in said


def test_a_run_that_goes_on_has_no_figure_at_a_later_time(tmp_path, call):
    *before, last = study()
    path = stored(tmp_path / "r.csv", [*before, dataclasses.replace(last, complete=False)])
    said = call("results table --seconds 40", path).out
    assert "Not yet at 40 s, so without a figure there: 1 (1 of ESAC)." in said
    (line,) = [line for line in said.splitlines() if line.startswith("| ESAC |")]
    assert "| 9 (9, -) |" in line
    assert "without a figure" not in call("results table --seconds 31", path).out


def test_the_oldest_figure_is_told_where_it_is_old(tmp_path, call):
    path = stored(tmp_path / "r.csv", study())
    said = call("results table --seconds 38", path).out  # SAC's at 8
    assert "The oldest figure there is from 30 s before that, or before its run's end." in said
    assert "The oldest" not in call("results table --seconds 44.5", path).out
    esac = traces.sections(study())["A-v0"]["ESAC"]
    # at 30.5 s seed 1 has one at 20, the next at 31; at 100 s their ends; at 5 s none
    for seconds, age in ((25, 5), (30.5, 10.5), (100, 0), (5, 0)):
        assert traces.oldest(esac, "wall_seconds", seconds, "better") == age


def test_experiments_of_other_settings_are_no_seeds_of_one():
    def made(experiment, seed, settings):
        (row,) = history("ES", seed, [(10, 1, 1.0, None)], experiment=experiment)
        return dataclasses.replace(row, settings=settings)

    one = made("x", 0, "aaaaaaaa")
    with pytest.raises(Unusable, match="A-v0, ES: rows of other settings"):
        by_task([one, made("y", 1, "bbbbbbbb")])
    assert len(by_task([one, made("y", 1, "aaaaaaaa")])) == 2


@pytest.mark.parametrize("clock", ["inf 3 2", "own nan"])
def test_a_clock_without_its_own_time_or_of_no_number_is_damaged(clock):
    (row,) = history("ES", 0, [(10, 1, 1.0, None)])
    with pytest.raises(Unusable, match="its clock is"):
        traces.clock_of(dataclasses.replace(row, clock=clock))
