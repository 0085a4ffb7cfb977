"""Tables and figures, from runs whose numbers were worked out by hand."""

import argparse
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from commands import NAMES, command
from conftest import ROOT

from esac_mpi.config import Config, load, updated
from esac_mpi.record import Run

sys.path.insert(0, str(ROOT / "tools"))


from esac_mpi.analysis import command as commands_alike
from esac_mpi.analysis import curves, generation_times, grids, groups, intervals, plots, tables, timeline
from esac_mpi.analysis import sensitivity as sensitivities
from esac_mpi.analysis.episodes import WINDOW, training, training_returns
from esac_mpi.analysis.evaluations import evaluated, evaluations
from esac_mpi.analysis.outcomes import outcome
from esac_mpi.analysis.published import book, published

plot, scaling, sensitivity, sweep, table, updates = map(command, ("plot", "scaling", "sensitivity", "sweep", "table", "updates"))


def make(path, returns=(10.0, 20.0, 30.0), algorithm="es", seed=0, task="A-v0", ranks=2, scale=1.0, n=4, **settings):
    """Leave a run behind, one generation for each return; None = not evaluated, then.

    theta_es evaluates to `returns`, the SAC mean to half of them; the members' fitness lies 1 to n below. A generation takes
    100 population steps, 10 learner steps and updates, and 2 * scale seconds.
    """
    values = {"algorithm": algorithm, "seed": seed, "task.id": task, f"{algorithm}.population_size": n, **settings}
    run = Run.begin(path, updated(Config(), values), {"ranks": ranks, "cpu": "a CPU"})
    for g, value in enumerate(returns, 1):
        value = np.nan if value is None else float(value)
        row = {
            "generation": g, "env_steps_population": 100 * g, "env_steps_learner": 10 * g, "env_steps_evaluation": 7 * g,
            "nominal_steps": 1000 * g, "gradient_updates": 10 * g, "sigma": 0.1 * g, "sac_phase": g % 2, "best_return": value,
            "fitness": value - np.arange(1.0, n + 1), "evaluation_theta_es": np.array([value - 1, value + 1]),
        }  # fmt: skip
        if algorithm == "esac":
            losses = {f"sac_{name}": float(g) for name in ("critic_loss", "actor_loss", "mean_q", "entropy")}
            row |= {"evaluation_sac": np.full(2, value / 2), "sac_value_loss": np.nan, **losses}
        times = {"evaluate": 1.0, "plan": 0.0, "update": 0.1, "learn": 0.4, "evaluation": 0.25, "record": 0.05}
        busy = np.array([0.9, 0.5, 0.5, 0.5][:ranks])
        timing = {f"seconds_{name}": scale * seconds for name, seconds in times.items()}
        run.append(row, {"wall_seconds": 2.0 * scale * g, "busy_seconds": scale * busy, **timing})
    run.checkpoint(len(returns), {"theta_es": np.ones(3, np.float32)}, {})
    run.status("complete", len(returns))
    run.close()
    return path


def opened(*paths):
    return commands_alike.opened(paths)


# ---- statistics


def test_interquartile_mean_cuts_a_quarter_on_each_side():
    assert intervals.interquartile_mean(np.array([7.0, 0, 1, 2, 3, 4, 5, 6])) == 3.5  # of 2, 3, 4, 5
    assert intervals.interquartile_mean(np.array([1.0, 2, 3, 100])) == 2.5
    assert intervals.interquartile_mean(np.array([0.0, 0, 3])) == 1  # nothing to cut
    columns = np.array([[1.0, 5], [2, 5], [3, 5], [100, 5]])
    np.testing.assert_array_equal(intervals.interquartile_mean(columns), [2.5, 5])


def test_interval_of_what_can_be_counted():
    assert intervals.interval([np.array([1.0, 5.0])]) == (1.0, 5.0)  # both draws equal: 1 in 4 for each end
    low, high = intervals.interval([np.full((6, 3), 2.5)])
    np.testing.assert_array_equal([low, high], np.full((2, 3), 2.5))
    # pooled draws are 0 0 10 10, 0 2 10 10 or 2 2 10 10, the middle halves 5, 6, 6; without strata 10 10 10 10 could be drawn
    assert intervals.interval([np.array([0.0, 2.0]), np.array([10.0, 10.0])]) == (5.0, 6.0)
    with pytest.raises(ValueError, match="at least two seeds"):
        intervals.interval([np.array([1.0])])


def test_interval_of_a_mean_agrees_with_the_normal_one():
    seeds = np.random.default_rng(1).standard_normal(400)
    found = intervals.interval([seeds], intervals.mean)
    assert intervals.interval([seeds], intervals.mean) == found  # the same every time
    error = seeds.std() / 20
    np.testing.assert_allclose(found, seeds.mean() + np.array([-1.96, 1.96]) * error, atol=0.2 * error)


def test_interval_covers_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    ends = [intervals.interval([random.standard_normal(20)], draws=200) for _ in range(200)]
    covered = np.mean([low <= 0 <= high for low, high in ends])
    assert 0.86 < covered < 0.98  # 0.92 is what 2,000 such experiments gave


# ---- curves


def test_evaluations_positions_and_the_better_policy(tmp_path):
    (run,) = opened(make(tmp_path / "a", (10, None, -30), "esac"))
    np.testing.assert_array_equal(curves.position(run, "env_steps"), [110, 220, 330])
    np.testing.assert_array_equal(curves.position(run, "wall"), [2, 4, 6])
    generations, returns = evaluations(run, "theta_es")
    assert generations.tolist() == [1, 3]
    assert returns.tolist() == [[9, 11], [-31, -29]]
    curve = curves.return_curve(run, "nominal_steps")
    assert (curve.x.tolist(), curve.y.tolist()) == ([1000, 3000], [10, -15])  # -15: the SAC mean is the better one
    assert curves.return_curve(run, "generation", "theta_es").y.tolist() == [10, -30]
    assert curves.last_before(curve, 2999) == 10
    assert np.isnan(curves.last_before(curve, 999))


def test_the_evaluation_at_the_end_counts(tmp_path):
    run = Run.begin(tmp_path / "a", updated(Config(), {"algorithm": "es"}), {})
    for g in (1, 2):
        run.append({"generation": g, "evaluation_theta_es": np.array([g, np.nan if g == 2 else 1.0])}, {"wall_seconds": 1.0 * g})
    run.checkpoint(2, {"theta_es": np.ones(3, np.float32)}, {})
    run.final({"generation": np.array(2), "evaluation_theta_es": np.array([5.0, 7.0])})
    run.close()
    (found,) = opened(tmp_path / "a")
    generations, returns = evaluated(found)  # the one with an unstable episode is no candidate
    assert (generations.tolist(), returns.tolist()) == ([1, 2], [1, 6])


@pytest.mark.parametrize(
    ("measure", "whole", "early"),
    [("best", 50, 50), ("final", 20, 50), ("population_max", 19, 49), ("mean", 40 / 1.5 - 2.5, 30 - 2.5)],
)
def test_measures(tmp_path, measure, whole, early):
    (run,) = opened(make(tmp_path / "a", (10, 50, 20)))
    assert outcome(run, measure) == pytest.approx(whole)
    assert outcome(run, measure, limit=220) == pytest.approx(early)
    assert np.isnan(outcome(run, measure, limit=100))


def test_a_history_may_be_a_frame_beside_columns(tmp_path):
    (run,) = opened(make(tmp_path / "a"))
    other = argparse.Namespace(history=None, columns={"metrics/sigma": np.array([0.5])})
    assert curves.column(other, "metrics/sigma").tolist() == [0.5]
    assert curves.column(run, "metrics/sigma").tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert not curves.column(run, "metrics/nothing").size


# ---- training


def trained(path, algorithm, rows, **settings):
    """Leave a run behind: rows of metrics, 100 learner steps and 2 s each."""
    run = Run.begin(path, updated(Config(), {"algorithm": algorithm, "task.id": "A-v0", **settings}), {})
    for g, row in enumerate(rows, 1):
        run.append({"generation": g, "env_steps_learner": 100 * g, **row}, {"wall_seconds": 2.0 * g})
    run.checkpoint(len(rows), {"theta": np.ones(3, np.float32)}, {}, theta=np.ones(3, np.float32))
    run.status("complete", len(rows))
    run.close()
    return opened(path)[0]


def phase(name, episodes, mean):
    return {f"{name}_episodes": episodes, f"{name}_episodic_return": float(mean)}


def test_training_returns_of_a_population_are_those_of_its_members_in_order(tmp_path):
    (run,) = opened(make(tmp_path / "a"))  # 9 8 7 6, 19 18 17 16, 29 28 27 26
    episodes, average = training(run, window=6)
    assert episodes.tolist() == list(range(1, 13))
    np.testing.assert_allclose(average[[0, 1, 5, 11]], [9, 8.5, 67 / 6, 143 / 6])
    curve = curves.training_curve(run, "wall", window=6)
    assert curve.x.tolist() == [2, 4, 6]
    np.testing.assert_allclose(curve.y, [7.5, (7 + 6 + 19 + 18 + 17 + 16) / 6, 143 / 6])
    assert curves.position(run, "training_episodes").tolist() == [4, 8, 12]
    assert WINDOW == 50  # the paper's


def test_a_member_of_several_episodes_counts_as_many_and_an_unstable_one_has_no_return(tmp_path):
    rows = [{"fitness": np.array([4.0, np.nan])}, {"fitness": np.array([1.0, 3.0])}]
    run = trained(tmp_path / "a", "es", rows, **{"es.population_size": 2, "es.fitness_episodes": 2})
    so_far, returns = training_returns(run)
    assert so_far.tolist() == [2, 6]
    assert returns.tolist() == [4, 4, 1, 1, 3, 3]


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_training_returns_of_a_learner_grow_linearly_within_a_generation(tmp_path, name):
    run = trained(tmp_path / "a", name, [phase(name, 2, 10), phase(name, 0, np.nan), phase(name, 3, 20)])
    episodes, average = training(run, window=3)
    assert episodes.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(average, [10, 10, 40 / 3, 50 / 3, 20])  # exact at 2 and 5, where generations end
    assert curves.training_curve(run, "generation", 3).y.tolist() == pytest.approx([10, 10, 20])
    assert curves.training_curve(run, "training_episodes", 3).x.tolist() == [1, 2, 3, 4, 5]


def test_training_of_esac_has_the_phase_after_the_members(tmp_path):
    rows = [{"fitness": np.array([1.0, 2.0]), **phase("sac", 0, np.nan)}, {"fitness": np.array([3.0, 4.0]), **phase("sac", 2, 9)}]
    run = trained(tmp_path / "a", "esac", rows)
    assert training_returns(run)[1].tolist() == [1, 2, 3, 4, 9, 9]


def test_a_young_run_has_no_training_yet(tmp_path):
    Run.begin(tmp_path / "a", Config(), {}).close()
    (run,) = opened(tmp_path / "a")
    assert [len(found) for found in training(run)] == [0, 0]


def test_plot_draws_training_with_seeds_as_groups(tmp_path, capsys):
    paths = [make(tmp_path / "a"), make(tmp_path / "b", seed=1)]
    learner = trained(tmp_path / "c", "ddpg", [phase("ddpg", 2, 10), phase("ddpg", 4, 20)]).path
    drawing = plots.figure(opened(*paths, learner), "training")
    labels = {line.get_label(): (line.get_xdata()[[0, -1]].tolist(), line.get_ydata()[-1]) for line in drawing.axes[0].lines}
    assert labels == {
        "ES, 2 seeds": ([1, 12], pytest.approx(17.5)),  # of all 12, fewer than 50: (7.5 + 17.5 + 27.5) / 3
        "DDPG, seed 0 (an interval needs two)": ([1, 6], pytest.approx(100 / 6)),
    }
    assert drawing.axes[0].get_xlabel() == "training episodes"
    assert plot.main([*map(str, paths), "--what", "training", "--out", str(tmp_path / "t")]) == 0
    check_pictures(capsys, tmp_path / "t")


# ---- groups


def test_groups_are_named_by_what_differs(tmp_path):
    paper = {"esac.reading": "paper", "esac.winner_pull": 0.0, "esac.crossover": "element"}
    runs = opened(
        make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", algorithm="esac", seed=1),
        make(tmp_path / "c", algorithm="esac", **paper),
        make(tmp_path / "d", algorithm="esac", **paper | {"esac.winner_pull": 0.3}),
        make(tmp_path / "e"), make(tmp_path / "f", task="B-v0", **{"budget.generations": 7}),
    )  # fmt: skip
    found = groups.grouped(runs)
    assert {name: [run.path.name for run in group] for name, group in found["A-v0"].items()} == {
        "ESAC reading=recommended": ["a", "b"],
        "ESAC reading=paper": ["c"],
        "ESAC reading=paper winner_pull=0.3": ["d"],
        "ES": ["e"],
    }
    assert list(found["B-v0"]) == ["ES"]


def test_a_seed_twice_is_refused_and_a_run_twice_is_one(tmp_path, capsys):
    make(tmp_path / "a")
    assert len(opened(tmp_path / "a", tmp_path / "a" / ".." / "a")) == 1
    make(tmp_path / "b")
    assert table.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "are the same seed of the same task and settings" in capsys.readouterr().err


# ---- table


def three(place, task="A-v0", algorithm="es", values=(10, 20, 60)):
    return [str(make(place / f"{task}-{algorithm}{seed}", (v, v - 1), algorithm, seed, task)) for seed, v in enumerate(values)]


def test_table_in_markdown(tmp_path, capsys):
    runs = three(tmp_path) + three(tmp_path, "HalfCheetah-v5") + three(tmp_path, algorithm="esac", values=(7000,))
    assert table.main([*runs, "--published"]) == 0
    about, source, _, head, _, first, second = capsys.readouterr().out.splitlines()
    assert about.startswith("Measure best: best mean return of an evaluation, the better of theta_es and the SAC mean.")
    assert "Suri et al. 2020" in source
    assert "Table 1" in source
    assert head == "| task | ESAC | ES | ESAC [esac] | SAC [esac] | TD3 [esac] | PPO [esac] | ES [esac] |"
    assert (
        first == "| A-v0 | **7,000** (7,000, n=1) | 30 ± 26 (20, n=3) | - | - | - | - | - |"
    )  # std: sqrt((20² + 10² + 30²) / 2)
    assert second.startswith("| HalfCheetah-v5 | - | 30 ± 26 (20, n=3) | 10,277 ± 404 | 10,986 ± 320 |")


def test_table_in_latex_and_csv(tmp_path, capsys):
    runs = three(tmp_path, "dm_control/walker-walk-v0".replace("/", ":"))
    assert table.main([*runs, "--format", "latex", "--measure", "final"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("% Measure final: mean return of the last evaluation")
    assert r"dm\_control:walker-walk-v0 & $29 \pm 26$ (19, n=3) \\" in out
    assert table.main([*runs, "--format", "csv", "--out", str(tmp_path / "x" / "t.csv")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x' / 't.csv'}\n"
    comment, head, line = (tmp_path / "x" / "t.csv").read_text().splitlines()
    assert comment.startswith("# Measure best")
    assert head == "task,algorithm,mean,std,median,n,seeds,source"
    assert line == "dm_control:walker-walk-v0,ES,30.0,26.457513110645905,20.0,3,0 1 2,these runs"


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
    assert "left out, not that far or nothing to measure within the first 220 steps: c" in told.err
    assert table.main([*runs, "--at-steps", "2000"]) == 2
    assert "nothing to tabulate yet" in capsys.readouterr().err


def test_decimals_follow_the_standard_deviation():
    cell = tables.Cell(9359.789, 0.1035, 9359.8, (0, 1))
    assert tables.text(cell, "markdown", best=True) == "**9,359.79** ± 0.10 (9,359.80, n=2)"
    assert tables.text(cell, "latex", best=True) == r"$\mathbf{9{,}359.79} \pm 0.10$ (9,359.80, n=2)"
    assert tables.text(tables.Cell(-2.01, 0.07, source="a paper"), "markdown", best=False) == "-2.01 ± 0.07"


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
    wins = sum(np.argmax([numbers[0] for numbers in row]) == 0 for row in papers["esac"]["results"].values())
    assert wins == 10  # the paper's claim


# ---- sweep


def test_sweep_writes_the_grid(tmp_path, capsys):
    out = tmp_path / "jobs.txt"
    grid = ["--tasks", "Ant-v5", "dm_control/walker-walk-v0", "--algorithms", "esac", "es", "--seeds", "0", "4-5"]
    varied = ["--set", "sigma", "0.1", "0.2", "--set", "esac.amt_clip", "1e-6", "0", "--set", "policy.hidden", "8 8"]
    assert sweep.main([*grid, *varied, "--root", str(tmp_path / "runs"), "--out", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [str(out), "36 runs, 12 settings"]  # 2 tasks * 3 seeds * (2 * 2 of esac + 2 of es)
    assert told[2].split() == ["SLURM", f"LIST={out}", "sbatch", "--array=0-35%10", "jobs/slurm-array.sbatch"]
    assert told[3].split() == ["PBS", "qsub", "-v", f"LIST={out}", "-J", "0-35", "jobs/pbs-array.sh"]
    lines = out.read_text().splitlines()
    assert len(lines) == 36
    first = "--task.id Ant-v5 --algorithm esac --seed 0 --esac.sigma 0.1 --esac.amt_clip 1e-6 --policy.hidden 8 8"
    assert lines[0] == f"{first} --run-dir {tmp_path}/runs/Ant-v5-esac-sigma0.1-amt_clip1e-6-seed0"
    config, _ = load(lines[-1].split())
    assert (config.task.id, config.algorithm, config.seed, config.es.sigma, config.policy.hidden) == (
        "dm_control/walker-walk-v0", "es", 5, 0.2, (8, 8),
    )  # fmt: skip
    assert config.run_dir.endswith("runs/dm_control-walker-walk-v0-es-sigma0.2-seed5")
    assert len({line.split()[-1] for line in lines}) == 36


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "sigme", "1"], "did you mean 'esac.sigma'?"),
        (["--set", "esac.winner_fraction", "2"], "must be at most 1"),
        (["--set", "esac.sigma"], "needs one value or more"),
        (
            ["--algorithms", "esac", "sax", "--set", "sigma", "0.1"],
            "--algorithms sax: there is no such algorithm",
        ),
        (["--seeds", "0..4"], "expected a number or a range"),
        (["--configs", "no.toml"], "no.toml: No such file"),
        (["--tasks", "Ant-v5", "Ant-v5"], "two runs would share"),
    ],
)
def test_sweep_refuses_what_could_not_run(tmp_path, capsys, arguments, said):
    assert sweep.main(["--tasks", "Ant-v5", *arguments, "--out", str(tmp_path / "x" / "jobs.txt")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


# ---- sensitivity, updates, scaling


def test_sensitivity_averages_the_seeds_of_a_value(tmp_path, capsys):
    paths = []
    for sigma, value in ((0.5, 10), (0.01, 40), (0.1, 100)):
        for seed in range(2):
            place = tmp_path / f"{sigma}-{seed}"
            paths.append(make(place, (value + 10 * seed,), seed=seed, **{"es.sigma": sigma}))
    found = sensitivities.of_runs(opened(*paths), "sigma")
    assert {value: sorted(m) for value, m in found["A-v0"]["ES"].items()} == {0.01: [40, 50], 0.1: [100, 110], 0.5: [10, 20]}
    shares = sensitivities.together(found)["all tasks"]["A-v0, ES"]
    assert {value: m.mean() for value, m in shares.items()} == pytest.approx({0.01: 45 / 105, 0.1: 1, 0.5: 15 / 105})
    out = tmp_path / "s"
    assert sensitivity.main([*map(str, paths), "--field", "es.sigma", "--seeds", "--out", str(out)]) == 0
    check_pictures(capsys, out)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("es.lr_es", "is 0.005 in every run: a sweep needs two values"),
        ("sigme", "did you mean"),
        ("budget.generations", "no setting"),
    ],
)
def test_sensitivity_needs_a_field_that_varies(tmp_path, capsys, field, said):
    paths = [make(tmp_path / "a"), make(tmp_path / "b", **{"es.sigma": 0.5})]
    assert sensitivity.main([*map(str, paths), "--field", field]) == 2
    assert said in capsys.readouterr().err


def test_updates_counts_them(tmp_path, capsys):
    paths = [make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", algorithm="esac", seed=1)]
    assert updates.main([*map(str, paths), "--x", "nominal_steps", "--out", str(tmp_path / "u")]) == 0
    check_pictures(capsys, tmp_path / "u")
    assert curves.column(opened(paths[0])[0], "metrics/gradient_updates").tolist() == [10, 20, 30]


def test_scaling_of_generations(tmp_path, capsys):
    one, two = make(tmp_path / "one", ranks=1), make(tmp_path / "two", ranks=2, scale=0.6)
    four = make(tmp_path / "four", ranks=4, scale=0.5, n=8)
    times = generation_times.times_of(opened(one, two, four), last=10)
    assert list(times) == [("ES", 8), ("ES", 4)]
    assert generation_times.per_generation(times["ES", 4][1]) == pytest.approx([1.75])  # 2 s without the evaluation's 0.25 s
    assert generation_times.per_episode(times["ES", 8][4]) == pytest.approx([0.5 * 1.75 / 8])
    assert generation_times.efficiency(times["ES", 4]) == pytest.approx({1: 1.0, 2: 1 / 1.2})  # 2 * 0.6 of the work of one
    assert scaling.main([str(one), str(two), str(four), "--numbers", "--out", str(tmp_path / "s")]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "ES n=4 ranks=1: 1.75 s a generation, 0.4375 s an episode, efficiency 1.00",
        "ES n=4 ranks=2: 1.05 s a generation, 0.2625 s an episode, efficiency 0.83",
        f"{tmp_path / 's.png'}",
        f"{tmp_path / 's.pdf'}",
    ]


def test_scaling_draws_one_task_at_a_time(tmp_path, capsys):
    assert scaling.main([str(make(tmp_path / "a")), str(make(tmp_path / "b", task="B-v0"))]) == 2
    assert capsys.readouterr().err == "mixed tasks: A-v0, B-v0; draw one at a time\n"


# ---- timeline


def test_timeline_adds_up_to_all_the_time(tmp_path):
    (run,) = opened(make(tmp_path / "a", algorithm="esac"))
    found = timeline.activities(run)
    np.testing.assert_allclose(sum(found.values()), [4, 4, 4])  # 2 ranks, 2 s
    alone = {name: seconds[1] for name, seconds in found.items()}
    expected = {"members": 1.4, "learner": 0.4, "update": 0.2, "noise-free evaluation": 0.5, "writing": 0.05, "idle": 1.45}
    assert alone == pytest.approx(expected)
    np.testing.assert_allclose(timeline.idle_share(run), 1.45 / 4)
    bars = {(rank, what): (start, length) for rank, what, start, length in timeline.segments(run, 1)}
    assert bars[1, "members"] == pytest.approx((2.0, 0.5))  # generation 2 begins at 2 s; rank 0 writes first
    assert bars[0, "members"] == pytest.approx((2.05, 0.9))
    assert bars[0, "learner"] == pytest.approx((3.05, 0.4))  # after 1 s of evaluation; the update follows


def test_under_a_lag_rank_0_learns_beside_the_evaluation(tmp_path):
    (run,) = opened(make(tmp_path / "a", (1, 2, 3, 4), "esac", **{"esac.learner_lag": 1}))
    assert timeline.beside(run).tolist() == [False, True, False, True]  # phases begin in generations 1 and 3
    assert timeline.activities(run)["learner"].tolist() == pytest.approx([0.4, 0.5, 0.4, 0.5])  # 1 s less 0.9 s busy


# ---- plot


def check_pictures(capsys, out):
    assert capsys.readouterr().out == f"{out}.png\n{out}.pdf\n"
    assert out.with_name(out.name + ".png").read_bytes().startswith(b"\x89PNG")
    assert out.with_name(out.name + ".pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("what", ["return", "timeline"])
def test_plot_of_one_run(tmp_path, capsys, what):
    run = make(tmp_path / "läufe ü", algorithm="esac")
    assert plot.main([str(run), "--what", what, "--x", "wall"]) == 0
    check_pictures(capsys, run / {"return": "learning_curve"}.get(what, what))


@pytest.mark.parametrize(
    ("what", "drawn"),
    [
        ("sigma", [0.1, 0.3]),
        ("fitness", [7.5, 27.5, 9, 29, 1.25**0.5, 1.25**0.5]),
        ("losses", [1, 3] * 4),
        ("timeline", [0.3625] * 2),
    ],
)
def test_what_is_drawn_of_several_runs(tmp_path, what, drawn):
    paths = [make(tmp_path / str(seed), algorithm="esac", seed=seed) for seed in range(3)]
    drawing = plots.figure(opened(*paths), what, "generation", seeds=True)
    summaries = [axes.lines[-1] for axes in drawing.axes if axes.lines]  # after each seed's own
    assert [len(axes.lines) for axes in drawing.axes if axes.lines] == [4] * len(summaries)
    np.testing.assert_allclose([line.get_ydata()[end] for line in summaries for end in (0, -1)], drawn)


def test_plot_of_two_tasks_and_algorithms(tmp_path, capsys):
    paths = [
        make(tmp_path / f"{algorithm}{seed}{task}", algorithm=algorithm, seed=seed, task=task)
        for algorithm, seed, task in (("esac", 0, "A-v0"), ("esac", 1, "A-v0"), ("es", 0, "A-v0"), ("esac", 0, "B-v0"))
    ]
    assert plot.main([*map(str, paths), "--out", str(tmp_path / "x.y")]) == 0
    check_pictures(capsys, tmp_path / "x.y")


def test_a_group_is_drawn_as_far_as_its_shortest_run(tmp_path, capsys):
    runs = opened(make(tmp_path / "a", (0, 10, 20, 30)), make(tmp_path / "b", (10, 20), seed=1))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    (line,) = drawing.axes[0].lines
    assert line.get_xdata()[[0, -1]].tolist() == [1, 2]
    np.testing.assert_allclose(line.get_ydata()[[0, -1]], [5, 15])
    assert [text.get_text() for text in drawing.legends[0].texts] == ["ES, 2 seeds"]
    assert "shortest run, 50% of its longest; short: b" in capsys.readouterr().err


def test_one_seed_has_a_line_and_no_interval(tmp_path):
    runs = opened(make(tmp_path / "a"), make(tmp_path / "b", algorithm="esac"))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    assert not drawing.axes[0].collections
    texts = [text.get_text() for text in drawing.legends[0].texts]
    assert texts == ["ESAC, seed 0 (an interval needs two)", "ES, seed 0 (an interval needs two)"]


def test_seeds_without_a_common_place_are_drawn_each(tmp_path):
    runs = opened(make(tmp_path / "a", (0, 10)), make(tmp_path / "b", (None, None, 20, 30), seed=1))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    assert [line.get_ydata().tolist() for line in drawing.axes[0].lines] == [[0, 10], [20, 30], []]
    assert [text.get_text() for text in drawing.legends[0].texts] == ["ES, 2 seeds (nowhere all of them)"]


def test_one_suffix_writes_one_file(tmp_path, capsys):
    assert plot.main([str(make(tmp_path / "a")), "--out", str(tmp_path / "x.pdf")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x.pdf'}\n"
    assert not (tmp_path / "x.png").exists()


# ---- bad input


@pytest.mark.parametrize("tool", [plot, table])
def test_where_nothing_can_be_written(tmp_path, capsys, tool):
    (tmp_path / "file").touch()
    assert tool.main([str(make(tmp_path / "a")), "--out", str(tmp_path / "file" / "x.pdf")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("choose another --out")


@pytest.mark.parametrize("tool", [plot, table, updates, scaling])
def test_what_cannot_be_read_is_named(tmp_path, capsys, tool):
    make(tmp_path / "good")
    (tmp_path / "mine").mkdir()
    assert tool.main([str(tmp_path / "good"), str(tmp_path / "mine"), str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("not a run directory of esac_mpi") == 2
    make(tmp_path / "cut", seed=1)
    for file in (tmp_path / "cut").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(900))
    assert tool.main([str(tmp_path / "good"), str(tmp_path / "cut"), str(tmp_path / "foreign")]) == 65
    told = capsys.readouterr().err
    assert "truncated" in told
    assert "foreign" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("tool", "more"), [(plot, ()), (plot, ("--what", "losses")), (table, ()), (sensitivity, ("--field", "sigma")), (scaling, ())]
)
def test_a_run_without_anything_to_show_yet(tmp_path, capsys, tool, more):
    Run.begin(tmp_path / "a", Config(), {}).close()
    assert tool.main([str(tmp_path / "a"), *more]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "yet" in told or "no measured run" in told


def test_a_young_run_is_left_out_of_a_figure(tmp_path, capsys):
    Run.begin(tmp_path / "young", Config(), {}).close()
    make(tmp_path / "unseen", (None, None), seed=1)
    paths = [make(tmp_path / "a"), tmp_path / "unseen", tmp_path / "young"]
    assert plot.main([*map(str, paths), "--out", str(tmp_path / "x")]) == 0
    told = capsys.readouterr().err
    assert "no generation is published yet in young" in told
    assert "nothing of this to draw (yet) of unseen" in told


# ---- all tools


def test_figures_and_tables_need_no_mpi_torch_or_simulator(tmp_path):
    run, files = make(tmp_path / "a"), (ROOT / "esac_mpi/analysis").rglob("*.py")
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files if path.stem != "__init__")
    code = f"""
import sys
sys.modules |= dict.fromkeys(["mpi4py", "torch", "mujoco", "gymnasium", "dm_control"])  # None: an import fails
sys.path.insert(0, {str(ROOT / "tools")!r})
import {", ".join(modules)}
import plot, table
assert plot.main([{str(run)!r}]) == table.main([{str(run)!r}]) == 0
assert "esac_mpi.comm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_is_a_command_is_short_and_says_what_it_does(name, capsys):
    text = (ROOT / "tools" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 150
    assert text.startswith('"""')
    header = text.split('"""')[1]
    assert f"python tools/{name}.py" in header
    assert re.search(r"Cost: |about \d minute", header)
    assert text.endswith('if __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n') or name == "evaluate"
    more = [argparse.Namespace(rank=0)] if name == "evaluate" else []
    with pytest.raises(SystemExit) as end:
        command(name).main(["--help"], *more)
    assert end.value.code == 0
    assert capsys.readouterr().out.count(header.splitlines()[0]) == 1


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "plot.py", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "Plots need matplotlib: pip install esac_mpi[analysis]\n"
