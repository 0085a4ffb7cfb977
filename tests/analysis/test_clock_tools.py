"""What tools make of the computed clock: pictures and tables against a time that was not measured.

They say so.
"""

import dataclasses

import pytest
from clocked_runs import FOUR, run_of
from commands import command
from result_rows import history, stored

from esac_mpi.analysis import published, times
from esac_mpi.analysis import scaling as scalings
from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.command import opened
from esac_mpi.analysis.figures import plt
from esac_mpi.analysis.plots import figure
from esac_mpi.analysis.results.traces import on_machine

plot, results, table = map(command, ("plot", "results", "table"))
PHASE = (5.0, 3.0, 300)  # [s], of it updates, and their number
# 4 s of members, 5 of learning, 1 of evaluation, 0.6 of other things
ROWS = [(FOUR, True, PHASE, (0.5, 0.5))] * 3


def test_a_picture_against_the_clock_of_a_machine_says_that_it_is_computed(tmp_path, capsys):
    run_of(tmp_path / "a", ROWS)
    run_of(tmp_path / "b", ROWS, seed=1)
    drawing = figure(opened([tmp_path / "a"]), "return", "wall", machine=Machine(4))
    assert [round(float(t), 2) for t in drawing.axes[0].lines[0].get_xdata()] == [7.1, 14.2, 21.3]
    plt.close(drawing)
    out = str(tmp_path / "p.png")
    runs = [str(tmp_path / name) for name in "ab"]
    assert plot.main([*runs, "--x", "wall", "--ranks", "64", "--out", out]) == 0
    drawing = figure(opened(runs), "return", "wall", machine=Machine(64))
    assert "wall time computed for 64 ranks" in drawing.get_suptitle().replace("\n", " ")
    assert drawing.axes[0].get_xlabel() == "wall time, computed [s]"
    plt.close(drawing)
    assert plot.main([*runs, "--ranks", "64", "--out", out]) == 2
    assert "it needs --x wall" in capsys.readouterr().err


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
    assert table.main([*at[:3], "--ranks", "4"]) == 2
    assert table.main([*at, "40", "--ranks", "4"]) == 2  # it is not that far


def test_scaling_to_ranks_that_nobody_ran_on(tmp_path, capsys):
    """Without its evaluation a generation takes 9.6 s, on two ranks 2 less, on four 3."""
    paths = [str(run_of(tmp_path / name, ROWS, seed=seed).path) for seed, name in enumerate("ab")]
    line = [*paths, "--what", "scaling", "--ranks", "1", "4", "2"]
    assert plot.main([*line, "--out", str(tmp_path / "s.png")]) == 0
    capsys.readouterr()
    assert table.main([*line, "--format", "csv"]) == 0
    rows = [row.split(",") for row in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[2], *(f"{float(x):.2f}" for x in row[3:6]), row[6]) for row in rows] == [
        ("1", "9.60", "2.40", "1.00", "measured"),
        ("2", "7.60", "1.90", "0.63", "computed"),
        ("4", "6.60", "1.65", "0.36", "computed"),
    ]
    assert plot.main([*paths, "--what", "scaling", "--ranks", "0"]) == 2
    assert "must be 1 or more" in capsys.readouterr().err
    other = [str(run_of(tmp_path / "c", ROWS, **{"task.id": "Ant-v5"}).path), "--what", "scaling"]
    assert plot.main([*other, "--published", "--out", str(tmp_path / "o.png")]) == 0
    assert (
        "no paper prints how long generations on Ant-v5 take;"
        " of CyclicMDP-v0, HalfCheetah-v5 one does" in capsys.readouterr().err
    )


def test_efficiency_of_computed_times_is_by_the_computed_one(tmp_path):
    """A core had half of the time: measured 2 x 9.6 s, computed 9.6 on one rank and 7.6 on two."""
    found = times.times_of([run_of(tmp_path / "a", ROWS, slow=2.0)], 10, [2])["ESAC", 4]
    # with 0.1 ms of the exchange
    assert [points[0].seconds for points in found.values()] == pytest.approx([19.2, 7.6], rel=1e-4)
    assert times.efficiency(found) == pytest.approx({1: 1.0, 2: 9.6 / 2 / 7.6}, rel=1e-4)


def test_scaling_beside_what_the_paper_prints(tmp_path):
    printed, source = published.times("HalfCheetah-v5")
    assert (printed["ESAC", 50], printed["ES", 50]) == ({2: 162, 64: 58}, {2: 17, 64: 1.5})
    assert "Figure 5" in source
    found = times.times_of([run_of(tmp_path / "a", ROWS)], 10, [2, 64])
    drawing = scalings.figure(found, "a title", printed)
    lines = {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in drawing.axes[0].get_lines()
    }
    assert lines["paper: ESAC, n = 20"] == ([2, 64], [97, 62])
    (hollow,) = [
        line for line in drawing.axes[0].get_lines() if line.get_markerfacecolor() == "white"
    ]
    assert list(hollow.get_xdata()) == [2, 64]
    plt.close(drawing)


def clocked(variant, seed, points, clock):
    """Return rows with a clock; without a learner's return they have no updates."""
    found = [dataclasses.replace(row, clock=clock(row)) for row in history(variant, seed, points)]
    return [
        row if row.return_learner else dataclasses.replace(row, gradient_updates=0) for row in found
    ]


def test_rows_of_results_at_equal_computed_time(tmp_path, capsys):
    """SAC takes 20 s on any ranks; ES 40 s on one and 10 on four, so that it is ahead there."""
    points = [(10, 9, None, 1.0), (20, 18, None, 2.0), (30, 27, None, 3.0)]
    sac = clocked("SAC", 0, points, lambda row: f"own {20 * row.generation};inf 0;30 1")
    points = [(10, 9, 4.0, None), (20, 18, 5.0, None), (30, 27, 6.0, None)]
    es = clocked(
        "ES",
        0,
        points,
        lambda row: f"own {40 * row.generation} {20 * row.generation} {10 * row.generation}",
    )
    path = stored(tmp_path / "r.csv", [*sac, *es])
    assert [row.wall_seconds for row in on_machine(es, Machine(4))] == [10, 20, 30]

    def told(*more):
        assert results.main(["table", path, "--of", "SAC", *more]) == 0
        return capsys.readouterr().out

    one, four = told("--ranks", "1", "--seconds", "40"), told("--ranks", "4", "--seconds", "40")
    heads, es_line, sac_line = [
        line.split(" | ")
        for line in four.splitlines()
        if line.startswith(("| var", "| ES", "| SAC |"))
    ]
    column = heads.index("within 40 s, computed for 4 ranks")
    assert (es_line[column], sac_line[column]) == ("**6** (6)", "2 (2)")
    assert "at equal wall time, computed for 4 ranks |" in four
    for other in (["--ranks", "3"], ["--ranks", "0"]):
        assert results.main(["table", path, *other]) == 2
        assert "rows of results have the clock of 1, 2, 4 .. 1,024" in capsys.readouterr().err
    assert (
        next(line for line in one.splitlines() if line.startswith("| ES")).split(" | ")[column]
        == "**4** (4)"
    )
    out = str(tmp_path / "p.png")
    assert results.main(["draw", path, "--x", "wall_seconds", "--ranks", "4", "--out", out]) == 0
    assert results.main(["draw", path, "--ranks", "4", "--out", out]) == 2
    assert "it needs --x wall_seconds" in capsys.readouterr().err
    bare = stored(tmp_path / "bare.csv", history("ES", 0, points))
    capsys.readouterr()
    assert results.main(["table", bare, "--ranks", "4"]) == 2
    assert "no clock on other ranks is recorded" in capsys.readouterr().err
    broken = stored(
        tmp_path / "broken.csv", [dataclasses.replace(row, clock="own soon") for row in es]
    )
    assert results.main(["table", broken, "--ranks", "4"]) == 65


def test_a_run_on_its_own_ranks_takes_what_it_took(tmp_path):
    run = run_of(tmp_path / "a", ROWS)
    assert computed(run, Machine(1)) == pytest.approx(run.columns["timing/wall_seconds"])
