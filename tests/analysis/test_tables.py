"""Groups of runs, and esac-mpi table beside the published numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import command
from figure_runs import make, opened, trained

from esac_mpi.analysis import groups, sensitivity, summary, tables
from esac_mpi.analysis.outcomes import At, outcome
from esac_mpi.analysis.published import book, published

table = command("table")


# ---- groups


def test_groups_are_named_by_what_differs(tmp_path):
    paper = {"esac.preset": "paper", "esac.winner_pull": 0.0, "esac.crossover": "element"}
    runs = opened(
        make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", algorithm="esac", seed=1),
        make(tmp_path / "c", algorithm="esac", **paper),
        make(tmp_path / "d", algorithm="esac", **paper | {"esac.winner_pull": 0.3}),
        make(tmp_path / "e"), make(tmp_path / "f", task="B-v0", **{"budget.generations": 7}),
    )  # fmt: skip
    found = groups.grouped(runs)
    assert {name: [run.path.name for run in group] for name, group in found["A-v0"].items()} == {
        "ESAC preset=corrected": ["a", "b"],
        "ESAC preset=paper": ["c"],
        "ESAC preset=paper winner_pull=0.3": ["d"],
        "ES": ["e"],
    }
    assert list(found["B-v0"]) == ["ES"]


def test_seeds_for_which_the_machine_chose_otherwise_are_no_group(tmp_path):
    virtual = {"algorithm": "esac", "n": 28, "esac.phase_timing": "virtual", "esac.workers": 1}
    same = {"esac.update_cost": 26.0}
    runs = opened(
        make(tmp_path / "a", **virtual, **same), make(tmp_path / "b", seed=1, **virtual, **same),
        make(tmp_path / "c", seed=2, **virtual | {"esac.update_cost": 27.0}),
        make(tmp_path / "d", seed=3, **virtual | same | {"esac.workers": 2}),
        make(tmp_path / "e", algorithm="esac"),
    )  # fmt: skip
    assert [len(found) for found in groups.grouped(runs[:2])["A-v0"].values()] == [2]
    assert sorted(len(found) for found in groups.grouped(runs)["A-v0"].values()) == [1, 1, 1, 2]


def test_costs_that_were_measured_are_of_one_group_where_they_are_near(tmp_path, capsys):
    def virtual(seed, cost, settled="esac.update_cost"):
        values = {
            "n": 28,
            "esac.phase_timing": "virtual",
            "esac.workers": 1,
            "esac.update_cost": cost,
        }
        (run,) = opened(make(tmp_path / f"{seed}-{cost}", algorithm="esac", seed=seed, **values))
        run.columns.attributes["settled"] = settled
        return run

    near = [virtual(0, 27.0), virtual(1, 33.0)]
    assert [len(found) for found in groups.grouped(near)["A-v0"].values()] == [2]
    assert "seeds of one group measured update_cost = 27 to 33" in capsys.readouterr().err
    for other in (
        virtual(2, 55.0),
        virtual(3, 30.0, settled=""),
    ):  # another machine; named, not measured
        assert len(groups.grouped([*near, other])["A-v0"]) == 3


def test_numbers_that_a_run_does_not_read_tell_no_groups_apart(tmp_path):
    runs = opened(
        make(tmp_path / "a", algorithm="esac"),
        make(tmp_path / "b", algorithm="esac", seed=1, **{"esac.workers": "auto"}),
    )
    assert [len(found) for found in groups.grouped(runs)["A-v0"].values()] == [2]


def test_runs_are_of_a_group_that_began_from_the_same(tmp_path):
    """Not by the name of the source: it goes on, is begun anew, and has several names."""
    begun = [  # as it was said, where that is, generation, hash
        ("runs/x", "/w/runs/x", 5, "aaaaaaaa"), ("x", "/w/runs/x", 5, "aaaaaaaa"),
        ("runs/x", "/w/runs/x", 9, "bbbbbbbb"),
        ("runs/x", "/w/runs/x", 5, "cccccccc"), ("runs/y", "/w/runs/y", 5, "dddddddd"),
        ("runs/y/policy.h5", "/w/runs/y/policy.h5", 4, "eeeeeeee"),
    ]  # fmt: skip
    runs = opened(
        *(make(tmp_path / f"{i}", seed=i, start_from=said) for i, (said, *_) in enumerate(begun)),
        make(tmp_path / "6"),
    )
    for run, (said, path, generation, sha) in zip(runs, begun, strict=False):
        start = {"from": said, "path": path, "generation": generation, "theta_sha256": sha}
        start["kind"] = "policy" if path.endswith(".h5") else "run"
        run.columns.attributes["start"] = json.dumps(start)
    assert {
        name: [run.path.name for run in group]
        for name, group in groups.grouped(runs)["A-v0"].items()
    } == {
        "ES": ["6"],
        "ES start_from=x:5:aaaaaa": ["0", "1"],
        "ES start_from=x:9:bbbbbb": ["2"],
        "ES start_from=x:5:cccccc": ["3"],
        "ES start_from=y:5:dddddd": ["4"],
        "ES start_from=y/policy.h5:4:eeeeee": ["5"],
    }


def test_keyword_arguments_of_the_task_are_settings_each(tmp_path, capsys):
    kwargs = [
        {},
        {"skip": 2},
        {"skip": 4},
        {"skip": 4, "range": [0.8, 1]},
        {"skip": 4, "inner": {"a": 1}},
        {"skip": 4, "a": 1},
    ]
    runs = opened(
        *(make(tmp_path / f"{i}", **{"task.kwargs": given}) for i, given in enumerate(kwargs))
    )
    assert list(groups.grouped(runs)["A-v0"]) == [
        "ES", "ES skip=2", "ES skip=4",
        "ES skip=4 range=0.8x1", "ES skip=4 inner.a=1", "ES skip=4 a=1",
    ]  # fmt: skip
    swept = sensitivity.of_runs(runs[1:3], "task.kwargs.skip")
    assert {label: list(line) for label, line in swept["A-v0"].items()} == {"ES": [2, 4]}
    line = [*(str(run.path) for run in runs[1:3]), "--what", "sensitivity"]
    assert table.main([*line, "--field", "task.kwargs"]) == 2
    assert (
        "no setting of es that results depend on; did you mean 'task.kwargs.skip'?"
        in capsys.readouterr().err
    )


def test_a_seed_twice_is_refused_and_a_run_twice_is_one(tmp_path, capsys):
    make(tmp_path / "a")
    assert len(opened(tmp_path / "a", tmp_path / "a" / ".." / "a")) == 1
    make(tmp_path / "b")
    assert table.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "are the same seed of the same task and settings" in capsys.readouterr().err


# ---- table


def three(place, task="A-v0", algorithm="es", values=(10, 20, 60)):
    return [
        str(make(place / f"{task}-{algorithm}{seed}", (v, v - 1), algorithm, seed, task))
        for seed, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--published", "pderl-fates"],
        ["--measure", "fates", "--published", "esac"],
        ["--published", "esac", "pderl-fates"],
    ],
)
def test_rates_stand_beside_no_returns(tmp_path, capsys, words):
    assert table.main([*three(tmp_path), *words]) == 2
    assert "the paper prints other figures there than --measure" in capsys.readouterr().err


def test_table_in_markdown(tmp_path, capsys):
    runs = (
        three(tmp_path)
        + three(tmp_path, "HalfCheetah-v5")
        + three(tmp_path, algorithm="esac", values=(7000,))
    )
    assert table.main([*runs, "--published"]) == 0
    about, source, _, head, _, first, second = capsys.readouterr().out.splitlines()
    assert about.startswith(
        "Measure final: mean return of the last evaluation,"
        " the better of theta_es and the SAC mean."
    )
    assert "Suri et al. 2020" in source
    assert "Table 1" in source
    assert (
        head == "| task | ESAC, final | ES, final"
        " | ESAC [esac] | SAC [esac] | TD3 [esac] | PPO [esac] | ES [esac] |"
    )
    assert (
        first == "| A-v0 | **6,999** (6,999, n=1) | 29 ± 26 (19, n=3) | - | - | - | - | - |"
    )  # std: sqrt((20² + 10² + 30²) / 2)
    assert second.startswith(
        "| HalfCheetah-v5 | - | 29 ± 26 (19, n=3) | 10,277 ± 404 | 10,986 ± 320 |"
    )


def test_table_in_csv_and_json(tmp_path, capsys):
    runs = three(tmp_path, "dm_control/walker-walk-v0".replace("/", ":"))
    assert table.main([*runs, "--format", "json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["algorithm"], row["seeds"], row["source"]) == ("ES", "0 1 2", "these runs")
    assert (
        table.main(
            [*runs, "--format", "csv", "--measure", "best", "--out", str(tmp_path / "x" / "t.csv")]
        )
        == 0
    )
    assert capsys.readouterr().out == f"{tmp_path / 'x' / 't.csv'}\n"
    comment, head, line = (tmp_path / "x" / "t.csv").read_text().splitlines()
    assert comment.startswith("# Measure best")
    assert head == "task,algorithm,mean,std,median,n,seeds,source"
    assert line == "dm_control:walker-walk-v0,ES,30.0,26.457513110645905,20.0,3,0 1 2,these runs"


def test_the_best_is_what_the_run_has_confirmed_and_not_its_luckiest_evaluation(tmp_path, capsys):
    rows = [
        {"best_return": best, "evaluation_td3": np.full(2, mean)}
        for best, mean in ((61.0, 95.8), (61.0, 57.0))
    ]
    run = trained(tmp_path / "a", "td3", rows)
    assert [outcome(run, measure) for measure in ("final", "best")] == [57, 61]
    assert outcome(run, "best", At(100)) == 61
    assert outcome(run, "best", policy="td3") == 95.8
    assert table.main([str(run.path), "--measure", "best"]) == 0
    assert "| task | TD3, best |" in capsys.readouterr().out
    assert table.main([str(run.path), "--measure", "best", "--policy", "td3"]) == 0
    assert "an evaluation, td3, which flatters" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["erl", "pderl"])
def test_champion_and_learner_of_erl_have_a_column_each(tmp_path, capsys, algorithm):
    policies = {"evaluation_champion": np.full(2, 30.0), "evaluation_learner": np.full(2, 40.0)}
    run = trained(tmp_path / "a", algorithm, [{"best_return": 28.0, **policies}])
    assert table.main([str(run.path)]) == 0
    head, _, line = capsys.readouterr().out.splitlines()[-3:]
    name = algorithm.upper()
    assert head == f"| task | {name} champion, final | {name} learner, final |"
    assert line == "| A-v0 | 30.00 (30.00, n=1) | **40.00** (40.00, n=1) |"
    assert summary(run)["final_return"] == outcome(run, "final") == 30


def test_table_at_equal_steps_leaves_out_who_is_not_that_far(tmp_path, capsys):
    runs = [
        str(make(tmp_path / "a", (10, 70, 80))),
        str(make(tmp_path / "b", (20, 30), seed=1)),
        str(make(tmp_path / "c", (5,), seed=2)),
    ]
    assert table.main([*runs, "--at-steps", "220", "--measure", "final"]) == 0
    told = capsys.readouterr()
    assert "| 50 ± 28 (50, n=2) |" in told.out
    assert "at 220 true steps" in told.out
    assert "left out, not that far or nothing to measure within 220 true steps" in told.err
    assert table.main([*runs, "--at-steps", "2000"]) == 2
    assert "nothing to tabulate yet" in capsys.readouterr().err
    swept = [
        *runs[:1],
        str(make(tmp_path / "d", (1, 2), **{"es.sigma": 0.5})),
        str(make(tmp_path / "e", (3,), **{"es.sigma": 0.7})),
    ]
    lines = sensitivity.of_runs(opened(*map(Path, swept)), "sigma", "final", 220)
    assert [list(line) for line in lines["A-v0"].values()] == [[0.02, 0.5]]  # e is at 110
    assert "left out, nothing to measure, or not that far: e" in capsys.readouterr().err


def test_seeds_of_other_budgets_or_evaluations_in_a_column_are_told(tmp_path, capsys):
    runs = [
        str(make(tmp_path / "a")),
        str(make(tmp_path / "b", seed=1, **{"budget.generations": 7})),
    ]
    other = str(make(tmp_path / "c", seed=2, **{"budget.generations": 7, "evaluation.episodes": 9}))
    assert table.main(runs) == 0
    assert "A-v0, ES: runs of other budgets stand in one column" in capsys.readouterr().err
    assert table.main([*runs, "--at-steps", "110"]) == 0
    assert "stand in one column" not in capsys.readouterr().err
    assert table.main([runs[1], other]) == 0
    assert (
        "note: A-v0, ES: runs of other evaluations stand in one column\n" in capsys.readouterr().err
    )


def test_settings_that_differ_beyond_six_digits_are_groups_of_their_own(tmp_path):
    runs = opened(
        make(tmp_path / "a", **{"es.sigma": 0.1}), make(tmp_path / "b", **{"es.sigma": 0.10000001})
    )
    assert list(groups.grouped(runs)["A-v0"]) == ["ES sigma=0.1", "ES sigma=0.10000001"]


def test_decimals_follow_the_standard_deviation():
    cell = tables.Cell(9359.789, 0.1035, 9359.8, (0, 1))
    assert tables.text(cell, best=True) == "**9,359.79** ± 0.10 (9,359.80, n=2)"
    assert tables.text(tables.Cell(-2.01, 0.07, source="a paper")) == "-2.01 ± 0.07"


def test_every_published_number_has_a_source_and_a_column():
    papers = book()
    for part in papers.values():
        assert part["source"]
        assert part["protocol"]
        assert {len(row) for row in part["results"].values()} == {len(part["columns"])}
    printed, _ = published(["esac", "pderl"], ["Swimmer-v5", "mine:Task-v0"])
    assert printed["mine:Task-v0"] == {}
    assert printed["Swimmer-v5"]["PDERL [pderl]"].median == 348
    assert len(papers["esac"]["results"]) == 15
    wins = sum(
        np.argmax([numbers[0] for numbers in row]) == 0
        for row in papers["esac"]["results"].values()
    )
    assert wins == 10  # the paper's claim
