"""Busy seconds: a row has least, mean, most and some ranks in turn; tools add up all."""

from types import SimpleNamespace

import numpy as np
import pytest
from run_files import leave

from esac_mpi.analysis import measures, timeline, times
from esac_mpi.training.loop import RECORDED, busy_columns


@pytest.mark.parametrize("ranks", [1, 2, RECORDED, 65, 127, 128, 512])
def test_a_row_has_rank_0_and_as_many_others_in_turn_as_it_can(ranks):
    seconds, seen = 1.0 + np.arange(ranks), []
    for generation in range(7, 7 + max(1, -(-(ranks - 1) // 63))):
        found = busy_columns(seconds, generation)
        shown, first = found["busy_seconds"], found["busy_first"]
        assert shown[0] == seconds[0]
        assert len(shown) <= RECORDED
        np.testing.assert_array_equal(shown[1:], seconds[first : first + 63])
        seen += shown[1:].tolist()
        assert (found["busy_ranks"], found["busy_min"], found["busy_max"]) == (ranks, 1.0, ranks)
        assert found["busy_mean"] == (ranks + 1) / 2
    assert sorted(seen) == seconds[1:].tolist()


def run_of(path, ranks):
    """Leave three generations: rank i is busy for i + 1 s, all wait for the last."""
    parts = {"seconds_evaluate": ranks + 1.0, "seconds_evaluation": 0.0, "seconds_update": 0.5}
    parts["busy_seconds"] = 1.0 + np.arange(ranks)
    rows = []
    for g in (1, 2, 3):
        row = {"generation": g, "fitness": np.ones(4), "sac_phase": 0}
        rows.append((row, {**parts, "wall_seconds": (ranks + 2.0) * g}))
    return leave(path, rows, provenance={"ranks": ranks})


@pytest.mark.parametrize(
    ("ends", "seconds"), [((9.0, 10.0, 15.0), np.nan), ((9.0, 10.0, 15.0, 15.5), 0.5)]
)
def test_a_generation_after_a_change_of_ranks_is_no_measure(tmp_path, ends, seconds):
    rows = []
    for g, wall in enumerate(ends, 1):
        there = np.full(1 if g < 3 else 2, 0.4)
        parts = {"busy_seconds": there, "wall_seconds": wall, "seconds_evaluation": 0.0}
        rows.append(({"generation": g, "fitness": np.ones(4), "sac_phase": 0}, parts))
    found = times.measure_rest(leave(tmp_path / "run", rows, provenance={"ranks": 2}), 10)
    np.testing.assert_equal(found, seconds)


@pytest.mark.parametrize("ranks", [2, 200])
def test_tools_count_all_ranks_whatever_a_row_has(tmp_path, ranks):
    run = run_of(tmp_path / "run", ranks)
    assert run.columns["timing/busy_seconds"].shape == (3, min(ranks, 64))
    assert measures.parallel_efficiency(run) == pytest.approx(0.5)  # (R + 1) / 2 of R + 1 seconds
    assert times.measure_rest(run, 10) == ranks + 2
    found = times.activities(run)
    np.testing.assert_allclose(found["members"], ranks * (ranks + 1) / 2)
    np.testing.assert_allclose(sum(found.values()), ranks * (ranks + 2.0))
    assert {bar.lane for bar in timeline.segments(run, 1)} == set(range(min(ranks, 64)))
    figure = timeline.draw(run)
    assert f"{ranks} ranks" in figure.get_suptitle()
    assert figure.axes[0].get_ylabel() == ("rank" if ranks == 2 else "rank 0, others in turn")


def test_a_timeline_has_no_rank_that_is_gone(tmp_path):
    rows = []
    for g, ranks in enumerate((2, 2, 1), 1):
        parts = {"busy_seconds": np.full(ranks, 0.4), "wall_seconds": float(g)}
        rows.append(({"generation": g, "fitness": np.ones(4)}, parts))
    figure = timeline.draw(leave(tmp_path / "run", rows, {"algorithm": "es"}))
    assert figure.get_suptitle().endswith("1 to 2 ranks")
    assert [len(lane.get_paths()) for lane in figure.axes[0].collections[:2]] == [3, 2]


def test_a_run_without_busy_seconds_has_no_efficiency():
    assert measures.parallel_efficiency(SimpleNamespace(columns={})) is None
