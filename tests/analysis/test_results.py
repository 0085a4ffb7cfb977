"""The compact record of an experiment, and the tables and verdicts made of it, by hand."""

import dataclasses
import re
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
from figure_runs import make
from result_rows import history, stored, study
from run_files import young

from esac_mpi.analysis.command import opened
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import standings, traces
from esac_mpi.analysis.results.rows import Row, read_rows, rows_of, write_rows
from esac_mpi.analysis.results.scores import merge_experiments


@pytest.fixture
def tabled(tmp_path, call):
    """Make tables of a file of rows, `tabled(rows, words="", code=0)`; return the prints."""

    def made(rows, words="", code=0):
        return call(f"results table {words}", stored(tmp_path / "r.csv", rows), code=code)

    return made


def test_rows_of_a_run(tmp_path):
    (run,) = opened([make(tmp_path / "a", (10, None, 30), "esac", seed=3)])
    first, second, third = rows_of(run, "table1", "small", "ESAC", "0.1", True)
    assert first == Row(
        "table1", "small", "A-v0", "ESAC", "0.1", 3,
        generation=1, env_steps=110, nominal_steps=1000, wall_seconds=2.0,
        gradient_updates=10, training_episodes=4, training_return=7.5, fitness_mean=7.5,
        return_theta_es=10.0, return_learner=5.0,
        complete=False, settings=first.settings,
    )  # fmt: skip
    # not evaluated then, all members unstable
    assert (second.return_theta_es, second.return_learner, second.better) == (None, None, None)
    assert (second.training_episodes, second.fitness_mean) == (4, 7.5)
    assert (third.env_steps, third.training_episodes, third.training_return) == (330, 8, 17.5)
    assert (third.fitness_mean, third.better, third.complete) == (17.5, 30, True)
    assert (len(first.settings), second.settings, third.settings) == (8, "", "")
    changed = {"task.horizon": 300, "task.kwargs": {"wind": 2.5}}
    (run,) = opened([make(tmp_path / "b", (1, 1234.56789), **changed)])
    first, last = rows_of(run, "x", "small", "ES", "", False)
    assert (first.changed, last.changed) == ("horizon 300, wind 2.5", "")
    # six digits; no learner
    assert (last.complete, last.return_theta_es, last.return_learner) == (False, 1234.57, None)
    (run,) = opened([young(tmp_path / "c")])
    assert rows_of(run, "x", "small", "ES", "", False) == []


def test_rows_of_other_settings_are_no_seeds_of_the_same(tmp_path):
    """Seed, task and how often is evaluated make no difference."""

    def recorded(name, seed, **settings):
        (run,) = opened([make(tmp_path / name, (1, 2), seed=seed, **settings)])
        return Path(stored(tmp_path / f"{name}.csv", rows_of(run, "x", "small", "ES", "", True)))

    same = [recorded("a", 0), recorded("b", 1, **{"evaluation.episodes": 2})]
    assert len(read_rows(same)) == 4
    with pytest.raises(Unusable, match="x, small, A-v0, ES: rows of other settings"):
        read_rows([*same, recorded("c", 2, **{"es.lr_es": 0.5})])


@pytest.mark.parametrize(
    ("returns", "kept"),
    [
        (range(100), [1, 26, 51, 75, 100]),  # of 100 evaluations
        # 20 evaluations for four places: every 19 / 3 of them; then the last generation, without
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


def test_what_is_written_is_read(tmp_path):
    odd = history('a, "b"\nc', 0, [(7, 0.25, -0.5, None)], value="1e-05", experiment="é")
    rows, path = [*study(), *odd], tmp_path / "new" / "results.csv"
    write_rows(path, rows)
    assert read_rows([path]) == rows
    assert [p.name for p in path.parent.iterdir()] == ["results.csv"]
    head, first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert head.split(",") == [field.name for field in dataclasses.fields(Row)]
    assert first == "x,small,A-v0,SAC,,0,1,50,50,8,100,1,1,,,4,0,,,"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_rows([path]) == rows  # a byte order mark is no part of the first name


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda text: text.replace("wall_seconds,", "").replace(",8,", ","), 65, "wall_seconds"),
        (lambda text: text.splitlines()[0], 2, "no rows in it yet"),
        (lambda text: "", 65, "does not have experiment, budget, "),
        # by a spreadsheet where a comma is a decimal one; of two columns the last one counted
        (lambda text: text.replace(",", ";").replace(".", ","), 65, "with commas between"),
        (lambda text: re.sub("$", ",seed", text, count=1, flags=re.M), 65, "have seed once each"),
        (lambda text: text.replace(",50,", ",fifty,"), 65, "line 2: env_steps is 'fifty', not int"),
        (lambda text: text.replace(",8,", ",nan,"), 65, "line 2: wall_seconds is 'nan', not float"),
        (lambda text: text.replace(",50,", f",{10**400},"), 65, "line 2: env_steps is '1000"),
        (lambda text: text.replace("ESAC", '"ESAC'), 65, "no CSV file of results: "),
        (lambda text: text[:-9], 65, "line 11: "),
        (lambda text: text[:-2], 65, "line 11: not as many"),
        (lambda text: text.replace(",1,1,,,4", ",1,1,,,4,5"), 65, "line 2: not as many"),
        (lambda text: text.replace("x,", "\nx,", 1).replace(",8,", ",a,", 1), 65, "line 3: wall"),
        (lambda text: text + text.split("\n", 1)[1], 2, "x, small, A-v0, SAC, seed 0: there twice"),
        (
            lambda text: text.replace(",3,300,", ",3,20,"),
            65,
            "generation 3: less env_steps",
        ),
        (lambda text: text.encode("utf-16"), 65, "no CSV file of results"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, call, change, code, said):
    good = stored(tmp_path / "r.csv", study())
    changed = change((tmp_path / "r.csv").read_text())
    (tmp_path / "r.csv").write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    told = call("results table", good, code=code).err
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_line_end_in_a_name_ends_no_line_of_a_table(tabled):
    found = tabled(history("a\nb", 0, [(50, 8, None, 4.0)], task="A\nv0")).out.splitlines()
    assert r"## A\nv0" in found
    assert any(line.startswith(r"| a\nb | 4 |") for line in found)


def test_a_file_that_is_not_there(tmp_path, call):
    told = call("plot no.csv --out", tmp_path / "x.png", code=2).err
    assert told == "no.csv: No such file or directory\n"
    told = call("results table", tmp_path, code=2).err
    assert told.endswith("of runs: esac-mpi table\n")


def test_table_at_equal_steps_at_equal_wall_time_and_at_the_end(tabled):
    told = tabled(study()).out.splitlines()
    assert told[0] == "# x (small): returns"
    assert told[4:12] == [
        "## A-v0",
        "",
        "| variant | at 150 true steps, which every run has reached"
        " | at 300 true steps, which every run with a population has reached"
        " | at 150 nominal steps (the papers' count) | within 30 s | at its end"
        " | steps, updates within 30 s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ESAC | 2.50 [2.00, 3.00] (3.00, 2.00) | 10 [9, 11] (9, 11) | 10 [9, 11] (9, 11)"
        " | **8** [7, 9] (9, 7) | 10 [9, 11] (9, 11) | 250, 500 |",
        "| ESAC: theta_es | 1.50 [1.00, 2.00] (1.00, 2.00) | 10 [9, 11] (9, 11)"
        " | 10 [9, 11] (9, 11)"
        " | 8 [7, 9] (9, 7) | 10 [9, 11] (9, 11) |  |",
        "| ESAC: learner | 2.50 [2.00, 3.00] (3.00, 2.00) | 9 [8, 10] (8, 10) | 9 [8, 10] (8, 10)"
        " | 7 [6, 8] (8, 6) | 9 [8, 10] (8, 10) |  |",
        "| SAC | **13** [6, 20] (20, 6) | **21** [20, 22] (20, 22) | **13** [6, 20] (20, 6)"
        " | 5 [4, 6] (4, 6) | **21** [20, 22] (20, 22) | 55, 110 |",
    ]
    assert "interquartile mean over seeds (the mean, of fewer than four)" in told[2]


def test_a_policy_whose_line_would_repeat_the_runs_has_none(tabled):
    rows = [
        *history("ESAC", 0, [(10, 1, 1.0, 3.0), (20, 2, 2.0, 2.0)]),
        *history("ES", 0, [(20, 2, 7.0, None)]),
    ]
    names = [
        line.split(" | ")[0] for line in tabled(rows).out.splitlines() if line.startswith("| ES")
    ]
    assert names == ["| ESAC", "| ESAC: theta_es", "| ES"]  # by its end they are equal


def test_a_table_does_not_depend_on_the_order_of_its_files(tmp_path, call):
    both = [
        history(v, s, [(10, 1, 1.0, None)], experiment=e)
        for v, s, e in product(("ES", "B", "A"), (1, 0), "yx")
    ]
    one = stored(tmp_path / "1.csv", chain(*both[:5]))
    two = stored(tmp_path / "2.csv", chain(*both[5:]))
    a, b = tmp_path / "a" / "t.md", tmp_path / "b.md"
    assert call("results table", one, two, "--out", a).out == f"{a}\n"
    assert call("results table", two, one, "--out", b).out == f"{b}\n"
    assert a.read_bytes() == b.read_bytes()
    text = b.read_text().splitlines()
    assert [line for line in text if line.startswith("#")] == [
        "# x (small), y (small): returns",
        "## x (small): A-v0",
        "## y (small): A-v0",
    ]
    rows = [line.split(" | ")[0] for line in text if line.startswith("| ") and "---" not in line]
    assert rows[:4] == ["| variant", "| ES", "| A", "| B"]


def test_who_was_not_evaluated_has_a_dash_and_is_not_best(tabled):
    rows = [
        *history("ES", 0, [(500, 5, 7.0, None)]),
        *history("ES", 1, [(90, 5, 5.0, None)]),
        *history("SAC", 0, [(100, 9, None, 3.0)]),
    ]
    assert [line for line in tabled(rows).out.splitlines() if line.startswith("| ES")] == [
        "| ES | 5 (-, 5) | **6** [5, 7] (7, 5) | **6** [5, 7] (7, 5)"
        " | **6** [5, 7] (7, 5) | 295, 590 |"
    ]


def test_who_is_nowhere_at_the_time_has_a_dash_for_its_steps(tabled):
    rows = [*history("ES", 0, [(10, 9, 1.0, None)]), *history("SAC", 0, [(10, 2, None, 3.0)])]
    (line,) = [line for line in tabled(rows).out.splitlines() if line.startswith("| ES")]
    assert line.endswith("| - | 1 | - |")


def test_one_seed_has_no_interval_and_no_verdict(tabled):
    es, sac = history("ES", 0, [(10, 2, -1.25, None)]), history("SAC", 0, [(10, 2, 3, None)])
    told = tabled(es).out.splitlines()
    assert told[-1] == "| ES | -1.25 | -1.25 | -1.25 | -1.25 | 10, 20 |"  # alone it is not best
    assert "Verdicts" not in "".join(told)
    told = tabled([*es, *sac], "--of ES").out
    assert told.endswith("\n\nNo verdicts: a single seed has no interval.\n")


def test_verdicts_about_a_variant_that_is_not_there_are_left_out(tabled):
    told = tabled(study(), "--of PPO")
    assert "Verdicts" not in told.out
    assert "'PPO': no such variant" in told.err
    assert told.err.endswith("there are ESAC; SAC\n")


def test_who_has_nothing_of_a_measure_is_named_and_left_out(tabled):
    told = tabled(study(), "--measure fitness")
    assert "| SAC |" not in told.out
    assert "nothing of this measure (yet): A-v0, SAC, seed 0, A-v0, SAC, seed 1" in told.err
    assert "nothing to tabulate yet" in tabled(study()[:2], "--measure fitness", code=2).err


def test_verdicts_at_what_both_have_reached(tabled):
    third = [row for seed in (0, 1) for row in history("ES", seed, [(1000, 25, 9.0 + seed, None)])]
    assert tabled([*study(), *third]).out.splitlines()[-2:] == [
        # ES was not evaluated within ESAC's 300 steps; at 25 s ESAC has 5 and 7
        "| A-v0 | ESAC > ES? | no value by then (at 300 steps) | no: -7 [-8, -6] (at 50 nominal)"
        " | no: -3.5 [-5, -2] (at 25 s) |",
        # 3, 2 against 20, 6: of 16 equally likely draws the ends are 2 - 20 and 3 - 6;
        # at 30 s 9, 7 against 4, 6
        "| A-v0 | ESAC > SAC? | no: -10.5 [-18, -3] (at 150 steps)"
        " | not separated: -3 [-11, 5] (at 150 nominal) | yes: +3 [1, 5] (at 30 s) |",
    ]
    told = tabled([*study(), *third], "--of sac").out.splitlines()[-2]
    assert told.startswith("| A-v0 | SAC > ESAC? | yes: +10.5 [3, 18]")


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([10.0, 12], [1, 3], "yes: +9 [7, 11]"),
        ([12345.6, 12345.6], [0, 0], "yes: +12,350 [12,350, 12,350]"),
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
    assert standings.verdict(np.array(ours), np.array(theirs)) == said


def test_a_difference_has_the_interval_of_all_draws_whoever_is_asked():
    """Of 27 * 27 equally likely draws of three seeds each."""
    ours, theirs = np.array([334.0, 1015, 1029]), np.array([322.0, 304, 433])
    means = [np.mean(list(product(seeds, repeat=3)), axis=1) for seeds in (ours, theirs)]
    low, high = np.quantile(np.subtract.outer(*means), (0.025, 0.975), method="inverted_cdf")
    assert standings.difference(ours, theirs) == pytest.approx((low, high))
    assert standings.difference(theirs, ours) == pytest.approx((-high, -low))


def test_a_run_that_ended_before_has_no_verdict_at_that_time(tabled):
    said = tabled(study(), "--seconds 40").out
    assert "Ended before 40 s, so counted as they ended: 2 (2 of ESAC), after 30 to 31 s." in said
    assert "| A-v0 | ESAC > SAC? |" in said
    assert "| none, ended before: 2 of ESAC (at 40 s) |" in said
    assert "at the most true and nominal steps that all runs of the two have reached." in said


def test_a_run_that_goes_on_has_no_figure_at_a_later_time(tabled):
    *before, last = study()
    rows = [*before, dataclasses.replace(last, complete=False)]
    said = tabled(rows, "--seconds 40").out
    assert "Not yet at 40 s, so without a figure there: 1 (1 of ESAC)." in said
    (line,) = [line for line in said.splitlines() if line.startswith("| ESAC |")]
    assert "| 9 (9, -) |" in line
    assert "without a figure" not in tabled(rows, "--seconds 31").out


def test_names_that_read_alike_are_no_two_seeds(tabled):
    rows = [*history("ES", 0, [(9, 1, 1.0, None)]), *history("ES ", 0, [(9, 1, 2.0, None)])]
    assert "A-v0, ES, seed 0: two runs of that name" in tabled(rows, code=2).err


def test_several_forms_of_a_task_are_told(tabled):
    rows = [*history("ES", 0, [(9, 1, 1.0, None)], changed="horizon 9"), *study()]
    said = "do not compare: as its id makes it, or rows of before this was recorded; horizon 9."
    assert said in tabled(rows).out


def test_runs_without_an_end_are_told(tmp_path, call, tabled):
    *before, last = study()
    assert "Not complete, so " in tabled([*before, dataclasses.replace(last, complete=False)]).out
    drawn = call("plot --what ends", tmp_path / "r.csv", "--out", tmp_path / "x.png")
    assert "not complete: A-v0, ESAC, seed 1" in drawn.err
    assert "omplete" not in tabled(study()).out


def test_long_times_have_no_exponents(tabled):
    rows = history("ES", 0, [(900, 100, 1, None), (950, 1500, 2, None), (990, 1634, None, None)])
    said = tabled(rows, "--seconds 2000").out
    assert "counted as they ended: 1 (1 of ES), after 1.63k s. The oldest figure" in said
    assert "there is from 130 s before" in said


def test_the_age_of_the_oldest_figure():
    esac = traces.sections(study())["A-v0"]["ESAC"]
    # at 30.5 s seed 1 has one at 20, the next at 31; at 100 s their ends; at 5 s none
    for seconds, age in ((25, 5), (30.5, 10.5), (100, 0), (5, 0)):
        assert traces.greatest_age(esac, seconds, "better") == age


def test_experiments_of_other_settings_are_no_seeds_of_one():
    def made(experiment, seed, settings):
        (row,) = history("ES", seed, [(10, 1, 1.0, None)], experiment=experiment)
        return dataclasses.replace(row, settings=settings)

    one = made("x", 0, "aaaaaaaa")
    with pytest.raises(Unusable, match="A-v0, ES: rows of other settings"):
        merge_experiments([one, made("y", 1, "bbbbbbbb")])
    assert len(merge_experiments([one, made("y", 1, "aaaaaaaa")])) == 2
