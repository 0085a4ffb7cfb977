"""The pictures made of the compact record of an experiment, by numbers worked out by hand."""

from itertools import chain

import pytest
from figure_runs import lines as drawn_lines
from result_rows import EMPTY, drawn, history, stored, study

from esac_mpi.analysis.colours import COLOURS
from esac_mpi.analysis.results import pictures, traces
from esac_mpi.analysis.sensitivity import divide_by_best, draw_lines

STEPS = "environment steps of population and learner"


@pytest.mark.parametrize(
    ("options", "x", "ends"),
    [
        ({"what": "return"}, STEPS, {"ESAC": (100, 300, 2.5, 10), "SAC": (60, 150, 5.8, 20.2)}),
        ({"what": "return", "policy": "theta_es"}, STEPS, {"ESAC": (100, 300, 1.5, 10)}),
        ({"what": "return", "x": "wall"}, "wall time [s]",
         {"ESAC": (10, 30, 2.5, 108 / 11), "SAC": (8, 40, 5, 181 / 9)}),
        ({"what": "training"}, "training episodes", {"ESAC": (1, 3, 1, 3), "SAC": (1, 2, 1, 2)}),
        ({"what": "updates", "x": "nominal_steps"}, "nominal steps (the papers' count)",
         {"ESAC": (50, 150, 200, 600), "SAC": (60, 150, 120, 300)}),
    ],
)  # fmt: skip
def test_curves_over_what_all_seeds_have(capsys, options, x, ends):
    (axes,) = drawn(study(), **options).axes
    assert (axes.get_xlabel(), axes.get_title()) == (x, "A-v0")
    seen = {
        name.removesuffix(", 2 seeds"): (xs[0], xs[-1], ys[0], ys[-1])
        for name, (xs, ys) in drawn_lines(axes).items()
    }
    assert seen == {name: pytest.approx(numbers) for name, numbers in ends.items()}
    # it has none: named
    assert ("SAC, seed 0" in capsys.readouterr().err) == (options.get("policy") == "theta_es")


@pytest.mark.parametrize(
    ("policy", "lines"),
    [("better", {"SAC": (20, 22, 21), "ESAC": (9, 11, 10)}), ("theta_es", {"ESAC": (9, 11, 10)})],
)
def test_the_last_return_of_each_variant_the_best_first(policy, lines):
    (axes,) = pictures.draw_last_returns(traces.sections(study()), policy).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(lines)
    assert axes.get_title() == "A-v0"
    points = [line for line in axes.lines if line.get_marker() == "."]
    means = [bar.lines[0].get_xdata()[0] for bar in axes.containers]
    seen = [(*line.get_xdata(), mean) for line, mean in zip(points, means, strict=True)]
    assert seen == list(lines.values())
    assert [set(line.get_ydata()) for line in points] == [{n} for n in range(len(lines))]
    spans = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in axes.containers]
    # of two seeds: from one to the other
    assert spans == [[seeds[0], seeds[1]] for seeds in lines.values()]
    assert [line.get_color() for line in points] == [COLOURS[name.lower()] for name in lines]


def test_long_names_leave_room_for_the_returns():
    long = chain(*(history(f"{n} {'variant ' * 15}", 0, [(9, 1, n, None)]) for n in (1.0, 2.0)))
    drawing = pictures.draw_last_returns(traces.sections(long))
    drawing.canvas.draw()
    (axes,) = drawing.axes
    assert axes.get_window_extent().width > 100
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(box.x0 >= 0 for box in boxes)
    assert boxes[0].y0 >= boxes[1].y1


def test_the_learners_returns_are_said_to_be_the_champions_of_erl():
    drawing = drawn(study(), "return", "learner")
    assert "of ERL and its forms the champion" in drawing.get_suptitle().replace("\n", " ")


def test_an_ends_picture_names_whom_it_leaves_out(tmp_path, call):
    rows = [*study(), *history("ES", 0, [(9, 1, None, None)])]
    line = "plot --what ends", stored(tmp_path / "r.csv", rows), "--out", tmp_path / "x.png"
    assert "left out, nothing of this measure (yet): A-v0, ES, seed 0" in call(*line).err


@pytest.mark.parametrize("what", ["return", "ends"])
@pytest.mark.parametrize("name", ["", " "])
def test_a_variant_without_a_name_is_drawn(name, what, tmp_path, call):
    path = stored(tmp_path / "r.csv", history(name, 0, [(50, 8, None, 4.0)]))
    assert call(f"plot --what {what} --out", tmp_path / "x.png", path).err == ""


def test_a_name_that_begins_with_a_line_is_shown():
    drawing = drawn(history("_x", 0, [(50, 8, None, 4.0)]), "return")
    assert [text.get_text().strip() for text in drawing.axes[0].texts] == ["_x, seed 0"]


def sweep(task="A-v0", scale=1.0, values=("1e-06", "0.01", "1"), variant="ESAC"):
    rows = []
    for n, value in enumerate(values):
        for seed in (0, 1):
            points = [(10, 1, -9.0, None), (20, 2, scale * (n + 2 * seed) + 1, None)]
            rows += history(variant, seed, points, value=value, task=task)
    return rows


def swept(rows, measure="mean", normalise=False):
    found = pictures.measure_sweep(traces.sections(rows), "zeta", measure)
    return draw_lines(divide_by_best(found) if normalise else found, "zeta", "return", "a title")


def test_sensitivity_at_the_end_against_the_value():
    both = sweep() + sweep("B-v0", 10)
    panels = swept(both).axes
    for axes, name in zip(panels, "AB", strict=True):
        assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "zeta")
        assert axes.get_title() == f"{name}-v0"
    found = [bars for axes in panels for bars in axes.containers]
    assert [bars.get_label() for bars in found] == ["ESAC, 2 seeds a point"] * 2
    a, b = (bars[0] for bars in found)
    assert a.get_xdata().tolist() == [1e-6, 0.01, 1]
    # fitness_mean: returns 1 3, 2 4, 3 5, less 1
    assert (a.get_ydata().tolist(), b.get_ydata().tolist()) == ([1, 2, 3], [10, 20, 30])
    normalised = swept(both, "final", normalise=True).axes
    found = [bars[0].get_ydata().tolist() for axes in normalised for bars in axes.containers]
    assert found == [pytest.approx([2 / 4, 3 / 4, 1]), pytest.approx([11 / 31, 21 / 31, 1])]


def test_sensitivity_names_the_runs_that_have_no_value(capsys):
    (axes,) = swept([*sweep(), *history("ES", 3, [(10, 1, 5.0, None)])]).axes
    assert len(axes.containers) == 1
    assert (
        "left out, nothing to measure, or not that far: A-v0, ES, seed 3" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("values", "shown"), [(("soft", "hard"), ["hard", "soft"]), (("inf", "0.5"), ["0.5", "inf"])]
)
def test_sensitivity_to_words_and_to_what_no_axis_has(values, shown):
    (axes,) = swept(sweep(values=values)).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == shown
    assert axes.containers[0][0].get_xdata().tolist() == [0, 1]
    assert axes.containers[0][0].get_ydata().tolist() == [2, 1]  # the last is the sweep's first


@pytest.mark.parametrize("what", ["return", "training", "ends", "sensitivity --field zeta"])
def test_pictures_are_written(tmp_path, call, what):
    # suffixes are read in any case, and dollars in a name are no mathematics
    path = stored(tmp_path / "r.CSV", sweep(r"A$\x$", variant=r"$\x$"))
    out = tmp_path / "new" / "x.PNG"
    assert call(f"plot --what {what} --out", out, path).out == f"{out}\n"
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("what", "rows", "said"),
    [
        ("sensitivity --field zeta", study(), "have no sweep: a sweep needs two values"),
        # whose returns it takes
        ("sensitivity --field zeta --policy sac", study(), "of results.csv does not read --policy"),
        ("return", [EMPTY], "nothing to draw yet"),
        ("ends --policy theta_es", study()[:2], "no run has a return of theta_es"),
        ("return --policy feet", study(), "rows of results have better, theta_es, learner"),
        ("sensitivity --field zeta --measure best", sweep(), "rows of results have final, mean"),
        ("sensitivity --field zeta --measure fates", sweep(), "invalid choice: 'fates'"),
        ("sensitivity --field zeta --at-steps 10000", sweep(), "zeta has no measured run"),
        ("losses", study(), "draws run directories"),
    ],
)
def test_nothing_to_draw(tmp_path, call, what, rows, said):
    words = [stored(tmp_path / "r.csv", rows), "--out", tmp_path / "x.png"]
    told = call(f"plot --what {what}", *words, code=2).err
    assert said in told
    assert "left out" not in told or rows != study()  # whose runs lack nothing
