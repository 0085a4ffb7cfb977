"""Curves and measures of a run: evaluations, and returns of training episodes."""

import argparse

import numpy as np
import pytest
from figure_runs import lines, make, opened, trained
from run_files import leave, young

from esac_mpi.analysis import curves, measures, plots
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import At, outcome
from esac_mpi.analysis.returns import WINDOW, evaluated, evaluations, training, training_returns


def test_evaluations_positions_and_the_better_policy(tmp_path):
    (run,) = opened(make(tmp_path / "a", (10, None, -30), "esac"))
    np.testing.assert_array_equal(curves.position(run, "env_steps"), [110, 220, 330])
    np.testing.assert_array_equal(curves.position(run, "wall"), [2, 4, 6])
    generations, returns = evaluations(run, "theta_es")
    assert (generations.tolist(), returns.tolist()) == ([1, 3], [[9, 11], [-31, -29]])
    curve = curves.return_curve(run, "nominal_steps")
    # -15: the SAC mean is the better one
    assert (curve.x.tolist(), curve.y.tolist()) == ([1000, 3000], [10, -15])
    assert curves.return_curve(run, "generation", "theta_es").y.tolist() == [10, -30]
    assert curves.last_before(curve, 2999) == 10
    assert np.isnan(curves.last_before(curve, 999))
    other = argparse.Namespace(history=None, columns={"metrics/sigma": np.array([0.5])})
    assert measures.column(other, "metrics/sigma").tolist() == [0.5]  # beside a frame, too
    assert measures.column(run, "metrics/sigma").tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert not measures.column(run, "metrics/nothing").size


def test_the_evaluation_at_the_end_counts(tmp_path):
    rows = [
        ({"generation": g, "evaluation_theta_es": np.array([g, last])}, {"wall_seconds": 1.0 * g})
        for g, last in ((1, 1.0), (2, np.nan))
    ]
    final = {"generation": np.array(2), "evaluation_theta_es": np.array([5.0, 7.0])}
    # the one with an unstable episode is no candidate
    generations, returns = evaluated(leave(tmp_path, rows, {"algorithm": "es"}, final=final))
    assert (generations.tolist(), returns.tolist()) == ([1, 2], [1, 6])


@pytest.mark.parametrize(
    ("measure", "whole", "early"),
    [("best", 50, 50), ("final", 20, 50), ("population_max", 19, 49),
     ("mean", 40 / 1.5 - 2.5, 30 - 2.5)],
)  # fmt: skip
def test_measures(tmp_path, measure, whole, early):
    (run,) = opened(make(tmp_path / "a", (10, 50, 20)))
    assert outcome(run, measure) == pytest.approx(whole)
    assert outcome(run, measure, At(220)) == pytest.approx(early)
    assert np.isnan(outcome(run, measure, At(100)))
    with pytest.raises(Unusable, match=r"there are best, final, population_max, mean$"):
        outcome(run, "fates")


def test_what_a_run_ended_with_is_of_its_last_evaluation(tmp_path):
    last = {"evaluation_theta_es": np.full(2, np.nan), "evaluation_sac": np.array([12.0, 14.0])}
    rows = [{"evaluation_theta_es": np.full(2, 30.0), "evaluation_sac": np.full(2, 9.0)}, last]
    run = trained(tmp_path / "a", "esac", rows)
    assert measures.last_evaluation(run) == {"generation": 2, "theta_es": None, "sac": 13.0}
    assert measures.final_return(run) == 13.0  # theta_es' 30 was before it was unstable


def phase(name, episodes, mean):
    return {f"{name}_episodes": episodes, f"{name}_episodic_return": float(mean)}


def fitness(*returns):
    return {"fitness": np.array(returns, float)}


NAN = float("nan")


@pytest.mark.parametrize(
    ("algorithm", "settings", "rows", "episodes", "returns"),
    [
        # a member of several episodes counts as many, and an unstable one has no return
        ("es", {"es.population_size": 2, "es.fitness_episodes": 2},
         [fitness(4, NAN), fitness(1, 3)], [2, 6], [4, 4, 1, 1, 3, 3]),
        # a phase is after the members
        ("esac", {}, [fitness(1, 2) | phase("sac", 0, NAN), fitness(3, 4) | phase("sac", 2, 9)],
         [2, 6], [1, 2, 3, 4, 9, 9]),
        # the learner's own episode; of an unstable one there is no return
        ("pderl", {}, [fitness(1, 2) | {"learner_episodic_return": own} for own in (5.0, NAN, 7.0)],
         [3, 5, 8], [1, 2, 5, 1, 2, 1, 2, 7]),
    ],
)  # fmt: skip
def test_training_returns_of_members_and_learners(
    tmp_path, algorithm, settings, rows, episodes, returns
):
    so_far, found = training_returns(trained(tmp_path / "a", algorithm, rows, **settings))
    assert (so_far.tolist(), found.tolist()) == (episodes, returns)


def test_training_returns_of_a_population_are_its_members(tmp_path):
    (run,) = opened(make(tmp_path / "a"))  # 9 8 7 6, 19 18 17 16, 29 28 27 26
    episodes, average = training(run, window=6)
    assert episodes.tolist() == list(range(1, 13))
    np.testing.assert_allclose(average[[0, 1, 5, 11]], [9, 8.5, 67 / 6, 143 / 6])
    curve = curves.training_curve(run, "wall", window=6)
    assert curve.x.tolist() == [2, 4, 6]
    np.testing.assert_allclose(curve.y, [7.5, (7 + 6 + 19 + 18 + 17 + 16) / 6, 143 / 6])
    assert curves.position(run, "training_episodes").tolist() == [4, 8, 12]
    assert WINDOW == 50  # the paper's
    assert [len(found) for found in training(*opened(young(tmp_path / "young")))] == [0, 0]


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_a_learners_training_returns_grow_linearly(tmp_path, name):
    phases = [phase(name, 2, 10), phase(name, 0, np.nan), phase(name, 3, 20)]
    run = trained(tmp_path / "a", name, phases)
    episodes, average = training(run, window=3)
    assert episodes.tolist() == [1, 2, 3, 4, 5]
    # exact at 2 and 5, where generations end
    np.testing.assert_allclose(average, [10, 10, 40 / 3, 50 / 3, 20])
    assert curves.training_curve(run, "generation", 3).y.tolist() == pytest.approx([10, 10, 20])
    assert curves.training_curve(run, "training_episodes", 3).x.tolist() == [1, 2, 3, 4, 5]


def test_one_huge_return_spoils_no_later_average(tmp_path):
    (run,) = opened(make(tmp_path / "a", (1e30, 5, 6, 7), n=1))
    assert training(run, window=2)[1].tolist() == [1e30, 5e29, 4.5, 5.5]


def test_training_is_drawn_with_seeds_as_groups(tmp_path):
    paths = [make(tmp_path / "a"), make(tmp_path / "b", seed=1)]
    learner = trained(tmp_path / "c", "ddpg", [phase("ddpg", 2, 10), phase("ddpg", 4, 20)]).path
    (axes,) = plots.figure(opened(*paths, learner), "training").axes
    found = {label: (x[0], x[-1], y[-1]) for label, (x, y) in lines(axes).items()}
    assert found == {
        # of all 12, fewer than 50: (7.5 + 17.5 + 27.5) / 3
        "ES, 2 seeds": (1, 12, pytest.approx(17.5)),
        "DDPG, seed 0": (1, 6, pytest.approx(100 / 6)),
    }
    assert axes.get_xlabel() == "training episodes"
