"""Warnings about the ranks' cores."""

from esac_mpi.host.affinity import complaints


def test_a_core_for_every_rank_is_fine():
    assert complaints(["a", "a", "b"], [[0, 1], [0, 1], [0]], 2) == []


def test_ranks_that_share_cores_are_named_by_host():
    found = complaints(["a", "a", "b"], [[3], [3], [0, 1]], 0)
    assert len(found) == 1
    assert "2 ranks of a share 1 core(s)" in found[0]


def test_more_learner_threads_than_cores_of_rank_0():
    assert "learner.threads = 2, but rank 0 may run on 1 core(s)" in complaints(["a"], [[0]], 2)[0]
