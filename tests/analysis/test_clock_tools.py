"""Pictures and tables against computed time, which they say."""

from dataclasses import replace

import pytest
from clocked_runs import FOUR, run_of
from result_rows import history, stored

from esac_mpi.analysis import published, times
from esac_mpi.analysis import scaling as scalings
from esac_mpi.analysis.figures import plt
from esac_mpi.analysis.plots import figure
from esac_mpi.analysis.results.traces import on_ranks

PHASE = (5.0, 3.0, 300)  # [s], of it updates, and their number
# 4 s of members, 5 of learning, 1 of evaluation, 0.6 of other things
ROWS = [(FOUR, True, PHASE, (0.5, 0.5))] * 3


def test_a_picture_against_computed_time_says_so(tmp_path, call):
    runs = [run_of(tmp_path / name, ROWS, seed=seed) for seed, name in enumerate("ab")]
    drawing = figure(runs[:1], "return", "wall", ranks=4)
    assert [round(float(t), 2) for t in drawing.axes[0].lines[0].get_xdata()] == [7.1, 14.2, 21.3]
    plt.close(drawing)
    drawing = figure(runs, "return", "wall", ranks=64)
    assert "wall time computed for 64 ranks" in drawing.get_suptitle().replace("\n", " ")
    assert drawing.axes[0].get_xlabel() == "wall time, computed [s]"
    plt.close(drawing)
    words = ["--out", tmp_path / "p.png", *(run.path for run in runs)]
    call("plot --x wall --ranks 64", *words)
    assert "it needs --x wall" in call("plot --ranks 64", *words, code=2).err


def test_a_table_at_equal_computed_time(tmp_path, call):
    path = run_of(tmp_path / "a", ROWS, returns=(1.0, 2.0, 3.0)).path

    def told(words, code=0):
        return call(f"table {path} --measure final {words}", code=code).out

    measured, four = told("--at-seconds 11"), told("--at-seconds 15 --ranks 4")
    assert measured.endswith("| HalfCheetah-v5 | 1.00 (1.00, n=1) |\n")  # a generation takes 10.6 s
    assert "at 11 s of wall time. Mean" in measured
    assert four.endswith("| HalfCheetah-v5 | 2.00 (2.00, n=1) |\n")  # 7.1 s
    assert "at 15 s of wall time, computed for 4 ranks. Mean" in four
    assert "| 1.00 (1.00, n=1) |" in told("--at-seconds 9 --ranks 4")
    told("--ranks 4", 2)
    told("--at-seconds 40 --ranks 4", 2)  # it is not that far


def test_scaling_to_ranks_that_nobody_ran_on(tmp_path, call):
    """Without its evaluation a generation takes 9.6 s, on two ranks 2 less, on four 3."""
    paths = [run_of(tmp_path / name, ROWS, seed=seed).path for seed, name in enumerate("ab")]
    line = "--what scaling --ranks 1 4 2 --out"
    call(f"plot {line}", tmp_path / "s.png", *paths)
    call(f"table --format csv {line}", tmp_path / "s.csv", *paths)
    rows = [row.split(",") for row in (tmp_path / "s.csv").read_text().splitlines()[-3:]]
    assert [(row[2], *(f"{float(x):.2f}" for x in row[3:6]), row[6]) for row in rows] == [
        ("1", "9.60", "2.40", "1.00", "measured"),
        ("2", "7.60", "1.90", "0.63", "computed"),
        ("4", "6.60", "1.65", "0.36", "computed"),
    ]
    told = call("plot --what scaling --ranks 0 --out x.png", *paths, code=2)
    assert "--ranks: 0: must be at least 1" in told.err
    for line in ("plot --what scaling", "table --what waiting", "table --at-seconds 9"):
        told = call(f"{line} --ranks 1_000_001", *paths, code=2)
        assert "--ranks: 1_000_001: must be at most 1000000" in told.err
    ant = run_of(tmp_path / "c", ROWS, **{"task.id": "Ant-v5"}).path
    told = call("plot --what scaling --published --out", tmp_path / "o.png", ant)
    assert "generations on Ant-v5 take; of CyclicMDP-v0, HalfCheetah-v5 one does" in told.err


def test_efficiency_of_computed_times_is_by_the_computed_one(tmp_path):
    """A core had half of the time: measured 2 x 9.6 s, computed 9.6 on one rank and 7.6 on two."""
    rows = times.scaling([run_of(tmp_path / "a", ROWS, slow=2.0)], 10, [2])
    # with 0.1 ms of the exchange
    assert [row["s a generation"] for row in rows] == pytest.approx([19.2, 7.6], rel=1e-4)
    assert [row["efficiency"] for row in rows] == pytest.approx([1.0, 9.6 / 2 / 7.6], rel=1e-4)


def test_scaling_beside_what_the_paper_prints(tmp_path):
    printed, source = published.times("HalfCheetah-v5")
    assert (printed["ESAC", 50], printed["ES", 50]) == ({2: 162, 64: 58}, {2: 17, 64: 1.5})
    assert "Figure 5" in source
    found = times.scaling([run_of(tmp_path / "a", ROWS)], 10, [2, 64])
    drawing = scalings.draw_scaling(found, "a title", printed)
    drawn = drawing.axes[0].get_lines()
    (paper,) = [line for line in drawn if line.get_label() == "paper: ESAC, n = 20"]
    assert (list(paper.get_xdata()), list(paper.get_ydata())) == ([2, 64], [97, 62])
    (hollow,) = [line for line in drawn if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_xdata()) == [2, 64]
    plt.close(drawing)


def test_rows_of_results_at_equal_computed_time(tmp_path, call):
    """SAC takes 20 s on any ranks; ES 40 s on one and 10 on four, so that it is ahead there."""
    steps = (1, 2, 3)
    sac = history("SAC", 0, [(10 * g, 9 * g, None, float(g)) for g in steps])
    es = history("ES", 0, [(10 * g, 9 * g, 3.0 + g, None) for g in steps])
    bare = stored(tmp_path / "bare.csv", es)
    sac = [replace(row, clock=f"own {20 * g};inf 0;30 1") for g, row in enumerate(sac, 1)]
    es = [
        replace(row, clock=f"own {40 * g} {20 * g} {10 * g}", gradient_updates=0)
        for g, row in enumerate(es, 1)
    ]
    assert [row.wall_seconds for row in on_ranks(es, 4)] == [10, 20, 30]
    path, out = stored(tmp_path / "r.csv", [*sac, *es]), tmp_path / "p.png"

    def told(ranks):
        line = f"results table --of SAC --seconds 40 --ranks {ranks}"
        said = call(line, path).out
        starts = ("| var", "| ES", "| SAC |")
        lines = [line.split(" | ") for line in said.splitlines() if line.startswith(starts)]
        return said, *lines

    said, heads, es_line, sac_line = told(4)
    column = heads.index("within 40 s, computed for 4 ranks")
    assert (es_line[column], sac_line[column]) == ("**6**", "2")
    assert "No verdicts" in said
    assert told(1)[2][column] == "**4**"
    more = [replace(row, seed=1) for row in (*sac, *es)]
    more = stored(tmp_path / "more.csv", [*sac, *es, *more])
    said = call("results table --of SAC --seconds 40 --ranks 4", more).out
    assert "at equal wall time, computed for 4 ranks |" in said
    for ranks in (3, 0):
        said = call(f"results table --ranks {ranks}", path, code=2).err
        assert "have the clock of 1, 2, 4 .. 1,024" in said
    call("plot --x wall --ranks 4 --out", out, path)
    assert "it needs --x wall" in call("plot --ranks 4 --out", out, path, code=2).err
    said = call("results table --ranks 4", bare, code=2).err
    assert "no clock on other ranks is recorded" in said
    broken = stored(tmp_path / "broken.csv", [replace(row, clock="own soon") for row in es])
    call("results table --ranks 4", broken, code=65)
