"""The clock of a cluster that is not here: schedules that are known by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from clocked_runs import NONE, ROWS, erl_run_of, run_of
from run_files import leave

from esac_mpi.analysis.clock import grid
from esac_mpi.analysis.clock.recorded import describe_ranks, generation_ends
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster, list_schedule, steps
from esac_mpi.comm.clock.generations import Clock, Generation

FREE = {"latency": 0.0, "bandwidth": np.inf, "barrier": 0.0}


def test_list_schedule_gives_a_task_to_the_first_free_worker():
    # 3 + 2 and 1 + 1 + 1: a tie at 3, then the last task
    assert list_schedule([3, 1, 1, 1, 2], [0, 0]) == 5.0
    assert list_schedule([3, 3], [0]) == 6.0
    # the second worker is busy until 10 and never needed
    assert list_schedule([1, 1, 1], [0, 10]) == 3.0
    assert list_schedule([1, 1, 1], [0, 1.5]) == 2.5
    assert list_schedule([], [0, 7]) == 0.0


def test_messages_cost_latency_each_step_of_a_tree_and_bytes_once():
    assert [steps(p) for p in (1, 2, 3, 4, 5, 64, 65)] == [0, 1, 2, 2, 3, 6, 7]  # ceil(log2 p)
    assert Cluster(64, 64, latency=1.0, bandwidth=10.0).send(50) == 0.0  # one node: shared memory
    assert Cluster(65, 64, latency=1.0, bandwidth=10.0).send(50) == 1.0 + 5.0
    assert Cluster(5 * 64, 64, latency=1.0, bandwidth=10.0).send(50) == 3.0 + 5.0
    assert Cluster(130, 64).locals == [64, 64, 2]


def test_update_is_split_by_whole_blocks_of_parameters():
    assert [Cluster(r, 64, **FREE).share(4) for r in (1, 2, 3, 4, 8)] == [1.0, 0.5, 0.5, 0.25, 0.25]
    assert [Cluster(r, 64, **FREE).share(1) for r in (1, 8)] == [1.0, 1.0]
    assert Cluster(130, 64, **FREE).share(4) == 0.5  # its third node has two ranks
    assert Cluster(2, 64, **FREE).share(2.5) == 2 / 2.5  # rank 0 has a whole block and the half one


def ends(ranks, *generations, cores=64):
    clock = Clock(Cluster(ranks, cores, **FREE))
    return [clock.go(one) for one in generations]


def whole(members=(3.0, 1.0, 1.0, 1.0), **more):
    return Generation(np.array(members), more.pop("expected", np.ones(len(members))), **more)


def test_a_generation_of_es_has_its_parts_in_turn():
    one = whole(serial=0.25, update=0.8, blocks=4, evaluation=np.array([1.0, 2.0, 3.0]))
    assert ends(1, one) == [6 + 0.25 + 0.8 + 6]
    assert ends(2, one) == [3 + 0.25 + 0.4 + 4]  # 3 | 1 1 1; 1 3 | 2
    assert ends(4, one) == [pytest.approx(3 + 0.25 + 0.2 + 3)]
    assert ends(2, one, one) == [pytest.approx(7.65), pytest.approx(15.3)]


def test_members_that_are_expected_to_last_longest_go_first():
    last = (1.0, 1.0, 1.0, 3.0)
    assert ends(2, whole(last)) == [4.0]  # 1 1 | 1 3
    assert ends(2, whole(last, expected=np.array([1, 1, 1, 9.0]))) == [3.0]  # 3 | 1 1 1
    assert ends(2, whole((3.0, 1.0, 1.0, 1.0), expected=np.array([1, 9, 9, 9.0]))) == [4.0]


def test_rank_0_writes_while_others_evaluate():
    # rank 0: writes, then the third; rank 1: two
    assert ends(2, whole((1.0, 1.0, 1.0), record=1.5)) == [2.5]
    assert ends(2, whole((1.0, 1.0), record=4.0)) == [4.0]
    assert ends(1, whole((1.0, 1.0), record=4.0)) == [6.0]
    # nobody else has work
    assert ends(9, Generation(record=4.0, phase=2.0, evaluation=np.ones(9))) == [7.0]


def test_all_wait_for_a_phase_without_a_lag():
    assert ends(4, whole(phase=5.0)) == [8.0]
    assert ends(1, whole(phase=5.0)) == [11.0]


LAGGED = [
    whole((1.0,) * 4, begun=5.0),
    whole((1.0,) * 4),
    whole((1.0,) * 4, merges=True),
    whole((1.0,) * 4),
]


def test_a_phase_runs_beside_and_is_waited_for_where_it_is_due():
    # 2 s on all three; two ranks take 2 s, twice; 1 s of 5 is left; all three again
    assert ends(3, *LAGGED) == [2, 4, 7, 9]
    assert ends(1, *LAGGED) == [4, 8, 17, 21]  # one rank has both to do
    assert ends(5, *LAGGED) == [1, 2, 6, 7]  # 3 s are left
    # three nodes: that of rank 0 is dealt none while it learns
    assert ends(3, *LAGGED, cores=1) == [2, 4, 7, 9]
    # it does not get on while rank 0 writes or updates: 1.5 s of 5 in the second generation
    writing = [LAGGED[0], whole((1.0,) * 4, record=0.5, serial=0.25, update=0.25), *LAGGED[2:]]
    assert ends(3, *writing) == [2, 4.5, 8, 10]
    # but does in an evaluation: two ranks take 2 s for it, and all 5 s are over when it is due
    evaluated = [whole((1.0,) * 4, begun=5.0, evaluation=np.ones(4)), *LAGGED[1:]]
    assert ends(3, *evaluated) == [4, 6, 8, 10]
    # a rank whose phase has ended takes members: rank 1 three of them, rank 0 one from 2 s on
    assert ends(2, whole((1.0,) * 4, begun=2.0), whole((1.0,) * 4)) == [2, 5]


def test_a_critic_has_its_lessons_beside_members():
    taught = {"lesson": 5.0, "trained": np.array([2.0, 2.0])}
    serial, beside = whole((1.0, 1.0), **taught, after_lesson=True), whole((1.0, 1.0), **taught)
    assert ends(1, serial) == ends(1, beside) == [11.0]
    assert ends(2, serial) == [7.0]  # rank 1 plays two and waits until 5; one each
    assert ends(2, beside) == [6.0]  # rank 1 plays two and trains two, while rank 0 teaches
    assert ends(3, serial, serial) == [7.0, 14.0]
    # 1 and 2 s on two ranks, then the rest of the lesson
    assert ends(3, beside, beside) == [5.0, 10.0]


def at(run, ranks):
    # what a barrier costs is below that
    return [round(float(t), 2) for t in generation_ends(run, ranks)]


def walls(run):
    return np.round(run.columns["timing/wall_seconds"], 2).tolist()


SERIAL = [(members, bool(phase), phase, episodes) for members, _, phase, episodes in ROWS]


def test_a_run_without_a_lag_on_other_ranks(tmp_path):
    run = run_of(tmp_path / "run", SERIAL)
    assert at(run, 1) == [5.6, 11.2, 21.8] == walls(run)
    # two ranks: rank 0 writes for 0.1 s, both play 2 s; then 0.5 s of the rest, the update whole,
    # one episode each
    assert at(run, 2) == [3.1, 6.2, 14.3]
    assert at(run, 4) == [2.1, 4.2, 11.3]


@pytest.mark.parametrize("settings", [{"esac.learner_lag": 2}, {"esac.phase_timing": "virtual"}])
def test_a_run_with_phases_beside_on_other_ranks(tmp_path, settings):
    run = run_of(tmp_path / "run", ROWS, **settings)
    assert at(run, 1) == [5.6, 11.2, 21.8]
    # three ranks: 2 s of members, 0.5 of the rest; the phase begins beside the evaluation, for
    # which two ranks take 0.5 s: of its 5 s so much are over; then 2 s less 0.1 of writing, 0.5,
    # and 1.9 again: of its 5 s 0.2 are left when it is due
    assert at(run, 3) == [3.0, 6.0, 9.2]


def test_trial_episodes_are_dealt_like_members(tmp_path):
    run = run_of(tmp_path / "run", SERIAL, trials=[(np.nan, np.nan), (0.5, 0.5), (np.nan, np.nan)])
    assert at(run, 1) == [5.6, 12.2, 22.8] == walls(run)
    # as without them, and 0.5 s more in the second generation
    assert at(run, 2) == [3.1, 6.7, 14.8]


def test_a_member_that_played_nothing_costs_nothing(tmp_path):
    nan, evaluation = np.nan, (0.5, 0.5)
    rows = [
        ((1.0, nan, nan, 1.0), False, NONE, evaluation),
        ((nan,) * 4, False, NONE, evaluation),
        ROWS[0],
    ]
    run = run_of(tmp_path / "run", rows)
    # 2, 0 and 4 s of playing; 1.6 of all else, of it 1 of evaluation
    assert at(run, 1) == [3.6, 5.2, 10.8]
    assert at(run, 2) == [2.1, 3.2, 6.3]
    # who played has it, and where nobody did it is lost on no clock
    run = run_of(tmp_path / "more", rows, beside=0.4)
    assert at(run, 1) == [4.0, 6.0, 12.0] == walls(run)


def test_children_are_made_beside_the_learner_on_other_ranks(tmp_path):
    run = erl_run_of(tmp_path / "run", 2)
    assert at(run, 1) == [12.0, 24.0]  # all of it in turn
    # two ranks: rank 0 writes, then two episodes each; 0.4 s of plan and rest; rank 1 makes both
    # children, while rank 0 learns for 3 s and waits; of the update's five parts three
    assert at(run, 2) == [6.8, 13.6]  # 2.1 + 0.4 + 4 + 0.3
    # 2 + 0.4 + 2 of children and the 1 s that is left of the phase + 0.2
    assert at(run, 3) == [5.6, 11.2]
    three = erl_run_of(tmp_path / "three", 2, 3, 1.9, 2.0, 1.0, 0.2, (2.0, 4.0, 3.0))
    assert three.columns["timing/wall_seconds"][-1] == pytest.approx(11.2)
    for ranks in (1, 2, 3):
        ends = generation_ends(run, ranks)
        np.testing.assert_allclose(generation_ends(three, ranks), ends, rtol=1e-6)


def test_a_clock_does_not_depend_on_other_work_or_ranks(tmp_path):
    quiet, slow = run_of(tmp_path / "quiet", ROWS), run_of(tmp_path / "slow", ROWS, slow=2.0)
    assert walls(slow)[-1] == pytest.approx(2 * walls(quiet)[-1])
    for ranks in (1, 2, 8):
        own = generation_ends(quiet, ranks)
        np.testing.assert_allclose(generation_ends(slow, ranks), own, rtol=1e-9)
    four = run_of(tmp_path / "four", ROWS, ranks=4)
    own = generation_ends(quiet, 1)
    np.testing.assert_allclose(generation_ends(four, 1), own, rtol=1e-3)
    np.testing.assert_allclose(own, quiet.columns["timing/wall_seconds"])  # as it was measured


def test_what_cannot_be_computed_is_one_sentence(tmp_path):
    with pytest.raises(Unusable, match="ranks 0"):
        generation_ends(SimpleNamespace(), 0)
    row = {"generation": 1, "learner_phases": 1, "gradient_updates": 10}
    spent = {"wall_seconds": 3.0, "busy_seconds": np.array([2.0]), "seconds_learn": 2.5}
    run = leave(tmp_path / "older", [(row, spent)], {"algorithm": "sac"})
    with pytest.raises(Unusable, match="before all of its times were recorded"):
        generation_ends(run, 8)
    assert describe_ranks(8) == "computed for 8 ranks"


@pytest.mark.parametrize(("rows", "lag"), [(SERIAL, 0), (ROWS, 2)])
def test_a_cell_says_what_the_run_says(tmp_path, rows, lag):
    run = run_of(tmp_path / "run", rows, **{"esac.learner_lag": lag})
    (text,) = grid.format_cells(run, np.array([run.generation - 1]))
    for ranks in grid.RANKS:
        assert grid.time_on(text, ranks, "a row") == pytest.approx(at(run, ranks)[-1], rel=1e-3)
    assert lag or text == "own 21.8 14.3 11.3 11"


@pytest.mark.parametrize(
    "text", ["own", "own x", "inf 3", "inf 3 2", "own nan", ";", "own " + "1 " * 12]
)
def test_a_damaged_cell_is_refused(text):
    with pytest.raises(Unusable, match="a row: its clock is"):
        grid.time_on(text, 1, "a row")
