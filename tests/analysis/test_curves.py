"""Curves and measures of a run: evaluations, and returns of training episodes."""

import argparse

import numpy as np
import pytest
from commands import command
from figure_runs import check_pictures, make, opened, trained

from esac_mpi.analysis import curves, measures, plots
from esac_mpi.analysis.episodes import WINDOW, training, training_returns
from esac_mpi.analysis.evaluations import evaluated, evaluations
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import At, outcome
from esac_mpi.config import Config, updated
from esac_mpi.record import Run

plot = command("plot")


# ---- curves


def test_evaluations_positions_and_the_better_policy(tmp_path):
    (run,) = opened(make(tmp_path / "a", (10, None, -30), "esac"))
    np.testing.assert_array_equal(curves.position(run, "env_steps"), [110, 220, 330])
    np.testing.assert_array_equal(curves.position(run, "wall"), [2, 4, 6])
    generations, returns = evaluations(run, "theta_es")
    assert generations.tolist() == [1, 3]
    assert returns.tolist() == [[9, 11], [-31, -29]]
    curve = curves.return_curve(run, "nominal_steps")
    assert (curve.x.tolist(), curve.y.tolist()) == (
        [1000, 3000],
        [10, -15],
    )  # -15: the SAC mean is the better one
    assert curves.return_curve(run, "generation", "theta_es").y.tolist() == [10, -30]
    assert curves.last_before(curve, 2999) == 10
    assert np.isnan(curves.last_before(curve, 999))


def test_the_evaluation_at_the_end_counts(tmp_path):
    run = Run.begin(tmp_path / "a", updated(Config(), {"algorithm": "es"}), {})
    for g in (1, 2):
        run.append(
            {"generation": g, "evaluation_theta_es": np.array([g, np.nan if g == 2 else 1.0])},
            {"wall_seconds": 1.0 * g},
        )
    run.checkpoint(2, {"theta_es": np.ones(3, np.float32)}, {})
    run.final({"generation": np.array(2), "evaluation_theta_es": np.array([5.0, 7.0])})
    run.close()
    (found,) = opened(tmp_path / "a")
    generations, returns = evaluated(found)  # the one with an unstable episode is no candidate
    assert (generations.tolist(), returns.tolist()) == ([1, 2], [1, 6])


@pytest.mark.parametrize(
    ("measure", "whole", "early"),
    [
        ("best", 50, 50),
        ("final", 20, 50),
        ("population_max", 19, 49),
        ("mean", 40 / 1.5 - 2.5, 30 - 2.5),
    ],
)
def test_measures(tmp_path, measure, whole, early):
    (run,) = opened(make(tmp_path / "a", (10, 50, 20)))
    assert outcome(run, measure) == pytest.approx(whole)
    assert outcome(run, measure, At(220)) == pytest.approx(early)
    assert np.isnan(outcome(run, measure, At(100)))


def test_a_measure_that_there_is_not_is_refused(tmp_path):
    (run,) = opened(make(tmp_path / "a"))
    with pytest.raises(
        Unusable, match="measure 'fates': there are best, final, population_max, mean, elite"
    ):
        outcome(run, "fates")


def test_what_a_run_ended_with_is_of_its_last_evaluation(tmp_path):
    last = {"evaluation_theta_es": np.full(2, np.nan), "evaluation_sac": np.array([12.0, 14.0])}
    rows = [{"evaluation_theta_es": np.full(2, 30.0), "evaluation_sac": np.full(2, 9.0)}, last]
    run = trained(tmp_path / "a", "esac", rows)
    assert measures.last_evaluation(run) == {"generation": 2, "theta_es": None, "sac": 13.0}
    assert measures.final_return(run) == 13.0  # theta_es' 30 was before it was unstable


def test_a_history_may_be_a_frame_beside_columns(tmp_path):
    (run,) = opened(make(tmp_path / "a"))
    other = argparse.Namespace(history=None, columns={"metrics/sigma": np.array([0.5])})
    assert curves.column(other, "metrics/sigma").tolist() == [0.5]
    assert curves.column(run, "metrics/sigma").tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert not curves.column(run, "metrics/nothing").size


# ---- training


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
    run = trained(
        tmp_path / "a", name, [phase(name, 2, 10), phase(name, 0, np.nan), phase(name, 3, 20)]
    )
    episodes, average = training(run, window=3)
    assert episodes.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(
        average, [10, 10, 40 / 3, 50 / 3, 20]
    )  # exact at 2 and 5, where generations end
    assert curves.training_curve(run, "generation", 3).y.tolist() == pytest.approx([10, 10, 20])
    assert curves.training_curve(run, "training_episodes", 3).x.tolist() == [1, 2, 3, 4, 5]


def test_training_of_esac_has_the_phase_after_the_members(tmp_path):
    rows = [
        {"fitness": np.array([1.0, 2.0]), **phase("sac", 0, np.nan)},
        {"fitness": np.array([3.0, 4.0]), **phase("sac", 2, 9)},
    ]
    run = trained(tmp_path / "a", "esac", rows)
    assert training_returns(run)[1].tolist() == [1, 2, 3, 4, 9, 9]


def test_training_of_a_genetic_population_has_its_learners_own_episode(tmp_path):
    rows = [
        {"fitness": np.array([1.0, 2.0]), "learner_episodic_return": own}
        for own in (5.0, np.nan, 7.0)
    ]
    so_far, returns = training_returns(trained(tmp_path / "a", "pderl", rows))
    assert so_far.tolist() == [3, 5, 8]  # of an unstable one there is no return
    assert returns.tolist() == [1, 2, 5, 1, 2, 1, 2, 7]


def test_a_young_run_has_no_training_yet(tmp_path):
    Run.begin(tmp_path / "a", Config(), {}).close()
    (run,) = opened(tmp_path / "a")
    assert [len(found) for found in training(run)] == [0, 0]


def test_plot_draws_training_with_seeds_as_groups(tmp_path, capsys):
    paths = [make(tmp_path / "a"), make(tmp_path / "b", seed=1)]
    learner = trained(tmp_path / "c", "ddpg", [phase("ddpg", 2, 10), phase("ddpg", 4, 20)]).path
    drawing = plots.figure(opened(*paths, learner), "training")
    labels = {
        line.get_label(): (line.get_xdata()[[0, -1]].tolist(), line.get_ydata()[-1])
        for line in drawing.axes[0].lines
    }
    assert labels == {
        "ES, 2 seeds": (
            [1, 12],
            pytest.approx(17.5),
        ),  # of all 12, fewer than 50: (7.5 + 17.5 + 27.5) / 3
        "DDPG, seed 0": ([1, 6], pytest.approx(100 / 6)),
    }
    assert drawing.axes[0].get_xlabel() == "training episodes"
    assert plot.main([*map(str, paths), "--what", "training", "--out", str(tmp_path / "t")]) == 0
    check_pictures(capsys, tmp_path / "t")
