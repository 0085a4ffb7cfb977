"""Scores between random actions and the best, and their aggregate over tasks and seeds, by hand."""

import dataclasses

import numpy as np
import pytest
from result_rows import finals, history, names, run, scored
from toy_tasks import Noted

from esac_mpi.analysis import intervals
from esac_mpi.analysis.intervals import estimate, interval
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results.rows import describe_changes
from esac_mpi.analysis.results.scores import merge_experiments, random_returns
from esac_mpi.analysis.results.traces import Wall
from esac_mpi.studies.experiments import design, random_actions


def test_zero_is_random_and_one_the_best_within_the_time():
    found = scored([
        # the best is 12, at 2 s; 100 came too late
        run("ES", 0, [(2, 12.0), (5, 7.0), (9, 100.0)]),
        run("ES", 1, [(6, 0.0), (7, 50.0)]),  # at the limit counts
        history("ESAC", 0, [(10, 1, 3.0, 4.0), (20, 6, 9.0, 8.0)]),  # the learner was ahead
    ])  # fmt: skip
    (task,) = found.tasks
    assert (task.random, task.best) == (2, 12)
    assert task.scores("ES").tolist() == [0.5, -0.2]
    assert task.scores("ESAC").tolist() == [0.6]
    assert (found.variants, max(found.counts)) == (["ESAC", "ES"], 2)
    assert (found.absent, found.unfinished, found.short) == ({}, [], [])


def test_of_two_policies_the_one_ahead_before_counts():
    ahead = [(10, 1, 9.0, 2.0), (20, 2, 3.0, 4.0), (30, 6, 9.0, 8.0), (40, 9, 7.0, 5.0)]
    found = scored([
        run("ES", 0, [(6, 12.0)]),
        history("ESAC", 0, ahead),  # the learner, at 2 s
        history("ESAC", 1, [(10, 2, 5.0, 5.0), (20, 6, 3.0, 6.0)]),  # equal: theta_es
        history("ESAC", 2, [(10, 2, None, 1.0), (20, 6, 3.0, 6.0)]),  # the one that was there
        history("ESAC", 3, [(10, 6, 3.0, 6.0)]),  # nothing to choose by: the mean of both
        history("ESAC", 4, [(10, 2, 1.0, 8.0), (20, 6, 3.0, None)]),  # the one that is there
    ])  # fmt: skip
    assert found.tasks[0].returns["ESAC"].tolist() == [8, 3, 6, 4.5, 3]
    assert found.tasks[0].best == 12


def test_only_a_run_that_is_done_has_a_score_after_its_end():
    found = scored([
        run("ES", 0, [(3, 5.0)], done=False),
        run("ES", 1, [(3, 7.0)]),
        run("ES", 2, [(6.5, 9.0)], done=False),  # there, but its only evaluation came too late
        run("ES", 3, [(2, 6.0), (7, 8.0)], done=False),  # there
        run("SAC", 0, [(6, 12.0)]),
    ])  # fmt: skip
    assert found.tasks[0].returns["ES"].tolist() == [7, 6]
    assert names(found.unfinished) == ["A-v0, ES, seed 0", "A-v0, ES, seed 2"]
    assert names(found.short) == ["A-v0, ES, seed 1"]
    (task,) = scored([run("ES", 0, [(3, 20.0)], done=False), run("ES", 1, [(6, 7.0)])]).tasks
    assert task.best == 20  # what any run reached


def test_a_task_without_a_run_of_every_variant_is_left_out():
    rows = finals({"ES": (4, 6), "SAC": (12, 8), "TD3": (7,)})
    rows += finals({"ES": (50,), "SAC": (0,)}, "B-v0")
    rows.append(run("TD3", 0, [(1, 9.0)], "B-v0", done=False))
    rows.append(run("ES", 1, [(3, 40.0)], "B-v0"))  # has ended before, which concerns no score
    found = scored(rows)
    assert found.absent == {"B-v0": "no run is that far of TD3"}
    assert (found.short, found.ages) == ([], {"ES": 0, "SAC": 0, "TD3": 0})
    assert [len(scores) for scores in found.scores("ES")] == [2]
    two, one = scored(rows, left_out=["TD3"]), scored(rows, left_out=["TD3", "A-v0"])
    for study, tasks in ((found, ["A-v0"]), (two, ["A-v0", "B-v0"]), (one, ["B-v0"])):
        assert [task.title for task in study.tasks] == tasks
    assert two.variants == ["ES", "SAC"]
    (task,) = scored(rows, left_out=["SAC"]).tasks
    assert task.scores("ES").tolist() == [0.2, 0.4]  # what SAC reached is still the best
    assert one.absent == {"A-v0": "left out, as asked"}
    with pytest.raises(Unusable, match="no run is that far of TD3"):
        scored(rows, left_out=["A-v0"])
    with pytest.raises(Unusable, match=r"'PPO': .*; there are A-v0; B-v0; ES; SAC; TD3"):
        scored(rows, left_out=["PPO"])
    with pytest.raises(Unusable, match="every variant"):
        scored(rows, left_out=["ES", "SAC", "TD3"])


def test_budgets_are_one_table_unless_both_have_a_run():
    def carriers(rows):
        return [dataclasses.replace(row, budget="carriers") for row in rows]

    (one,), (two,) = finals({"ES": (7,)}), finals({"SAC": (12,)})
    (task,) = scored([merge_experiments([*one, *carriers(two)])]).tasks
    assert (task.title, task.returns) == ("A-v0", {"ES": [7], "SAC": [12]})
    with pytest.raises(Unusable, match="A-v0, ES, seed 0: in two experiments or budgets"):
        merge_experiments([*one, *carriers(one)])


def test_a_task_on_which_none_beats_random_actions_is_left_out():
    found = scored([*finals({"ES": (7,)}), *finals({"ES": (-100,)}, "B-v0")])
    assert found.absent == {"B-v0": "no run is ahead of random actions yet"}
    with pytest.raises(Unusable, match=r"C-v0: .*esac-mpi experiment random C-v0"):
        scored(finals({"ES": (7,)}, "C-v0"))


def test_without_a_time_all_are_compared_where_all_have_come():
    es, sac = run("ES", 0, [(2, 4.0), (4, 12.0)]), run("SAC", 1, [(2.5, 5.0)])
    (task,) = scored([es, run("SAC", 0, [(3, 7.0)]), sac], Wall()).tasks  # 2.5 s
    assert (task.returns, task.best) == ({"ES": [4], "SAC": [5]}, 5)


def test_statistics_over_tasks_of_unequal_seeds():
    tasks = [np.array([0.0, 0, 0, 8]), np.array([4.0]), np.array([1.0, 3])]
    # of 0 0 0 8 (1/12 each), 4 (1/3) and 1 3 (1/6) a seventh is cut on each side:
    # (1 / 6 + 3 / 6 + 4 * 23 / 84) / (5 / 7)
    assert intervals.iqm(tasks) == pytest.approx(37 / 15)
    assert intervals.median(tasks) == 2  # of 2, 4, 2
    assert intervals.mean(tasks) == pytest.approx(8 / 3)


def test_equally_good_variants_have_one_iqm_whatever_their_runs():
    """One pays 1 on the first task, 0 on the second: four runs here, one there, or the reverse."""
    here, there = [np.ones(4), np.zeros(1)], [np.ones(1), np.zeros(4)]
    assert intervals.iqm(here) == pytest.approx(0.5)  # all runs alike would give 1
    assert intervals.iqm(there) == pytest.approx(0.5)  # and 0
    random = np.random.default_rng(0)
    full = [random.standard_normal(5) for _ in range(3)]  # of 15 runs the middle 9
    assert intervals.iqm(full) == np.sort(np.concatenate(full))[3:12].mean()
    several = [random.standard_normal((seeds, 7)) for seeds in (2, 3)]  # draw by draw
    each = [intervals.iqm([task[:, i] for task in several]) for i in range(7)]
    assert intervals.iqm(several).tolist() == each


def test_probability_of_improvement_counts_ties_as_halves():
    ours, theirs = [np.array([1.0, 2]), np.array([5.0])], [np.array([1.0, 3]), np.array([4.0])]
    assert intervals.improvement([*ours, *theirs]) == 0.6875  # (1/2 + 0 + 1 + 0) / 4 and 1
    assert intervals.improvement([*theirs, *ours]) == 0.3125
    assert intervals.improvement([*ours, *ours]) == (0.5 + 0.5) / 2
    # (1.5 + 5) / 2 and (2 + 4) / 2; of three runs nothing is cut
    assert intervals.iqm_difference([*ours, *theirs]) == 0.25


def test_draws_keep_the_tasks():
    tasks = [np.array([0.0, 2]), np.array([10.0, 10])]
    # the first task's mean is 0, 1 or 2; never two of the second
    assert estimate(tasks, intervals.mean) == (5.5, 5, 6)
    assert estimate(tasks, intervals.median) == (5.5, 5, 6)
    both = [*tasks, np.array([1.0, 1]), np.array([10.0, 10])]
    # 0, 1/2 or 1 on the first, 1/2 on the second
    assert estimate(both, intervals.improvement) == (0.5, 0.25, 0.75)
    # of 0 2 10 10 it is 6, drawn 5, 6 or 6; theirs 5.5
    assert estimate(both, intervals.iqm_difference) == (0.5, -0.5, 0.5)
    seen = []
    interval(tasks, lambda drawn: seen.append(drawn) or intervals.mean(drawn), draws=50)
    for first, second in seen:
        assert (first.shape, second.shape) == ((2, 50), (2, 50))
        assert (set(first.flat), set(second.flat)) == ({0.0, 2.0}, {10.0})
    value, low, high = estimate([np.array([1.0]), np.array([3.0, 5])], intervals.mean)
    assert value == 2.5
    assert np.isnan([low, high]).all()  # one seed has no interval


def test_interquartile_mean_cuts_a_quarter_on_each_side():
    # of 2, 3, 4, 5
    assert intervals.interquartile_mean(np.array([7.0, 0, 1, 2, 3, 4, 5, 6])) == 3.5
    assert intervals.interquartile_mean(np.array([1.0, 2, 3, 100])) == 2.5
    assert intervals.interquartile_mean(np.array([0.0, 0, 3])) == 1  # nothing to cut
    columns = np.array([[1.0, 5], [2, 5], [3, 5], [100, 5]])
    np.testing.assert_array_equal(intervals.interquartile_mean(columns), [2.5, 5])


def test_interval_of_what_can_be_counted():
    assert interval([np.array([1.0, 5.0])]) == (1.0, 5.0)  # both draws equal: 1 in 4 for each end
    low, high = interval([np.full((6, 3), 2.5)])
    np.testing.assert_array_equal([low, high], np.full((2, 3), 2.5))
    # pooled draws are 0 0 10 10, 0 2 10 10 or 2 2 10 10, the middle halves 5, 6, 6; without strata
    # 10 10 10 10 could be drawn
    assert interval([np.array([0.0, 2.0]), np.array([10.0, 10.0])]) == (5.0, 6.0)
    with pytest.raises(ValueError, match="at least two seeds"):
        interval([np.array([1.0])])


def test_interval_of_a_mean_agrees_with_the_normal_one():
    seeds = np.random.default_rng(1).standard_normal(400)
    found = interval([seeds], intervals.mean)
    assert interval([seeds], intervals.mean) == found  # the same every time
    error = seeds.std() / 20
    normal = seeds.mean() + np.array([-1.96, 1.96]) * error
    np.testing.assert_allclose(found, normal, atol=0.2 * error)


def test_random_actions_are_uniform_and_the_same_every_time():
    one, two = Noted(), Noted()
    found = random_actions.returns(one, 400)
    assert found.tolist() == random_actions.returns(two, 400).tolist()
    assert found.tolist() == np.sum(one.rewards, axis=1).tolist()
    assert len(set(one.seeds)) == len(one.seeds) == 400
    columns = np.reshape(one.actions, (-1, 2)).T
    for actions, low, high in zip(columns, one.low, one.high, strict=True):
        share, _ = np.histogram(actions, 4, (low, high))
        assert min(share) > 400 - 4 * 17.3  # of 1,600; a standard deviation is 17.3
        assert sum(share) == 1600


def test_a_file_of_random_returns_keeps_its_other_tasks(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(random_actions.envs, "make", lambda *given: made.append(given) or Noted())
    path = tmp_path / "random.toml"
    path.write_text('"Z-v0" = { mean = 1.5 }\n')
    assert random_actions.write(["Box-v0"], path, episodes=4) == path
    found, returns = random_returns(path), random_actions.returns(Noted(), 4)
    assert found["Z-v0"] == {"mean": 1.5}
    expected = {"mean": returns.mean(), "error": returns.std(ddof=1) / 2}
    expected |= {"worst": returns.min(), "best": returns.max()}
    assert found["Box-v0"] == pytest.approx(expected, rel=1e-5)
    path = random_actions.write(["A-v0"], tmp_path / "r.toml", 4, 300, {"wind": True, "b": "c"})
    assert made[-1] == ("A-v0", 300, {"wind": True, "b": "c"})
    assert list(random_returns(path)) == ['A-v0, horizon 300, b "c", wind true']


def test_the_zero_of_a_task_that_is_made_otherwise_is_its_own():
    first, *rest = run("ES", 0, [(6, 12.0)])
    short = [dataclasses.replace(first, changed="horizon 300"), *rest]
    with pytest.raises(Unusable, match=r"^A-v0, horizon 300: .* with that --horizon or --kwargs"):
        scored([short])
    with pytest.raises(Unusable, match=r"^A-v0: runs in several forms .*: .* and horizon 300$"):
        scored([short, run("SAC", 0, [(6, 12.0)])])


def test_an_unknown_task_is_one_sentence(call):
    assert "Hopper-v5" in call("experiment random Hoper-v5", code=2).err


def test_the_tasks_of_shipped_aggregates_have_a_random_return():
    known = random_returns(random_actions.FILE)
    run, pole = known["dm_control/cheetah-run-v0"], known["InvertedDoublePendulum-v5"]
    assert run["mean"] < 20 < pole["mean"]
    for found in map(design.experiment, design.names()):
        if any("aggregate" in product.arguments for product in found.products):
            for budget in found.budgets:
                tasks = {run.config.task for run in design.runs(found, budget, design.ROOT)}
                assert {task.id for task in tasks} <= set(known)
                assert {describe_changes(task.horizon, task.kwargs) for task in tasks} == {""}
