"""Who evaluates what."""

import numpy as np

from esac_mpi.comm.schedule import deal, with_trials


def dealt(expected, capacity):
    return [share.tolist() for share in deal(np.array(expected, float), np.array(capacity))]


def test_one_node_takes_the_longest_first_and_equals_in_order():
    assert dealt([1, 3, 2, 3], [4]) == [[1, 3, 2, 0]]
    assert dealt([1, 1, 1], [1]) == [[0, 1, 2]]


def test_nodes_get_what_they_would_be_done_with_first():
    # loads: 7 to node 0; 5 and then 3 to node 1 (5 < 7, 8 > 7); 2 to node 0; 1 to node 1
    assert dealt([3, 7, 1, 5, 2], [1, 1]) == [[1, 4], [3, 0, 2]]


def test_a_node_with_more_ranks_gets_more():
    shares = dealt([1] * 40, [3, 1])
    assert [len(share) for share in shares] == [30, 10]
    assert sorted(shares[0] + shares[1]) == list(range(40))


def test_a_node_whose_only_rank_learns_gets_nothing():
    assert dealt([1, 1], [0, 1]) == [[], [0, 1]]
    assert dealt([1, 1], [0]) == [[0, 1]]


def test_a_trial_is_expected_to_last_an_episode():
    assert with_trials(np.array([3.0, 9.0]), 2, 2).tolist() == [3, 9, 3, 3]
    rows = with_trials(np.array([[3.0, 9.0], [1.0, 1.0]]), 2, 1)  # a generation each
    assert rows.tolist() == [[3, 9, 3], [1, 1, 0.5]]
    assert with_trials(np.ones(2), 1, 0).tolist() == [1, 1]
