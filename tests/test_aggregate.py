"""Normalised scores over tasks and seeds, by numbers that can be worked out."""

import dataclasses

import numpy as np
import pytest
from commands import command
from result_rows import history, stored

from esac_mpi.analysis import intervals
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import aggregates, aims, scores
from esac_mpi.analysis.results.traces import Wall, sections

results = command("results")
RANDOM = {"A-v0": {"mean": -10.0}, "B-v0": {"mean": 0.0}}


def runs(task, variant, *returns):
    """Return rows of runs that are evaluated at 10 s and 20 s to these returns: (first, last) of each seed."""
    rows = [
        row
        for seed, (first, last) in enumerate(returns)
        for row in history(variant, seed, [(100, 10, first, None), (200, 20, last, None)])
    ]
    return [dataclasses.replace(row, task=task) for row in rows]


ROWS = [
    *runs("A-v0", "ESAC", (0.0, 60.0), (0.0, 80.0)),
    *runs("A-v0", "ES", (0.0, 90.0), (0.0, 70.0)),
    *runs("A-v0", "SAC", (0.0, 10.0), (0.0, 30.0)),
    *runs("B-v0", "ESAC", (1.0, 4.0), (1.0, 3.0)),
    *runs("B-v0", "ES", (1.0, 1.0), (1.0, 2.0)),
    *runs("B-v0", "SAC", (5.0, 2.0), (1.0, 2.0)),  # 5 is the best on B, before the end
]


def study(rows=ROWS, seconds=20.0, left_out=()):
    return scores.study(sections(rows), RANDOM, Wall(None, seconds), list(left_out))


def test_scores_stand_between_random_actions_and_the_best_of_all():
    found = study()
    a, b = found.tasks
    assert (a.random, a.best, b.random, b.best) == (-10.0, 90.0, 0.0, 5.0)
    assert a.normalised("ESAC").tolist() == [0.7, 0.9]
    assert b.normalised("ESAC").tolist() == [0.8, 0.6]
    assert b.normalised("SAC").tolist() == [0.4, 0.4]
    assert aggregates.iqm(found.scores("ESAC")) == pytest.approx(0.75)  # of 0.6, 0.7, 0.8, 0.9 the middle two
    assert aggregates.mean(found.scores("SAC")) == pytest.approx((0.3 + 0.4) / 2)
    assert study(seconds=10.0).tasks[0].best == 0.0  # what is later is not there yet


def test_the_probability_of_improvement_counts_ties_as_halves():
    ours, theirs = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0])
    assert aggregates.chance(ours, theirs) == (0 + 1 + 2) / 6
    found = study()
    both = [*found.scores("ESAC"), *found.scores("ES")]
    assert aggregates.improvement(both) == pytest.approx((0.25 + 1.0) / 2)  # 80 is above 70 alone; 4 and 3 above 1 and 2


def test_a_draw_has_every_task_and_runs_of_its_own_alone():
    tasks = [np.array([0.0, 1.0]), np.array([10.0, 10.0, 10.0])]
    seen = []
    intervals.stratified(tasks, lambda drawn: seen.append(drawn) or aggregates.mean(drawn), draws=50)
    for first, second in seen:
        assert (first.shape[0], second.shape[0]) == (2, 3)
        assert set(np.unique(first)) == {0.0, 1.0}
        assert np.unique(second).tolist() == [10.0]
    low, high = aggregates.estimate(tasks, aggregates.mean)[1:]
    assert (low, high) == (5.0, 5.5)  # means of the first task are 0, 0.5 or 1, a quarter of them at either end
    assert np.isnan(aggregates.estimate([np.array([1.0])], aggregates.mean).low)


def test_verdicts_about_the_halves():
    found = study()
    on_a, on_b = aims.verdicts(found, "ESAC")
    assert (on_a.better, on_a.behind, on_a.ahead) == ("ES", "no", "no")  # 0.8 to 0.9: a tenth, and not more
    assert on_a.gap == pytest.approx(-0.1)
    assert (on_b.better, on_b.behind) == ("SAC", "no")
    assert on_b.gap == pytest.approx(0.3)
    assert on_b.ahead == "yes"  # 0.6 and 0.8 to 0.4 and to 0.2 and 0.4
    worse = [row for row in ROWS if (row.task, row.variant) != ("A-v0", "ESAC")] + runs("A-v0", "ESAC", (0, 59.0), (0, 80.0))
    assert {one.task.title: one.behind for one in aims.verdicts(study(worse), "ESAC")} == {"A-v0": "in the mean", "B-v0": "no"}
    assert "is behind its better half by more than a tenth of the range on 0" in aims.counted([on_a, on_b], "ESAC")


def test_what_is_missing_is_named_and_left_out_for_all(capsys):
    there = [row for row in ROWS if (row.task, row.variant) != ("B-v0", "SAC")]
    found = study(there)
    assert [task.title for task in found.whole] == ["A-v0"]
    assert found.absent == {"B-v0": "no run is that far of SAC"}
    going_on = [dataclasses.replace(row, complete=False) if (row.variant, row.seed) == ("ES", 1) else row for row in ROWS]
    found = study(going_on, seconds=25.0, left_out=["SAC"])
    assert (len(found.unfinished), len(found.short)) == (2, 6)  # a seed of ES on either task; all others ended before
    assert found.tasks[0].returns["ES"].tolist() == [90.0]
    with pytest.raises(Unusable, match="no task or variant"):
        study(left_out=["C"])
    unknown = [dataclasses.replace(row, task="C-v0") for row in ROWS]
    with pytest.raises(Unusable, match=r"experiment\.py random C-v0"):
        study(unknown)


def test_the_page_and_the_picture(tmp_path, capsys):
    tasks = {"A-v0": "HalfCheetah-v5", "B-v0": "Swimmer-v5"}
    csv = stored(tmp_path / "r.csv", [dataclasses.replace(row, task=tasks[row.task]) for row in ROWS])
    assert results.main(["aggregate", csv, "--seconds", "20"]) == 0
    page = capsys.readouterr().out
    assert "| ESAC | 4 | " in page
    assert "P(ESAC > other)" in page
    assert results.main(["aggregate", csv, "--seconds", "20", "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").stat().st_size > 10_000
