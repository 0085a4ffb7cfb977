"""World on one process, and in tests/support/exchanges.py on four; who evaluates what."""
# tests/program/test_run.py compares whole runs.

import launchers
import numpy as np
import pytest
from conftest import ROOT

from esac_mpi.comm import headers, launch, node
from esac_mpi.comm.headers import DivergedError, boards
from esac_mpi.comm.schedule import deal, with_trials
from esac_mpi.host.errors import WrongUsage


def test_map_begins_with_what_is_expected_to_take_longest(world):
    begun, expected = [], np.array([1.0, 3.0, 2.0, 3.0])
    table, _ = world.map(lambda i: begun.append(i) or np.array([i]), 4, 1, expected)
    assert begun == [1, 3, 2, 0]
    assert table.tolist() == [[0], [1], [2], [3]]


def test_results_stay_until_the_next_of_their_shape(world):
    first, _ = world.map(lambda i: np.array([i]), 3, 1)
    other, _ = world.map(lambda i: np.array([i, i]), 3, 2)
    seen = []
    second, _ = world.map(lambda i: seen.append(first.ravel().tolist()) or np.array([10 + i]), 3, 1)
    assert seen == [[0, 1, 2]] * 3
    assert (first.ravel().tolist(), second.ravel().tolist()) == ([0, 1, 2], [10, 11, 12])
    third, _ = world.map(lambda i: np.array([20 + i]), 3, 1)
    assert np.shares_memory(first, third)
    assert not np.shares_memory(second, third)
    assert other[:, 1].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        third[0] = 1


def test_boards_that_are_reserved_are_those_that_are_used(world):
    shared, made = world.shared, []
    world.shared = lambda shape, dtype: made.append(shape) or shared(shape, dtype)
    world.reserve(3, 2)
    assert made == [boards(3, 2, 1)] == [(2, 3 * 2 + 5)]
    world.map(lambda i: np.zeros(2), 3, 2)
    world.reserve(3, 2)
    assert len(made) == 1


class Beside:
    """A background of so many slices, each with work for its rank, or only for its device."""

    def __init__(self, slices, waits):
        self.left, self.waits = slices, waits

    @property
    def done(self):
        return not self.left

    def advance(self):
        self.left -= 1


@pytest.mark.parametrize(("waits", "left"), [(True, [9, 8, 7, 6]), (False, [0, 0, 0, 0])])
def test_rank_0_takes_members_while_a_device_works(world, waits, left):
    """It looks once before each member; a background that needs its core is done before them."""
    world.size, found = 2, []  # as if another rank evaluated for it
    background = Beside(10, waits)
    world.begin_background(1, background, beside=True)
    world.map(lambda i: found.append(background.left) or np.zeros(1), 4, 1)
    assert found == left
    world.at_root(lambda: np.array([background.left]), 1)
    assert background.done


def test_a_device_is_looked_after_less_and_less_often(world, monkeypatch):
    """As interleaved phases need it; where a core is needed nobody sleeps."""
    slept, background = [], Beside(300, True)
    monkeypatch.setattr(
        "esac_mpi.comm.world.time.sleep", lambda s: slept.append((s, background.left))
    )
    world.begin_background(1, background, beside=False)
    world.at_root(lambda: np.zeros(1), 1)
    assert [seconds for seconds, _ in slept[:3]] == pytest.approx([5e-6, 1e-5, 1.5e-5])
    assert max(seconds for seconds, left in slept if left) == 1e-3
    slept.clear()
    background = Beside(9, False)
    world.begin_background(2, background, beside=False)
    world.at_root(lambda: np.zeros(1), 1)
    assert not [seconds for seconds, left in slept if left]


def test_over_blocks_adds_in_block_order(world):
    # in float64, (1e16 + 1) - 1e16 is 0 and (1e16 - 1e16) + 1 is 1: the order shows
    assert world.over_blocks(lambda b: np.array([[1e16, 1.0, -1e16][b]]), 3, 1) == [0.0]
    assert world.over_blocks(lambda b: np.array([[1e16, -1e16, 1.0][b]]), 3, 1) == [1.0]


def test_shared_arrays_hold_what_was_shared(world):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = world.share(values)
    values[:] = 0
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))
    assert world.shared((0, 4)).shape == (0, 4)


def test_too_little_shared_memory_is_refused_with_the_bytes(world):
    world._node.size = 2
    with pytest.raises(MemoryError, match=f"need {2**60} more: ask for a larger /dev/shm"):
        world.shared((2**58,), np.float32)


def test_one_rank_on_a_node_needs_no_shared_memory(world, monkeypatch):
    monkeypatch.setattr(node, "free_memory", lambda: 0)
    assert world.share(np.arange(3)).tolist() == [0, 1, 2]
    assert world.map(lambda i: np.array([i]), 3, 1)[0].ravel().tolist() == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_ranks_leave_their_parts_when_one_of_any_node_gives_up(mpi):
    if reason := launchers.missing(mpi):
        pytest.skip(reason)
    line = [*launchers.launcher(mpi, 4), launchers.python(mpi), ROOT / "tests/support/exchanges.py"]
    assert launchers.run(line).stdout.count("sound") == 4  # lines of ranks may mix


def test_a_wish_to_stop_reaches_the_next_exchange(world):
    world.map(lambda i: np.zeros(1), 1, 1)
    assert not world.stopping
    world.stop.wished = True
    world.map(lambda i: np.zeros(1), 1, 1)
    assert world.stopping


@pytest.mark.parametrize(
    "name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"]
)
def test_processes_that_a_launcher_started_alone_are_refused(name):
    with pytest.raises(WrongUsage, match=name):
        launch.check_launcher({name: "4"}, 1)
    launch.check_launcher({name: "4"}, 4)
    launch.check_launcher({name: "1"}, 1)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PMI_SIZE": "1", "SLURM_STEP_NUM_TASKS": "2"},  # mpirun -n 1 from a step of two
        {"SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_TASKS_PER_NODE": "32(x2)"},  # a script
        {"PBS_NP": "64", "PBS_NODEFILE": "/nodes", "PBS_TASKNUM": "1", "NCPUS": "32"},
    ],
)
def test_a_process_that_is_meant_to_be_alone_is_not_refused(variables):
    launch.check_launcher(variables, 1)


def test_nodes_that_computed_different_parameters_are_named():
    hosts = ["one", "two", "three"]
    with pytest.raises(DivergedError, match=r"parameters of three differ from those of one"):
        headers.compare(np.array([5.0, 5.0, 6.0]), hosts)


@pytest.mark.parametrize(
    ("expected", "capacity", "shares"),
    [
        ([1, 3, 2, 3], [4], [[1, 3, 2, 0]]),  # one node: the longest first and equals in order
        ([1, 1, 1], [1], [[0, 1, 2]]),
        # loads: 7 to node 0; 5 and then 3 to node 1 (5 < 7, 8 > 7); 2 to node 0; 1 to node 1
        ([3, 7, 1, 5, 2], [1, 1], [[1, 4], [3, 0, 2]]),
        ([1, 1], [0, 1], [[], [0, 1]]),  # its only rank learns
        ([1, 1], [0], [[0, 1]]),
    ],
)
def test_nodes_get_what_they_would_be_done_with_first(expected, capacity, shares):
    found = deal(np.array(expected, float), np.array(capacity))
    assert [share.tolist() for share in found] == shares


def test_a_node_with_more_ranks_gets_more():
    shares = [share.tolist() for share in deal(np.ones(40), np.array([3, 1]))]
    assert [len(share) for share in shares] == [30, 10]
    assert sorted(shares[0] + shares[1]) == list(range(40))


def test_a_trial_is_expected_to_last_an_episode():
    assert with_trials(np.array([3.0, 9.0]), 2, 2).tolist() == [3, 9, 3, 3]
    rows = with_trials(np.array([[3.0, 9.0], [1.0, 1.0]]), 2, 1)  # a generation each
    assert rows.tolist() == [[3, 9, 3], [1, 1, 0.5]]
    assert with_trials(np.ones(2), 1, 0).tolist() == [1, 1]
