"""Groups of runs, and esac-mpi table beside the published numbers."""

import json

import numpy as np
import pytest
from figure_runs import make, opened, trained

from esac_mpi.analysis import groups, sensitivity, summary, tables
from esac_mpi.analysis.outcomes import At, outcome
from esac_mpi.analysis.published import read_results, select_results


def named(runs):
    """Return {label of a group: its runs' names} of the task A-v0."""
    found = groups.grouped(runs)["A-v0"]
    return {label: [run.path.name for run in group] for label, group in found.items()}


def test_groups_are_named_by_what_differs(tmp_path):
    paper = {"esac.preset": "paper", "esac.winner_pull": 0.0, "esac.crossover": "element"}
    runs = opened(
        make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", algorithm="esac", seed=1),
        make(tmp_path / "c", algorithm="esac", **paper),
        make(tmp_path / "d", algorithm="esac", **paper | {"esac.winner_pull": 0.3}),
        make(tmp_path / "e"), make(tmp_path / "f", task="B-v0", **{"budget.generations": 7}),
        make(tmp_path / "g", **{"es.sigma": 0.1}), make(tmp_path / "h", **{"es.sigma": 0.10000001}),
    )  # fmt: skip
    assert named(runs[:6]) == {
        "ESAC preset=corrected": ["a", "b"],
        "ESAC preset=paper": ["c"],
        "ESAC preset=paper winner_pull=0.3": ["d"],
        "ES": ["e"],
    }
    assert list(groups.grouped(runs)["B-v0"]) == ["ES"]
    assert list(named(runs[6:])) == ["ES sigma=0.1", "ES sigma=0.10000001"]  # beyond six digits


def test_seeds_with_other_choices_of_the_machine_are_no_group(tmp_path, capsys):
    virtual = {"algorithm": "esac", "n": 28, "esac.phase_timing": "virtual", "esac.workers": 1}
    same = {"esac.update_cost": 26.0}
    runs = opened(
        make(tmp_path / "a", **virtual, **same), make(tmp_path / "b", seed=1, **virtual, **same),
        make(tmp_path / "c", seed=2, **virtual | {"esac.update_cost": 27.0}),
        make(tmp_path / "d", seed=3, **virtual | same | {"esac.workers": 2}),
        make(tmp_path / "e", algorithm="esac"),
    )  # fmt: skip
    assert list(named(runs[:2]).values()) == [["a", "b"]]
    assert not capsys.readouterr().err
    assert sorted(named(runs).values()) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert "--esac.workers 1 --esac.update_cost 26, say" in capsys.readouterr().err
    swept = (make(tmp_path / f"s{n}", **virtual | {"esac.update_cost": float(n)}) for n in (1, 2))
    named(opened(*swept))  # the same seed: somebody's own comparison
    assert "no seeds" not in capsys.readouterr().err


def test_measured_costs_are_of_one_group_where_near(tmp_path, capsys):
    def virtual(seed, cost, settled="esac.update_cost"):
        values = {"esac.phase_timing": "virtual", "esac.workers": 1, "esac.update_cost": cost}
        (run,) = opened(make(tmp_path / f"{seed}", n=28, algorithm="esac", seed=seed, **values))
        run.columns.attributes["settled"] = settled
        return run

    near = [virtual(0, 27.0), virtual(1, 33.0)]
    assert list(named(near).values()) == [["0", "1"]]
    assert "seeds of one group measured update_cost = 27 to 33" in capsys.readouterr().err
    for other in (virtual(2, 55.0), virtual(3, 30.0, settled="")):  # another machine; not measured
        assert len(named([*near, other])) == 3


def test_numbers_that_a_run_does_not_read_tell_no_groups_apart(tmp_path):
    other = make(tmp_path / "b", algorithm="esac", seed=1, **{"esac.workers": "auto"})
    found = named(opened(make(tmp_path / "a", algorithm="esac"), other))
    assert list(found.values()) == [["a", "b"]]


def test_runs_are_of_a_group_that_began_from_the_same(tmp_path):
    """Not by the name of the source: it goes on, is begun anew, and has several names."""
    begun = [  # as it was said, where that is, generation, hash
        ("runs/x", "/w/runs/x", 5, "aaaaaaaa"), ("x", "/w/runs/x", 5, "aaaaaaaa"),
        ("runs/x", "/w/runs/x", 9, "bbbbbbbb"),
        ("runs/x", "/w/runs/x", 5, "cccccccc"), ("runs/y", "/w/runs/y", 5, "dddddddd"),
        ("runs/y/policy.h5", "/w/runs/y/policy.h5", 4, "eeeeeeee"),
    ]  # fmt: skip
    runs = []
    for seed, (said, path, generation, sha) in enumerate(begun):
        (run,) = opened(make(tmp_path / f"{seed}", seed=seed, start_from=said))
        start = {"from": said, "path": path, "generation": generation, "theta_sha256": sha}
        start["kind"] = "policy" if path.endswith(".h5") else "run"
        run.columns.attributes["start"] = json.dumps(start)
        runs.append(run)
    assert named([*runs, *opened(make(tmp_path / "6"))]) == {
        "ES": ["6"],
        "ES start_from=x:5:aaaaaa": ["0", "1"],
        "ES start_from=x:9:bbbbbb": ["2"],
        "ES start_from=x:5:cccccc": ["3"],
        "ES start_from=y:5:dddddd": ["4"],
        "ES start_from=y/policy.h5:4:eeeeee": ["5"],
    }


def test_keyword_arguments_of_the_task_are_settings_each(tmp_path, call):
    kwargs = [{}, {"skip": 2}, {"skip": 4}, {"skip": 4, "range": [0.8, 1]}]
    kwargs += [{"skip": 4, "inner": {"a": 1}}, {"skip": 4, "a": 1}]
    runs = opened(*(make(tmp_path / f"{i}", **{"task.kwargs": k}) for i, k in enumerate(kwargs)))
    assert list(named(runs)) == [
        "ES", "ES skip=2", "ES skip=4",
        "ES skip=4 range=0.8x1", "ES skip=4 inner.a=1", "ES skip=4 a=1",
    ]  # fmt: skip
    text = opened(make(tmp_path / "8", **{"task.kwargs": {"skip": "4"}}))
    assert list(named([runs[2], *text])) == ["ES skip=4", "ES skip='4'"]
    swept = sensitivity.measure_sweep(runs[1:3], "task.kwargs.skip")
    assert {label: list(line) for label, line in swept["A-v0"].items()} == {"ES": [2, 4]}
    paths = [run.path for run in runs[1:3]]
    mixed = opened(make(tmp_path / "7", **{"task.kwargs": {"skip": [1, 2]}}), *paths[:1])
    assert [*sensitivity.measure_sweep(mixed, "task.kwargs.skip")["A-v0"]["ES"]] == ["1x2", "2"]
    line = "plot --what sensitivity --field task.kwargs"
    assert "did you mean 'task.kwargs.skip'?" in call(line, *paths, code=2).err


def test_a_seed_twice_is_refused_and_a_run_twice_is_one(tmp_path, call):
    one, two = make(tmp_path / "a"), make(tmp_path / "b")
    assert len(opened(one, one / ".." / "a")) == 1
    for line in ("table", "table --what waiting"):
        assert "are the same seed" in call(line, one, two, code=2).err


def three(place, task="A-v0", algorithm="es", values=(10, 20, 60)):
    return [
        make(place / f"{task}-{algorithm}{seed}", (v, v - 1), algorithm, seed, task)
        for seed, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    "words",
    ["--published pderl-fates", "--measure fates --published esac", "--published esac pderl-fates"],
)
def test_rates_stand_beside_no_returns(tmp_path, call, words):
    told = call("table", *three(tmp_path), *words.split(), code=2)
    assert "the paper prints other figures there than --measure" in told.err


def test_a_bar_in_a_name_is_no_cell_in_markdown():
    table = tables.render([{"run": "a|b", "seed": 1}], "markdown")
    assert table.splitlines() == ["| run | seed |", "| --- | --- |", r"| a\|b | 1 |"]


def test_table_in_markdown(tmp_path, call):
    runs = [*three(tmp_path), *three(tmp_path, "HalfCheetah-v5")]
    runs += three(tmp_path, algorithm="esac", values=(7000,))
    about, source, _, head, _, first, second = call("table", *runs, "--published").out.splitlines()
    assert "return of the last evaluation, the better of theta_es and sac." in about
    assert "Suri et al. 2020" in source
    assert "Table 1" in source
    assert (
        head == "| task | ESAC, final | ES, final"
        " | ESAC [esac] | SAC [esac] | TD3 [esac] | PPO [esac] | ES [esac] |"
    )
    es = "29 ± 26 (19, n=3)"  # std: sqrt((20² + 10² + 30²) / 2)
    assert first == f"| A-v0 | **6,999** (6,999, n=1) | {es} | - | - | - | - | - |"
    assert second.startswith(f"| HalfCheetah-v5 | - | {es} | 10,277 ± 404 | 10,986 ± 320 |")


def test_a_row_is_a_line_whatever_is_in_a_name():
    """A name of another user's run may end lines, or clear a terminal."""
    rows = [{"run": "a\nb\x1b[2J\udcff"}, {"run": "läufe 2"}]
    assert tables.render(rows, "text") == "run\na\\nb\\x1b[2J\\udcff\nläufe 2"


def test_table_in_csv_and_json(tmp_path, call):
    runs, out = three(tmp_path, "dm_control:walker-walk-v0"), tmp_path / "x" / "t.csv"
    row = json.loads(call("table --format json", *runs).out)
    assert (row["algorithm"], row["seeds"], row["source"]) == ("ES", "0 1 2", "these runs")
    line = "table --format csv --measure best --out"
    assert call(line, out, *runs).out == f"{out}\n"
    comment, head, line = out.read_text().splitlines()
    assert comment.startswith("# Measure best")
    assert head == "task,algorithm,mean,std,median,n,seeds,source"
    assert line == "dm_control:walker-walk-v0,ES,30.0,26.457513110645905,20.0,3,0 1 2,these runs"


def test_the_best_is_what_the_run_has_confirmed(tmp_path, call):
    rows = [
        {"best_return": best, "evaluation_td3": np.full(2, mean)}
        for best, mean in ((61.0, 95.8), (61.0, 57.0))
    ]
    run = trained(tmp_path / "a", "td3", rows)
    assert [outcome(run, measure) for measure in ("final", "best")] == [57, 61]
    assert outcome(run, "best", At(100)) == 61
    assert outcome(run, "best", policy="td3") == 95.8
    line = "table --measure best"
    assert "| task | TD3, best |" in call(line, run.path).out
    assert "which flatters" in call(f"{line} --policy td3", run.path).out


@pytest.mark.parametrize("algorithm", ["erl", "pderl"])
def test_champion_and_learner_of_erl_have_a_column_each(tmp_path, call, algorithm):
    policies = {"evaluation_champion": np.full(2, 30.0), "evaluation_learner": np.full(2, 40.0)}
    run = trained(tmp_path / "a", algorithm, [{"best_return": 28.0, **policies}])
    about, _, head, _, line = call("table", run.path).out.splitlines()
    assert "the last evaluation; of champion and learner each. Mean" in about
    mixed = call("table", run.path, make(tmp_path / "b")).out
    assert "the last evaluation, theta_es; of champion and learner each. Mean" in mixed
    name = algorithm.upper()
    assert head == f"| task | {name} champion, final | {name} learner, final |"
    assert line == "| A-v0 | 30.00 (30.00, n=1) | **40.00** (40.00, n=1) |"
    assert summary(run)["final_return"] == outcome(run, "final") == 30


def test_table_at_equal_steps_leaves_out_who_is_not_that_far(tmp_path, call, capsys):
    runs = [
        make(tmp_path / str(seed), returns, seed=seed)
        for seed, returns in enumerate([(10, 70, 80), (20, 30), (5,)])
    ]
    told = call("table --at-steps 220 --measure final", *runs)
    assert "| 50 ± 28 (50, n=2) |" in told.out
    assert "at 220 true steps" in told.out
    assert "left out, not that far or nothing to measure within 220 true steps" in told.err
    assert "nothing to tabulate yet" in call("table --at-steps 2000", *runs, code=2).err
    runs = [runs[0], make(tmp_path / "d", (1, 2), **{"es.sigma": 0.5})]
    runs.append(make(tmp_path / "e", (3,), **{"es.sigma": 0.7}))
    lines = sensitivity.measure_sweep(opened(*runs), "sigma", "final", 220)
    assert [list(line) for line in lines["A-v0"].values()] == [[0.02, 0.5]]  # e is at 110
    assert "left out, nothing to measure, or not that far: e" in capsys.readouterr().err


def test_seeds_of_other_budgets_in_a_column_are_told(tmp_path, call):
    seven = {"budget.generations": 7}
    one, two = make(tmp_path / "a"), make(tmp_path / "b", seed=1, **seven)
    other = make(tmp_path / "c", seed=2, **seven, **{"evaluation.episodes": 9})
    assert "A-v0, ES: runs of other budgets stand in one" in call("table", one, two).err
    assert "in one column" not in call("table --at-steps 110", one, two).err
    assert "runs of other evaluations stand in" in call("table", two, other).err


def test_an_unstable_end_is_told_where_an_earlier_return_stands(tmp_path, call):
    runs = make(tmp_path / "a"), make(tmp_path / "b", (10, 20, np.nan), seed=1)
    told = call("table", *runs)
    assert "| 25.0 ± 7.1 (25.0, n=2) |" in told.out
    assert told.err == "note: no finite return at the end, so by an earlier evaluation: b\n"
    assert call("table", runs[0]).err == call("table --at-steps 220", *runs).err == ""


def test_decimals_follow_the_standard_deviation():
    cell = tables.Cell(9359.789, 0.1035, 9359.8, (0, 1))
    assert tables.format_cell(cell, best=True) == "**9,359.79** ± 0.10 (9,359.80, n=2)"
    rate = tables.Cell(0.00855, 0.00112, 0.008, (0, 1))  # small rewards, or a rate of success
    assert tables.format_cell(rate) == "0.0086 ± 0.0011 (0.0080, n=2)"
    assert tables.digits(tables.Cell(9359.0, 0.0001)) == tables.digits(tables.Cell(0.0)) == 2
    assert tables.format_cell(tables.Cell(-2.01, 0.07, source="a paper")) == "-2.01 ± 0.07"


def test_every_published_number_has_a_source_and_a_column():
    papers = read_results()
    for part in papers.values():
        assert part["source"]
        assert part["protocol"]
        assert {len(row) for row in part["results"].values()} == {len(part["columns"])}
    printed, _ = select_results(["esac", "pderl"], ["Swimmer-v5", "mine:Task-v0"])
    assert printed["mine:Task-v0"] == {}
    assert printed["Swimmer-v5"]["PDERL [pderl]"].median == 348
    cheetah = select_results(["esac", "aesrl"], ["HalfCheetah-v5"])[0]["HalfCheetah-v5"]
    assert cheetah["PPO [esac]"].std == 1456  # printed: 1455.64
    cited = cheetah["CEM-RL [aesrl]"]
    assert (cited.mean, cited.std, cited.median) == (10725, 397, 11539)
    rows = papers["esac"]["results"].values()
    assert len(rows) == 15
    first = [np.argmax([numbers[0] for numbers in row]) == 0 for row in rows]
    assert sum(first) == 10  # the paper's claim


def test_what_fresh_set_aside_is_left_out(tmp_path, capsys):
    for name in ("a", "a.old-1", "b.old-1"):
        make(tmp_path / name, (1, 2))
    found = opened(*(tmp_path / name for name in ("a", "a.old-1", "b.old-1")))
    assert [run.path.name for run in found] == ["a", "b.old-1"]  # nothing took b's place
    assert "left out, as --fresh set them aside: a.old-1" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--at-seconds nan", "--at-seconds -5", "--at-steps -5"])
def test_a_time_that_cannot_be_is_refused(tmp_path, call, words):
    make(tmp_path / "a", (1, 2))
    assert words.split()[0] in call("table", tmp_path / "a", *words.split(), code=2).err
