"""Who waits, as a table and as bars: of runs that are known by hand."""

import numpy as np
import pytest
from test_clock_tasks import run_of

from esac_mpi.analysis import timeline, times
from esac_mpi.analysis.clock.recorded_tasks import individuals_and_turns


def test_who_waits_on_other_ranks(tmp_path, call):
    """A generation takes 20.5 s on one rank, 10.5 on two and more, 0.5 of it for writing."""
    runs = [run_of(tmp_path / "one"), run_of(tmp_path / "two", ranks=2)]
    one, two = times.waiting(runs, [1, 2, 3])
    assert (one["ranks"], two["ranks"], one["run"]) == (1, 2, "AES_RL")
    assert (one["minutes"], two["minutes"]) == (41 / 60, 21 / 60)
    # 0.5 s of a generation rank 1 waits for the writing
    assert (one["waiting [%]"], two["waiting [%]"]) == pytest.approx((0, 100 * 0.5 / 21))
    expected = {1: (41, 0), 2: (21, 100 * (1 - 41 / 42)), 3: (21, 100 * (1 - 41 / 63))}
    for ranks, (seconds, share) in expected.items():
        assert one[f"minutes on {ranks}"] == pytest.approx(seconds / 60, rel=1e-4)
        assert one[f"waiting on {ranks} [%]"] == pytest.approx(share, abs=0.01)
    line = f"table {tmp_path / 'one'} --what waiting"
    told = call(f"{line} --ranks 2 --steps 12 --published").out
    assert "| HalfCheetah-v5 | AES_RL | 1 | 1 | 0.3417 | 0 | 0.175 | 2.381 |" in told
    assert "HalfCheetah-v5: CEM-RL (1) 467, P-CEM-RL (5) 187, AES-RL (5) 83, AES-RL (9) 54" in told
    assert "a run has 24 nominal steps, not 25" in call(f"{line} --steps 25", code=2).err


def test_of_an_order_of_arrival_no_computed_waiting_is_told(tmp_path):
    (row,) = times.waiting([run_of(tmp_path / "run", order="arrival")], [2], 12)
    assert row["minutes on 2"] == pytest.approx(0.175, rel=1e-4)
    assert np.isnan(row["waiting on 2 [%]"])


def test_individuals_and_critic_are_told_by_their_workers(tmp_path):
    """Worker 2 of two is the critic, whatever it has."""
    run = run_of(tmp_path / "run")
    run.columns["timing/task_worker"][:, 3] = 2
    assert [int(part.sum()) for part in individuals_and_turns(run)] == [6, 2]


def test_bars_of_tasks_lie_where_they_were(tmp_path):
    """After 10.5 s and 0.5 s of writing: 5 s of a task, of which updates took two."""
    bars = timeline.segments(run_of(tmp_path / "run", ranks=2), 1)
    assert (-0.25, "individuals' updates", 11.0, 2.0, 0.5) in bars  # rank 0's own half of its lane
    assert (1, "episodes", 13.0, 3.0, 1.0) in bars
    assert (0, "writing", 10.5, 0.5, 1.0) in bars
