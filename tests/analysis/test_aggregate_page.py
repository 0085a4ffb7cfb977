"""The page and the picture of an aggregate: which numbers and words stand where."""

import pytest
from result_rows import SIX, finals, run, scored, stored

from esac_mpi.analysis.figures import plt
from esac_mpi.analysis.results import aggregate_page, pictures

ROWS = [
    *finals({"ESAC": (12, 12), "ES": (7, 7), "SAC": (4, 4)}),
    *finals({"ESAC": (-50, -50), "ES": (100, 100), "SAC": (-100,)}, "B-v0"),
]


def test_the_page():
    text = aggregate_page.document(scored(ROWS), "esac", SIX).splitlines()
    assert text[0].startswith("Normalised returns at 6 s of wall time, as measured. ")
    assert text[2] == "Tasks: 2; runs of a variant on a task: 1 to 2."
    assert (
        "Mean score over seeds, in round brackets the mean return;"
        " n: seeds where there are fewer than 2." in text
    )
    tables = [line for line in text if line.startswith("| ") and "---" not in line]
    assert tables == [
        "| variant | runs | IQM | median of the tasks' means | mean |",
        "| ESAC | 4 | 0.62 [0.62, 0.62] | 0.62 [0.62, 0.62] | 0.62 [0.62, 0.62] |",
        "| ES | 4 | **0.75** [0.75, 0.75] | **0.75** [0.75, 0.75] | **0.75** [0.75, 0.75] |",
        # of three runs nothing is cut, and the one counts as much as the two
        "| SAC | 3 | 0.10 | 0.10 | 0.10 |",
        "| other | P(ESAC > other) | difference of the IQMs |",
        "| ES | 0.50 [0.50, 0.50] | -0.12 [-0.12, -0.12] |",
        "| SAC | 1.00 | +0.53 |",  # 0.625 - 0.1
        "| task | random | best | ESAC | ES | SAC |",
        "| A-v0 | 2.00 | 12.00 | **1.00** (12.00) | 0.50 (7.00) | 0.20 (4.00) |",
        "| B-v0 | -100.0 | 100.0 | 0.25 (-50.00) | **1.00** (100.0) | 0.00 (-100.0, n=1) |",
    ]


def test_the_page_says_what_is_missing():
    rows = [*ROWS, run("TD3", 0, [(3, 5.0)]), run("TD3", 1, [(3, 5.0)], done=False)]
    text = aggregate_page.document(scored(rows), "TD3", SIX)
    for said in (
        "Not in the aggregate: B-v0 (no run is that far of TD3).",
        "Runs without a score yet: 1 (1 of TD3).",
        "Runs that ended before, so counted as they ended: 1 (1 of TD3), after 3 s.",
    ):
        assert said in text
    assert "| B-v0 |" not in text


def test_without_the_variant_that_is_asked_for_none_is_compared(capsys):
    text = aggregate_page.document(scored(ROWS), "PPO", SIX)
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == ["## All tasks together", "## Task by task"]
    assert "there are ESAC; ES; SAC" in capsys.readouterr().err


def test_the_picture_has_the_best_on_top_and_a_panel_a_task():
    rows = [*ROWS, *finals({"SAC": (-900,)}, "B-v0", start=1)]
    drawing = pictures.draw_scores(scored(rows), SIX)
    whole, _, last = drawing.axes[:3]
    assert [text.get_text() for text in whole.get_yticklabels()] == ["ES", "ESAC", "SAC"]
    # SAC: 0.2 0.2 of 0 and -4 cut
    middles = sorted(bars.lines[0].get_xdata()[0] for bars in whole.containers)
    assert middles == pytest.approx([0.1, 0.625, 0.75])
    assert [panel.get_title() for panel in drawing.axes] == ["all 2 together: IQM", "A-v0", "B-v0"]
    dots = {
        line.get_ydata()[0]: line.get_xdata().tolist()
        for line in last.lines
        if line.get_marker() == "."
    }
    assert dots == {0: [1, 1], 1: [0.25, 0.25], 2: [0, -0.25]}  # -4
    assert "6 s of wall time, as measured" in drawing.get_suptitle().replace("\n", " ")
    plt.close(drawing)


def test_the_command_compares_at_computed_time_and_marks_it(tmp_path, call):
    """SAC is there after 4 s on any ranks, ES after 8 s on one, 2 on four: scored on four alone."""
    book = tmp_path / "random.toml"
    book.write_text('"A-v0" = { mean = 2 }\n')
    sac = run("SAC", 0, [(6, 12.0)], clock="own 4;inf 0")
    path = stored(tmp_path / "r.csv", [*sac, *run("ES", 0, [(6, 7.0)], clock="own 8 4 2")])

    def aggregated(ranks, *words, of="--of ES", random=book, code=0):
        line = f"results aggregate --seconds 5 {of} --ranks {ranks}"
        return call(line, path, "--random", random, *words, code=code)

    assert "A-v0: no run is that far of ES" in aggregated(1, code=2).err
    page = aggregated(4).out
    assert page.startswith("# x (small): normalised scores\n\nNormalised returns at 5 s of")
    assert "at 5 s of wall time, computed for 4 ranks. " in page
    assert "| ES | 1 | 0.50 | 0.50 | 0.50 |" in page
    text, picture = tmp_path / "new" / "a.md", tmp_path / "new" / "a.PNG"
    assert aggregated(4, "--out", text).out == f"{text}\n"
    assert text.read_text() == page
    assert aggregated(4, "--out", picture, of="").out == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    book.write_text('"A-v0" = { average = 2 }\n')
    aggregated(4, code=65)
    none = aggregated(4, random=tmp_path / "none.toml", code=2)
    assert "esac-mpi experiment random TASK" in none.err
