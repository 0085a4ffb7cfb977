"""Runs short of the time at which rows of results are compared, and a figure's age, by hand."""

import dataclasses

import pytest
from commands import command
from result_rows import history, stored, study

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import rowfiles, traces
from esac_mpi.analysis.results.scores import by_task

results = command("results")


def page(capsys, *arguments):
    assert results.main(["table", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_a_run_that_ended_before_stands_as_it_ended_and_has_no_verdict_at_that_time(
    tmp_path, capsys
):
    said = page(capsys, stored(tmp_path / "r.csv", study()), "--seconds", "40")
    assert "Ended before 40 s, so counted as they ended: 2 (2 of ESAC), after 30 to 31 s." in said
    assert "| A-v0 | ESAC > SAC? |" in said
    assert "| none, ended before: 2 of ESAC (at 40 s) |" in said
    assert (
        "Each pair is compared at the most true and nominal steps"
        " that all runs of the two have reached." in said
    )


def test_a_run_that_goes_on_and_is_not_there_has_no_figure_at_that_time(tmp_path, capsys):
    *before, last = study()
    path = stored(tmp_path / "r.csv", [*before, dataclasses.replace(last, complete=False)])
    said = page(capsys, path, "--seconds", "40")
    assert "Not yet at 40 s, so without a figure there: 1 (1 of ESAC)." in said
    (line,) = [line for line in said.splitlines() if line.startswith("| ESAC |")]
    assert "| 9 (9, -) |" in line
    assert "without a figure" not in page(capsys, path, "--seconds", "31")


def test_the_oldest_figure_is_told_where_it_is_old(tmp_path, capsys):
    path = stored(tmp_path / "r.csv", study())
    assert "The oldest figure there is from 30 s before that, or before its run's end." in page(
        capsys, path, "--seconds", "38"
    )  # SAC's at 8
    assert "The oldest" not in page(capsys, path, "--seconds", "44.5")
    labels = traces.sections(study())["A-v0"]
    assert traces.oldest(labels["ESAC"], "wall_seconds", 25, "better") == 5
    # seed 1 has one at 20, the next at 31
    assert traces.oldest(labels["ESAC"], "wall_seconds", 30.5, "better") == 10.5
    assert traces.oldest(labels["ESAC"], "wall_seconds", 100, "better") == 0  # their ends
    assert traces.oldest(labels["ESAC"], "wall_seconds", 5, "better") == 0  # none then


def test_experiments_of_other_settings_are_no_seeds_of_one_variant():
    one = [
        dataclasses.replace(row, settings="a" * 8 * (row.generation == 1))
        for row in history("ES", 0, [(10, 1, 1.0, None)])
    ]
    other = [
        dataclasses.replace(row, experiment="y", seed=1, settings="b" * 8 * (row.generation == 1))
        for row in one
    ]
    with pytest.raises(Unusable, match="A-v0, ES: rows of other settings under one name"):
        by_task([*one, *other])
    alike = [dataclasses.replace(row, settings="a" * 8 * (row.generation == 1)) for row in other]
    assert len(by_task([*one, *alike])) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(",A-v0,", ",,", "line 2: task is ''"), (",SAC,", ",,", "line 2: variant is ''")],
)
def test_an_empty_name_is_a_damaged_file(tmp_path, old, new, said):
    path = tmp_path / "r.csv"
    stored(path, study())
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(Unusable, match=said):
        rowfiles.read([path])


@pytest.mark.parametrize("clock", ["inf 3 2", "own nan"])
def test_a_clock_without_its_own_time_or_of_no_number_is_damaged(clock):
    (row,) = history("ES", 0, [(10, 1, 1.0, None)])
    with pytest.raises(Unusable, match="its clock is"):
        traces.clock_of(dataclasses.replace(row, clock=clock))


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "r.csv"
    stored(path, study())
    rows = rowfiles.read([path])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert rowfiles.read([path]) == rows
