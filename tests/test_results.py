"""The compact record of an experiment, and the tables, verdicts and pictures made of it, by numbers worked out by hand."""

import dataclasses
import shlex
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
from commands import command
from conftest import ROOT
from test_tools_figures import make

from esac_mpi.analysis.command import opened
from esac_mpi.analysis.results import pictures, rowfiles, standings, traces, verdicts
from esac_mpi.analysis.results.rows import Row
from esac_mpi.analysis.results.rows import rows as rows_of
from esac_mpi.config import Config
from esac_mpi.record import Run

results = command("results")
EMPTY = Row("x", "small", "A-v0", "ES", "", 0, 1, 0, 0, 0.0, 0, 0, None, None, None, None, False)


def history(variant, seed, points, **more):
    """Return the rows of a run: (true steps, wall seconds, return of theta_es, return of the learner) each."""
    found = [
        dataclasses.replace(
            EMPTY, variant=variant, seed=seed, generation=g, env_steps=steps, wall_seconds=float(wall),
            nominal_steps=steps if es is None else 50 * g,
            gradient_updates=2 * steps, training_episodes=g, training_return=float(g), return_theta_es=es, return_learner=learner,
            fitness_mean=None if es is None else es - 1, **more,
        )
        for g, (steps, wall, es, learner) in enumerate(points, 1)
    ]  # fmt: skip
    return [*found[:-1], dataclasses.replace(found[-1], complete=True)]


def study():
    """Two seeds of ESAC and of SAC: SAC's steps are half as many, and slower."""
    return [
        *history("SAC", 0, [(50, 8, None, 4.0), (150, 40, None, 20.0)]),
        *history("SAC", 1, [(60, 8, None, 6.0), (160, 44, None, 22.0)]),
        *history("ESAC", 0, [(100, 10, 1.0, 3.0), (200, 20, 5.0, 4.0), (300, 30, 9.0, 8.0)]),
        *history("ESAC", 1, [(100, 10, 2.0, 2.0), (200, 20, 7.0, 6.0), (300, 31, 11.0, 10.0)]),
    ]


def stored(path, rows):
    rowfiles.write(path, rows)
    return str(path)


def printed(capsys, *arguments):
    assert results.main(["table", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


# ---- rows


def test_rows_of_a_run(tmp_path):
    (run,) = opened([make(tmp_path / "a", (10, None, 30), "esac", seed=3)])
    first, second, third = rows_of(run, "table1", "small", "ESAC", "0.1", True)
    assert first == Row(
        "table1", "small", "A-v0", "ESAC", "0.1", 3, generation=1, env_steps=110, nominal_steps=1000, wall_seconds=2.0,
        gradient_updates=10, training_episodes=4, training_return=7.5, fitness_mean=7.5, return_theta_es=10.0, return_learner=5.0,
        complete=False,
    )  # fmt: skip
    assert (second.return_theta_es, second.return_learner, second.better) == (None, None, None)  # not evaluated then
    assert (second.training_episodes, second.fitness_mean) == (4, 7.5)  # all members unstable
    assert (third.env_steps, third.training_episodes, third.training_return, third.fitness_mean) == (330, 8, 17.5, 17.5)
    assert (third.better, third.complete) == (30, True)


def test_numbers_have_six_digits(tmp_path):
    (run,) = opened([make(tmp_path / "a", (1234.56789,))])
    (only,) = rows_of(run, "x", "small", "ES", "", False)
    assert not only.complete
    assert only.return_theta_es == 1234.57
    assert only.return_learner is None


@pytest.mark.parametrize(
    ("returns", "kept"),
    [
        (range(100), [1, 26, 51, 75, 100]),  # of 100 evaluations
        # 20 evaluations for four places: every 19 / 3 of them; then the last generation, which has none
        ([5.0] * 20 + [None] * 80, [1, 7, 14, 20, 100]),
        ([None] * 49 + [1.0] + [None] * 50, [1, 50, 51, 75, 100]),  # one evaluation: others fill up
        ((1, 2, 3), [1, 2, 3]),
    ],
)
def test_thinning_keeps_the_ends(tmp_path, returns, kept):
    (run,) = opened([make(tmp_path / "a", returns)])
    found = rows_of(run, "x", "small", "ES", "", True, most=5)
    assert [row.generation for row in found] == kept
    assert [row.complete for row in found] == [False] * (len(kept) - 1) + [True]


def test_a_run_without_a_generation_has_no_rows(tmp_path):
    Run.begin(tmp_path / "a", Config(), {}).close()
    assert rows_of(opened([tmp_path / "a"])[0], "x", "small", "ES", "", False) == []


# ---- files


def test_what_is_written_is_read(tmp_path):
    rows = [*study(), *history('a, "b"\nc', 0, [(7, 0.25, -0.5, None)], value="1e-05", experiment="é")]
    path = tmp_path / "new" / "results.csv"
    rowfiles.write(path, rows)
    assert rowfiles.read([path]) == rows
    assert [p.name for p in path.parent.iterdir()] == ["results.csv"]
    head, first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert head.split(",") == [field.name for field in dataclasses.fields(Row)]
    assert first == "x,small,A-v0,SAC,,0,1,50,50,8,100,1,1,,,4,0"


def test_a_hundred_runs_are_small(tmp_path):
    (run,) = opened([make(tmp_path / "a", np.pi * 1000 * np.arange(1, 101), "esac", task="InvertedDoublePendulum-v5")])
    rows = rows_of(run, "ablations", "small", "no crossover", "", True)
    assert len(rows) == 25
    rowfiles.write(tmp_path / "r.csv", [dataclasses.replace(row, seed=seed) for seed in range(100) for row in rows])
    assert (tmp_path / "r.csv").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda text: text.replace("wall_seconds,", "").replace(",8,", ","), 65, "it has no column wall_seconds"),
        (lambda text: text.splitlines()[0], 2, "no rows in it yet"),
        (lambda text: "", 65, "it has no column experiment"),
        (lambda text: text.replace(",50,", ",fifty,"), 65, "line 2: env_steps is 'fifty', not int"),
        (lambda text: text.replace(",8,", ",nan,"), 65, "line 2: wall_seconds is 'nan', not float"),
        (lambda text: text[:-9], 65, "line 11: "),
        (lambda text: text + text.split("\n", 1)[1], 2, "x, small, A-v0, SAC, seed 0: there twice"),
        (lambda text: text.encode("utf-16"), 65, "no CSV file of results"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, capsys, change, code, said):
    good = stored(tmp_path / "r.csv", study())
    changed = change((tmp_path / "r.csv").read_text())
    (tmp_path / "r.csv").write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    assert results.main(["table", good]) == code
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert results.main(["draw", str(tmp_path / "no.csv"), "--out", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'no.csv'}: No such file or directory\n"


# ---- tables


def test_table_at_equal_steps_at_equal_wall_time_and_at_the_end(tmp_path, capsys):
    lines = printed(capsys, stored(tmp_path / "r.csv", study()))
    assert lines[2:10] == [
        "### A-v0",
        "",
        "| variant | at 150 true steps, which every run has reached"
        " | at 300 true steps, which every run with a population has reached"
        " | at 150 nominal steps (the papers' count) | within 30 s | at its end | steps, updates within 30 s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ESAC | 2 [2, 3] (3, 2) | 10 [9, 11] (9, 11) | 10 [9, 11] (9, 11)"
        " | **8** [7, 9] (9, 7) | 10 [9, 11] (9, 11) | 250, 500 |",
        "| ESAC: theta_es | 2 [1, 2] (1, 2) | 10 [9, 11] (9, 11) | 10 [9, 11] (9, 11)"
        " | 8 [7, 9] (9, 7) | 10 [9, 11] (9, 11) |  |",
        "| ESAC: learner | 2 [2, 3] (3, 2) | 9 [8, 10] (8, 10) | 9 [8, 10] (8, 10) | 7 [6, 8] (8, 6) | 9 [8, 10] (8, 10) |  |",
        "| SAC | **13** [6, 20] (20, 6) | **21** [20, 22] (20, 22) | **13** [6, 20] (20, 6)"
        " | 5 [4, 6] (4, 6) | **21** [20, 22] (20, 22) | 55, 110 |",
    ]
    assert "interquartile mean over seeds (of fewer than four, the mean)" in lines[0]


def test_a_table_does_not_depend_on_the_order_of_its_files(tmp_path, capsys):
    both = [history(v, s, [(10, 1, 1.0, None)], experiment=e) for v, s, e in product(("ES", "B", "A"), (1, 0), "yx")]
    one, two = stored(tmp_path / "1.csv", chain(*both[:5])), stored(tmp_path / "2.csv", chain(*both[5:]))
    assert results.main(["table", one, two, "--out", str(tmp_path / "a" / "t.md")]) == 0
    assert results.main(["table", two, one, "--out", str(tmp_path / "b.md")]) == 0
    assert (tmp_path / "a" / "t.md").read_bytes() == (tmp_path / "b.md").read_bytes()
    assert capsys.readouterr().out == f"{tmp_path / 'a' / 't.md'}\n{tmp_path / 'b.md'}\n"
    text = (tmp_path / "b.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == ["### x (small): A-v0", "### y (small): A-v0"]
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ") and "---" not in line][:4] == [
        "| variant", "| ES", "| A", "| B",
    ]  # fmt: skip


def test_who_was_not_evaluated_by_then_has_a_dash(tmp_path, capsys):
    rows = [
        *history("ES", 0, [(500, 5, 7.0, None)]),
        *history("ES", 1, [(90, 5, 5.0, None)]),
        *history("SAC", 0, [(100, 9, None, 3.0)]),
    ]
    line = next(line for line in printed(capsys, stored(tmp_path / "r.csv", rows)) if line.startswith("| ES"))
    assert (
        line
        == "| ES | **5** (-, 5) | **5** (-, 5) | **6** [5, 7] (7, 5) | **6** [5, 7] (7, 5) | **6** [5, 7] (7, 5) | 295, 590 |"
    )


def test_one_seed_has_no_interval_and_one_variant_is_not_best(tmp_path, capsys):
    lines = printed(capsys, stored(tmp_path / "r.csv", history("ES", 0, [(10, 2, -1.25, None)])))
    assert lines[-1] == "| ES | -1.25 (-1.25) | -1.25 (-1.25) | -1.25 (-1.25) | -1.25 (-1.25) | 10, 20 |"
    assert "Verdicts" not in "".join(lines)


def test_a_table_of_updates_and_one_of_fitness(tmp_path, capsys):
    path = stored(tmp_path / "r.csv", study())
    lines = [line for line in printed(capsys, path, "--measure", "updates") if line.startswith("| ")]
    assert lines[2].startswith("| ESAC | 200 [200, 200] (200, 200) | 600 [600, 600] (600, 600) |")
    assert lines[3].startswith("| SAC | 210 [120, 300] (300, 120) |")
    assert len(lines) == 4
    assert results.main(["table", path, "--measure", "fitness"]) == 0
    told = capsys.readouterr()
    assert "| ESAC | 9 [8, 10] (8, 10) | 9 [8, 10] (8, 10) | 7 [6, 8] (8, 6) | 9 [8, 10] (8, 10) | 250, 500 |" in told.out
    assert "left out, nothing of this measure (yet): A-v0, SAC, seed 0, A-v0, SAC, seed 1" in told.err
    assert results.main(["table", stored(tmp_path / "s.csv", study()[:2]), "--measure", "fitness"]) == 2
    assert "nothing to tabulate yet" in capsys.readouterr().err


def test_the_paper_stands_beside(tmp_path, capsys):
    rows = [
        *history("esac", 0, [(10, 1, 5.0, 4.0)], task="Swimmer-v5"),
        *history("ESAC (paper)", 0, [(10, 1, 6.0, 4.0)], task="Swimmer-v5"),
    ]
    lines = printed(capsys, stored(tmp_path / "r.csv", rows), "--published")
    assert [line.rsplit(" | ", 1)[1] for line in lines if line.startswith(("| variant", "| esac |", "| ESAC (paper) |"))] == [
        "the paper |", "- |", "345.4 ± 17.9 |",
    ]  # fmt: skip
    assert "Suri et al. 2020" in lines[-1]


def test_a_sweep_has_a_line_for_each_value_in_its_order(tmp_path, capsys):
    rows = [row for value in ("1", "0.5", "1e-05") for row in history("ES", 0, [(10, 1, 5.0, None)], value=value)]
    lines = printed(capsys, stored(tmp_path / "r.csv", rows))
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ES")] == ["| ES 1e-05", "| ES 0.5", "| ES 1"]


# ---- verdicts


def test_verdicts_at_what_both_have_reached(tmp_path, capsys):
    third = [row for seed in (0, 1) for row in history("ES", seed, [(1000, 25, 9.0 + seed, None)])]
    lines = printed(capsys, stored(tmp_path / "r.csv", [*study(), *third]))
    assert lines[-2:] == [
        # ES was not evaluated within ESAC's 300 steps; at 25 s ESAC has 5 and 7
        "| A-v0 | ESAC > ES? | no value by then (at 300 steps) | no: -7 [-8, -6] (at 50 nominal) | no: -3.5 [-5, -2] (at 25 s) |",
        # 3, 2 against 20, 6: of 16 equally likely draws the ends are 2 - 20 and 3 - 6; at 30 s 9, 7 against 4, 6
        "| A-v0 | ESAC > SAC? | no: -10.5 [-18, -3] (at 150 steps)"
        " | not separated: -3 [-11, 5] (at 150 nominal) | yes: +3 [1, 5] (at 30 s) |",
    ]
    assert printed(capsys, tmp_path / "r.csv", "--of", "sac")[-2].startswith("| A-v0 | SAC > ESAC? | yes: +10.5 [3, 18]")


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([10.0, 12], [1, 3], "yes: +9 [7, 11]"),
        ([1.0, 3], [10, 12], "no: -9 [-11, -7]"),
        ([0.0, 12], [4, 6], "not separated: +1 [-6, 8]"),
        ([0.0, 8], [4, 6], "not separated: -1 [-6, 4]"),
        ([5.0, 5], [5, 5], "not separated: +0 [0, 0]"),
        ([5.0], [1, 2], "not separated: +3.5, one seed has no interval"),
        ([np.nan, 5, 5], [1, 1], "yes: +4 [4, 4], 1 seed without a value by then"),
        ([np.nan], [1, 2], "no value by then"),
    ],
)
def test_a_verdict_is_read_off_the_interval(ours, theirs, said):
    assert verdicts.verdict(np.array(ours), np.array(theirs)) == said


def test_the_interval_of_a_difference_agrees_with_the_normal_one():
    random = np.random.default_rng(2)
    ours, theirs = random.standard_normal(400) + 3, 2 * random.standard_normal(100)
    error = np.hypot(ours.std() / 20, theirs.std() / 10)
    expected = ours.mean() - theirs.mean() + np.array([-1.96, 1.96]) * error
    np.testing.assert_allclose(verdicts.difference(ours, theirs), expected, atol=0.2 * error)


# ---- what docs/results.md shows


TABLES = [
    line for line in (ROOT / "docs/results.md").read_text().splitlines() if line.startswith("python tools/results.py table")
]


@pytest.mark.parametrize("line", TABLES)
def test_the_tables_of_the_docs_come_from_their_records(tmp_path, monkeypatch, line):
    monkeypatch.chdir(ROOT)
    *arguments, out = shlex.split(line)[2:]
    assert arguments[-1] == "--out"
    assert results.main([*arguments, str(tmp_path / "table.md")]) == 0
    assert (tmp_path / "table.md").read_text() == Path(out).read_text()


def test_the_records_of_the_docs_are_small_and_whole():
    files = sorted((ROOT / "docs/results").glob("*.csv"))
    assert [path.stem for path in files] == ["ablations", "fig2a", "fig2c", "fig6b", "table1", "transfer"]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    for path in files:
        ends = [row for row in rowfiles.read([path]) if row.complete]
        assert len(ends) == {"ablations": 48, "fig2a": 12, "fig2c": 27, "fig6b": 12, "table1": 84, "transfer": 21}[path.stem]


# ---- pictures


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
        ({"what": "returns", "x": "wall_seconds"}, WALL, {"ESAC": (10, 30, 2.5, 108 / 11), "SAC": (8, 40, 5, 181 / 9)}),
        ({"what": "training"}, "training episodes", {"ESAC": (1, 3, 1, 3), "SAC": (1, 2, 1, 2)}),
        ({"what": "updates"}, NOMINAL, {"ESAC": (50, 150, 200, 600), "SAC": (60, 150, 120, 300)}),
    ],
)  # fmt: skip
def test_curves_over_what_all_seeds_have(capsys, options, x, ends):
    (axes,) = drawn(study(), **options).axes
    assert axes.get_xlabel() == x
    assert axes.get_title() == "A-v0"
    found = {line.get_label().removesuffix(", 2 seeds"): line for line in axes.lines}
    seen = {name: (*line.get_xdata()[[0, -1]], *line.get_ydata()[[0, -1]]) for name, line in found.items()}
    assert seen == {name: pytest.approx(numbers) for name, numbers in ends.items()}
    assert ("SAC, seed 0" in capsys.readouterr().err) == (options.get("policy") == "theta_es")  # it has none: named


@pytest.mark.parametrize(
    ("policy", "lines"),
    [("better", {"ESAC": (9, 11, 10), "SAC": (20, 22, 21)}), ("theta_es", {"ESAC": (9, 11, 10)})],
)
def test_the_last_return_of_each_variant(policy, lines):
    (axes,) = pictures.ends(traces.sections(study()), policy).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(lines)
    assert axes.get_title() == "A-v0"
    points = [line for line in axes.lines if line.get_marker() == "."]
    means = [bar.lines[0].get_xdata()[0] for bar in axes.containers]
    assert [(*line.get_xdata(), m) for line, m in zip(points, means, strict=True)] == list(lines.values())
    assert [set(line.get_ydata()) for line in points] == [{n} for n in range(len(lines))]
    spans = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in axes.containers]
    assert spans == [[seeds[0], seeds[1]] for seeds in lines.values()]  # of two seeds: from one to the other


def test_no_last_return_is_an_error(tmp_path, capsys):
    path = stored(tmp_path / "r.csv", history("SAC", 0, [(10, 1, None, 5.0)]))
    assert results.main(["draw", path, "--what", "ends", "--policy", "theta_es", "--out", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err == "nothing to draw: no run has a return of theta_es\n"


def sweep(task="A-v0", scale=1.0, values=("1e-06", "0.01", "1")):
    return [
        row
        for n, value in enumerate(values)
        for seed in (0, 1)
        for row in history("ESAC", seed, [(10, 1, -9.0, None), (20, 2, scale * (n + 2 * seed) + 1, None)], value=value, task=task)
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
    assert lines["A-v0, 2 seeds a point"].get_ydata().tolist() == [1, 2, 3]  # fitness_mean: returns 1 3, 2 4, 3 5, less 1
    assert lines["B-v0, 2 seeds a point"].get_ydata().tolist() == [10, 20, 30]
    (normalised,) = swept(sweep() + sweep("B-v0", 10), normalise=True, measure="return").axes
    assert [c[0].get_ydata().tolist() for c in normalised.containers] == [
        pytest.approx([2 / 4, 3 / 4, 1]), pytest.approx([11 / 31, 21 / 31, 1])
    ]  # fmt: skip


def test_sensitivity_to_words():
    (axes,) = swept(sweep(values=("soft", "hard"))).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["hard", "soft"]
    assert axes.containers[0][0].get_xdata().tolist() == [0, 1]
    assert axes.containers[0][0].get_ydata().tolist() == [2, 1]  # soft is the first of the sweep


@pytest.mark.parametrize("what", ["returns", "training", "updates", "sensitivity"])
def test_pictures_are_written(tmp_path, capsys, what):
    path = stored(tmp_path / "r.csv", sweep() if what == "sensitivity" else study())
    assert results.main(["draw", path, "--what", what, "--seeds", "--out", str(tmp_path / "new" / "x")]) == 0
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
    assert results.main(["draw", stored(tmp_path / "r.csv", rows), "--what", what, "--out", str(tmp_path / "x.png")]) == 2
    assert said in capsys.readouterr().err


def test_every_measure_is_a_field():
    names = {field.name for field in dataclasses.fields(Row)} | {"better"}
    assert {y for y, _ in standings.MEASURES.values()} | {*standings.HALVES.values(), *pictures.POLICIES.values()} <= names
