"""Tasks without a barrier: their clock on a cluster not here, and who waits; known by hand."""

import random

import numpy as np
import pytest
from event_queue import queue as event_queue
from run_files import leave, young

from esac_mpi.analysis import timeline, times
from esac_mpi.analysis.clock import generation_ends
from esac_mpi.analysis.clock.recorded_tasks import individuals_and_turns
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.tasks import AtWork, Piece, Queue, Section

CRITIC = 9  # of these workers


def ended(ranks, lists, *sections, arrival=False, seen=None):
    """Return when sections end: of tasks (virtual [steps], [s]) by worker, a list's last repeated.

    Before these steps a task may have updates: (virtual [steps], [s]) once more.
    """
    given = dict.fromkeys(lists, 0)

    def give(told):
        for worker in [told.worker] if told else lists:
            virtual, seconds, *updates = lists[worker][min(given[worker], len(lists[worker]) - 1)]
            given[worker] += 1
            start = told.start + told.progress if told else 0
            first, lasted = updates or (0.0, 0.0)
            yield worker, start, Piece((first, virtual), (lasted, seconds)), worker == CRITIC
        if told and seen is not None:
            seen.append((told.worker, told.start + told.progress))

    clock = Queue(Cluster(ranks, latency=0.0, bandwidth=np.inf, barrier=0.0), give, CRITIC, arrival)
    return [round(clock.go(section), 2) for section in sections], clock


def test_workers_on_own_ranks_go_as_the_virtual_clock_does():
    lists = {0: [(3000, 3.0), (1000, 1.0)], 1: [(2000, 2.0)]}
    times, clock = ended(3, lists, Section(2), Section(2))
    # ends at 2 and 3, then both at 4; at a tie worker 0 is first, and waited for a step longer
    assert times == [3.0, 4.0]
    assert clock.busy.round(2).tolist() == [0.0, 4.0, 4.0]  # rank 0 has nothing to do but to decide


def test_a_result_waits_for_what_may_end_before_it():
    slow = {0: [(10, 1.0)], 1: [(5, 4.0)]}  # worker 0 is ahead of its virtual time
    # that of worker 0 waits from 1 to 8: two of worker 1 are first
    assert ended(3, slow, Section(1), Section(2))[0] == [4.0, 8.0]
    assert ended(3, slow, Section(1), Section(2), arrival=True)[0] == [1.0, 3.0]


def test_what_updates_last_is_known_when_they_begin():
    slow = {0: [(10, 1.0)], 1: [(5, 1.0, 30, 9.0)]}  # worker 1 updates for 9 s, and is at 30 then
    # results at 10, 20 and 30 go before 35, that at 40 does not
    assert ended(3, slow, Section(3), Section(1))[0] == [3.0, 10.0]
    teaching = {0: [(10, 10.0)], CRITIC: [(0, 3.0, 30, 3.0), (1, 1.0)]}
    # who can end at 30 at the earliest is left for later
    assert ended(1, teaching, Section(2))[0] == [20.0]


def test_one_rank_does_all_in_turn_and_two_share():
    tasks = {worker: [(2, 2.0)] for worker in range(4)}
    assert ended(1, tasks, Section(4))[0] == [8.0]
    times, clock = ended(2, tasks, Section(4))
    assert (times, clock.busy.tolist()) == ([4.0], [4.0, 4.0])


def test_rank_0_goes_on_with_that_of_its_tasks_which_is_behind():
    both = {0: [(10, 10.0)], 1: [(10, 10.0)], CRITIC: [(10, 10.0), (100, 10.0)]}
    times, clock = ended(2, both, Section(2))
    # rank 1 has worker 0's at 10 s, and waits for the other two, which share rank 0
    assert times == [20.0]
    assert clock.busy.tolist() == [20.0, 10.0]
    # gets on ten times as fast: both are at 10 after 11 s
    assert ended(1, {0: [(10, 10.0)], CRITIC: [(30, 3.0)]}, Section(1))[0] == [11.0]


def test_rank_0_decides_and_writes_while_others_go_on():
    tasks, uneven = {0: [(2, 2.0)], 1: [(2, 2.0)]}, {0: [(3, 3.0)], 1: [(2, 2.0)]}
    # both come at 2 s, 1 s of decisions
    assert ended(3, tasks, Section(2, lead=0.5), Section(2, lead=0.5))[0] == [3.0, 6.0]
    # it gives nothing out until it has written
    assert ended(3, tasks, Section(2), Section(2, record=3.0))[0] == [2.0, 7.0]
    # at 3, but rank 0 writes until 5
    assert ended(3, uneven, Section(1), Section(1, record=3.0), arrival=True)[0] == [2.0, 5.0]
    first = Section(2, serial=0.25, evaluation=np.ones(4))  # two rounds on 3 ranks
    assert ended(3, tasks, first, Section(2))[0] == [4.25, 6.25]


def test_progress_goes_through_updates_and_then_steps():
    piece = Piece((6.0, 4.0), (3.0, 1.0))
    assert [piece.over(spent) for spent in (0, 1.5, 3.0, 3.5, 4.0)] == [0, 3, 6, 8, 10]
    left = [piece.until(progress) for progress in (0, 3, 6, 8, 10, 11)]
    assert left == [0, 1.5, 3.0, 3.5, 4.0, 4.0]
    assert AtWork(None, piece, 0).speed() == (0.0, 3.0)
    assert Piece((0.0, 4.0), (3.0, 1.0)).over(2.0) == 0


@pytest.mark.parametrize("seed", range(100))
def test_results_come_as_an_event_queue_says_on_any_ranks(seed):
    choose = random.Random(seed)
    workers, ranks = choose.randint(1, 6), choose.randint(1, 8)
    lists = {
        w: [(choose.choice((1, 2, 3, 5, 50)), choose.choice((0.1, 1.0, 7.0))) for _ in range(30)]
        for w in range(workers)
    }
    told = []
    _, clock = ended(ranks, lists, Section(30), seen=told)
    expected = event_queue(lambda worker, number: lists[worker][min(number, 29)][0], workers, 30)
    assert told == expected
    assert clock.busy.max() <= clock.now + 1e-6


def run_of(path, generations=2, ranks=1, without=0, older=False, order="virtual"):
    """Leave a run of two workers behind, generations of four arrivals.

    A task has 2 updates and 3 steps, 2 s and 3 s, on the clock 5 steps; each generation 0.5 s of
    writing. `without`: so many tasks of the first generation were told before a stop. older: no
    task's time is recorded.
    """
    lasted, rows = 20.0 if ranks == 1 else 10.0, []
    tasks = {
        "worker": [0, 1, 0, 1], "rank": [0, 1, 0, 1] if ranks > 1 else [0] * 4,
        "start": [0, 0, 5, 5], "end": [5, 5, 10, 10], "told": [5, 5, 10, 10],
        "busy": [5] * 4, "updating": [2] * 4, "steps": [3] * 4, "updates": [2] * 4,
    }  # fmt: skip
    for g in range(1, generations + 1):
        row = {
            "generation": g, "fitness": np.zeros(4), "length": np.full(4, 3),
            "learned": np.ones(4, np.int64), "worker": np.array([0, 1, 0, 1]),
            "virtual_end": (g - 1) * 10 + np.array([5, 5, 10, 10]), "lag": np.ones(4, np.int64),
            "gradient_updates": 0, "evaluation_mean": np.full(1, np.nan), "nominal_steps": 12 * g,
            "env_steps_population": 12 * g,
        }  # fmt: skip
        timing = {
            "busy_seconds": np.full(ranks, 20.0 / ranks), "seconds_evaluate": lasted,
            "seconds_lead": 0.0, "seconds_wait": 0.0,
            "seconds_evaluation": 0.0, "evaluation_seconds": np.full(1, np.nan),
            "seconds_record": 0.5,
            "wall_seconds": g * (lasted + 0.5), "seconds_processor": lasted + 0.5,
        }  # fmt: skip
        if not older:
            kept = slice(without if g == 1 else 0, None)
            timing |= {f"task_{name}": np.array(seen, float)[kept] for name, seen in tasks.items()}
        rows.append((row, timing))
    settings = {"workers": 2, "update_cost": 1.0, "order": order}
    settings = {f"aes_rl.{name}": value for name, value in settings.items()}
    settings |= {"algorithm": "aes_rl", "evaluation.episodes": 1}
    return leave(path, rows, settings, {"ranks": ranks, "nodes": 1, "blocks": 1, "device": "cpu"})


def test_a_recorded_run_on_other_ranks(tmp_path):
    run = run_of(tmp_path / "one")
    assert generation_ends(run, 1).round(3).tolist() == [20.5, 41.0]
    # rank 0 writes for 0.5 s, then gives out; in the second generation, too, since all was told at
    # the end of the first
    for ranks in (2, 3):
        assert generation_ends(run, ranks).round(2).tolist() == [10.5, 21.0]
    two, stopped = run_of(tmp_path / "two", ranks=2), run_of(tmp_path / "stopped", without=3)
    np.testing.assert_allclose(generation_ends(two, 1), generation_ends(run, 1))
    np.testing.assert_allclose(generation_ends(stopped, 2), generation_ends(run, 2))
    older = run_of(tmp_path / "older", older=True)
    with pytest.raises(Unusable, match="before all of its times were recorded"):
        generation_ends(older, 2)


def test_the_shares_of_a_run_are_those_of_its_tasks(tmp_path):
    found = times.activities(run_of(tmp_path / "run", ranks=2))
    assert {name: values.tolist() for name, values in found.items()} == {
        "individuals' updates": [8.0, 8.0], "episodes": [12.0, 12.0],
        "learner": [0.0, 0.0], "decisions": [0.0, 0.0],
        "noise-free evaluation": [0.0, 0.0], "writing": [0.5, 0.5], "idle": [0.5, 0.5],
    }  # fmt: skip


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
    assert "--published esac: of waiting" in call(f"{line} --published esac", code=2).err
    assert "--format json has none" in call(f"{line} --format json --published", code=2).err


def test_a_run_without_a_generation_waits_for_nobody(tmp_path, call):
    young(tmp_path / "young")
    line = f"table --what waiting {tmp_path / 'young'}"
    told = call(line, run_of(tmp_path / "one").path)
    assert "no generation is published yet in young" in told.err
    assert told.out.count("AES_RL") == 1
    assert "nothing to tabulate yet" in call(line, code=2).err


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
