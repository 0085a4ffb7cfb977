"""What tools make of the computed clock: pictures and tables against a time that was not measured, and say so."""

import dataclasses

import pytest
from clocked_runs import FOUR, run_of
from commands import command
from result_rows import history, stored

from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.command import opened
from esac_mpi.analysis.plots import figure
from esac_mpi.analysis.results.traces import on_machine

plot, results, table = command("plot"), command("results"), command("table")
PHASE = (5.0, 3.0, 300)  # [s], of it updates, and their number
ROWS = [(FOUR, True, PHASE, (0.5, 0.5))] * 3  # 4 s of members, 5 of learning, 1 of evaluation, 0.6 of other things


def test_a_picture_against_the_clock_of_a_machine_says_that_it_is_computed(tmp_path, capsys):
    run_of(tmp_path / "a", ROWS)
    run_of(tmp_path / "b", ROWS, seed=1)
    (axes,) = figure(opened([tmp_path / "a"]), "return", "wall", machine=Machine(4)).axes
    assert [round(float(t), 2) for t in axes.lines[0].get_xdata()] == [7.1, 14.2, 21.3]
    out = str(tmp_path / "p.png")
    runs = [str(tmp_path / name) for name in "ab"]
    assert plot.main([*runs, "--x", "wall", "--ranks", "64", "--updates-per-second", "1000", "--out", out]) == 0
    drawing = figure(opened(runs), "return", "wall", machine=Machine(64, 1000.0))
    assert "wall time computed for 64 ranks, 1,000 updates/s" in drawing.get_suptitle().replace("\n", " ")
    assert drawing.axes[0].get_xlabel() == "wall time, computed [s]"
    assert plot.main([*runs, "--ranks", "64", "--out", out]) == 2
    assert "it needs --x wall" in capsys.readouterr().err
    assert plot.main([*runs, "--x", "wall", "--updates-per-second", "9", "--out", out]) == 2


def test_a_table_at_equal_computed_time(tmp_path, capsys):
    run_of(tmp_path / "a", ROWS, returns=(1.0, 2.0, 3.0))
    at = [str(tmp_path / "a"), "--measure", "final", "--at-seconds"]

    def told(*more):
        assert table.main([*at, *more]) == 0
        return capsys.readouterr().out

    measured, four = told("11"), told("15", "--ranks", "4")  # a generation takes 10.6 s, and 7.1
    assert measured.endswith("| HalfCheetah-v5 | 1.00 (1.00, n=1) |\n")
    assert "at 11 s of wall time. Mean" in measured
    assert four.endswith("| HalfCheetah-v5 | 2.00 (2.00, n=1) |\n")
    assert "at 15 s of wall time, computed for 4 ranks. Mean" in four
    assert "| 1.00 (1.00, n=1) |" in told("9", "--ranks", "4")
    assert "| 2.00 (2.00, n=1) |" in told("9", "--ranks", "4", "--updates-per-second", "1000")  # 4.4 s
    assert table.main([*at[:3], "--ranks", "4"]) == 2
    assert table.main([*at, "40", "--ranks", "4"]) == 2  # it is not that far


def clocked(variant, seed, points, clock):
    return [dataclasses.replace(row, clock=clock(row)) for row in history(variant, seed, points)]


def test_rows_of_results_at_equal_computed_time(tmp_path, capsys):
    """SAC takes 20 s whatever the ranks; ES 40 s on one and 10 on four, so that it is ahead there."""
    points = [(10, 9, None, 1.0), (20, 18, None, 2.0), (30, 27, None, 3.0)]
    sac = clocked("SAC", 0, points, lambda row: f"own {20 * row.generation};inf 0")
    points = [(10, 9, 4.0, None), (20, 18, 5.0, None), (30, 27, 6.0, None)]
    es = clocked("ES", 0, points, lambda row: f"own {40 * row.generation} {20 * row.generation} {10 * row.generation}")
    path = stored(tmp_path / "r.csv", [*sac, *es])
    assert [row.wall_seconds for row in on_machine(es, Machine(4))] == [10, 20, 30]
    assert [row.wall_seconds for row in on_machine(sac, Machine(4, 10.0))] == [2, 4, 6]  # of 20, 40, 60 updates

    def told(*more):
        assert results.main(["table", path, "--of", "SAC", *more]) == 0
        return capsys.readouterr().out

    one, four = told("--ranks", "1", "--seconds", "40"), told("--ranks", "4", "--seconds", "40")
    heads, es_line, sac_line = [line.split(" | ") for line in four.splitlines() if line.startswith(("| var", "| ES", "| SAC |"))]
    column = heads.index("within 40 s, computed for 4 ranks")
    assert (es_line[column], sac_line[column]) == ("**6** (6)", "2 (2)")
    assert "at equal wall time, computed for 4 ranks" in four
    assert next(line for line in one.splitlines() if line.startswith("| ES")).split(" | ")[column] == "**4** (4)"
    out = str(tmp_path / "p.png")
    assert results.main(["draw", path, "--x", "wall_seconds", "--ranks", "4", "--out", out]) == 0
    bare = stored(tmp_path / "bare.csv", history("ES", 0, points))
    capsys.readouterr()
    assert results.main(["table", bare, "--ranks", "4"]) == 2
    assert "no clock on other ranks is recorded" in capsys.readouterr().err
    broken = stored(tmp_path / "broken.csv", [dataclasses.replace(row, clock="own soon") for row in es])
    assert results.main(["table", broken, "--ranks", "4"]) == 65


def test_a_run_on_its_own_ranks_takes_what_it_took(tmp_path):
    run = run_of(tmp_path / "a", ROWS)
    assert computed(run, Machine(1)) == pytest.approx(run.columns["timing/wall_seconds"])
