"""The pictures made of the compact record of an experiment, by numbers worked out by hand."""

import dataclasses

import pytest
from commands import command
from result_rows import EMPTY, history, stored, study

from esac_mpi.analysis.colours import COLOURS
from esac_mpi.analysis.results import pictures, standings, traces
from esac_mpi.analysis.results.rows import Row

results = command("results")
STEPS = "environment steps of population and learner"
WALL = "wall time [s]"
NOMINAL = "nominal steps (the papers' count)"


def drawn(rows, **options):
    return pictures.curves(traces.sections(rows), **options)


@pytest.mark.parametrize(
    ("options", "x", "ends"),
    [
        ({"what": "returns"}, STEPS, {"ESAC": (100, 300, 2.5, 10), "SAC": (60, 150, 5.8, 20.2)}),
        ({"what": "returns", "policy": "theta_es"}, STEPS, {"ESAC": (100, 300, 1.5, 10)}),
        (
            {"what": "returns", "x": "wall_seconds"},
            WALL,
            {"ESAC": (10, 30, 2.5, 108 / 11), "SAC": (8, 40, 5, 181 / 9)},
        ),
        ({"what": "training"}, "training episodes", {"ESAC": (1, 3, 1, 3), "SAC": (1, 2, 1, 2)}),
        ({"what": "updates"}, NOMINAL, {"ESAC": (50, 150, 200, 600), "SAC": (60, 150, 120, 300)}),
    ],
)  # fmt: skip
def test_curves_over_what_all_seeds_have(capsys, options, x, ends):
    (axes,) = drawn(study(), **options).axes
    assert axes.get_xlabel() == x
    assert axes.get_title() == "A-v0"
    found = {line.get_label().removesuffix(", 2 seeds"): line for line in axes.lines}
    seen = {
        name: (*line.get_xdata()[[0, -1]], *line.get_ydata()[[0, -1]])
        for name, line in found.items()
    }
    assert seen == {name: pytest.approx(numbers) for name, numbers in ends.items()}
    # it has none: named
    assert ("SAC, seed 0" in capsys.readouterr().err) == (options.get("policy") == "theta_es")


@pytest.mark.parametrize(
    ("policy", "lines"),
    [("better", {"SAC": (20, 22, 21), "ESAC": (9, 11, 10)}), ("theta_es", {"ESAC": (9, 11, 10)})],
)
def test_the_last_return_of_each_variant_the_best_first(policy, lines):
    (axes,) = pictures.ends(traces.sections(study()), policy).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(lines)
    assert axes.get_title() == "A-v0"
    points = [line for line in axes.lines if line.get_marker() == "."]
    means = [bar.lines[0].get_xdata()[0] for bar in axes.containers]
    assert [(*line.get_xdata(), m) for line, m in zip(points, means, strict=True)] == list(
        lines.values()
    )
    assert [set(line.get_ydata()) for line in points] == [{n} for n in range(len(lines))]
    spans = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in axes.containers]
    # of two seeds: from one to the other
    assert spans == [[seeds[0], seeds[1]] for seeds in lines.values()]
    assert [line.get_color() for line in points] == [COLOURS[name.lower()] for name in lines]


def test_no_last_return_is_an_error(tmp_path, capsys):
    path = stored(tmp_path / "r.csv", history("SAC", 0, [(10, 1, None, 5.0)]))
    assert (
        results.main(
            [
                "draw",
                path,
                "--what",
                "ends",
                "--policy",
                "theta_es",
                "--out",
                str(tmp_path / "x.png"),
            ]
        )
        == 2
    )
    assert capsys.readouterr().err == "nothing to draw: no run has a return of theta_es\n"


def sweep(task="A-v0", scale=1.0, values=("1e-06", "0.01", "1")):
    return [
        row
        for n, value in enumerate(values)
        for seed in (0, 1)
        for row in history(
            "ESAC",
            seed,
            [(10, 1, -9.0, None), (20, 2, scale * (n + 2 * seed) + 1, None)],
            value=value,
            task=task,
        )
    ]


def swept(rows, **options):
    return pictures.sensitivity(traces.sections(rows), field="zeta", **options)


def test_sensitivity_at_the_end_against_the_value():
    (axes,) = swept(sweep() + sweep("B-v0", 10)).axes
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "zeta"
    lines = {container.get_label(): container[0] for container in axes.containers}
    assert list(lines) == ["A-v0, 2 seeds a point", "B-v0, 2 seeds a point"]
    assert lines["A-v0, 2 seeds a point"].get_xdata().tolist() == [1e-6, 0.01, 1]
    # fitness_mean: returns 1 3, 2 4, 3 5, less 1
    assert lines["A-v0, 2 seeds a point"].get_ydata().tolist() == [1, 2, 3]
    assert lines["B-v0, 2 seeds a point"].get_ydata().tolist() == [10, 20, 30]
    (normalised,) = swept(sweep() + sweep("B-v0", 10), normalise=True, measure="return").axes
    assert [c[0].get_ydata().tolist() for c in normalised.containers] == [
        pytest.approx([2 / 4, 3 / 4, 1]), pytest.approx([11 / 31, 21 / 31, 1])
    ]  # fmt: skip


def test_what_is_measured_is_told_within_the_picture():
    figure = swept(
        sweep(task="InvertedDoublePendulum-v5") + sweep(task="Swimmer-v5"), normalise=True
    )  # two lines of legend
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label
    assert (
        label.get_text().replace("\n", " ")
        == "mean fitness, mean over generations / best of the line"
    )
    assert figure.bbox.y0 <= label.get_window_extent().y0
    assert label.get_window_extent().y1 <= figure.bbox.y1


def test_sensitivity_to_words():
    (axes,) = swept(sweep(values=("soft", "hard"))).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["hard", "soft"]
    assert axes.containers[0][0].get_xdata().tolist() == [0, 1]
    assert axes.containers[0][0].get_ydata().tolist() == [2, 1]  # soft is the first of the sweep


@pytest.mark.parametrize("what", ["returns", "training", "updates", "sensitivity"])
def test_pictures_are_written(tmp_path, capsys, what):
    path = stored(tmp_path / "r.csv", sweep() if what == "sensitivity" else study())
    assert (
        results.main(
            ["draw", path, "--what", what, "--seeds", "--out", str(tmp_path / "new" / "x")]
        )
        == 0
    )
    assert capsys.readouterr().out == f"{tmp_path / 'new' / 'x.png'}\n"
    assert (tmp_path / "new" / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("what", "rows", "said"),
    [
        ("sensitivity", study(), "a sweep needs two values"),
        ("returns", [EMPTY], "nothing to draw yet"),
    ],
)
def test_nothing_to_draw(tmp_path, capsys, what, rows, said):
    assert (
        results.main(
            [
                "draw",
                stored(tmp_path / "r.csv", rows),
                "--what",
                what,
                "--out",
                str(tmp_path / "x.png"),
            ]
        )
        == 2
    )
    assert said in capsys.readouterr().err


def test_every_measure_is_a_field():
    names = {field.name for field in dataclasses.fields(Row)} | {"better"}
    assert {y for y, _ in standings.MEASURES.values()} | {
        *standings.POLICIES.values(),
        *pictures.POLICIES.values(),
    } <= names
