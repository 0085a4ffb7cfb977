"""The layout of a transition, written out once."""

from types import SimpleNamespace

import numpy as np

from esac_mpi.play.transitions import (
    Recorder,
    columns,
    joined,
    packed,
    packed_size,
    unpacked,
    width,
)


def test_a_row_is_observation_action_reward_terminated_next_observation():
    row = joined(
        np.array([1.0, 2.0]),
        np.array([0.5, -0.5, 0.25], np.float32),
        7.0,
        True,
        np.array([3.0, 4.0]),
    )
    assert row.dtype == np.float32
    assert row.tolist() == [1, 2, 0.5, -0.5, 0.25, 7, 1, 3, 4]
    assert len(row) == width(2, 3) == 9
    at = columns(2, 3)
    assert (row[at.reward], row[at.terminated]) == (7, 1)
    parts = {
        name: row[place].tolist()
        for name, place in at._asdict().items()
        if isinstance(place, slice)
    }
    assert parts == {"observation": [1, 2], "action": [0.5, -0.5, 0.25], "next_observation": [3, 4]}
    assert row[at.taken].tolist() == [1, 2, 0.5, -0.5, 0.25]


def test_an_action_that_cannot_be_another_is_in_the_middle_of_its_range():
    env = SimpleNamespace(
        low=np.array([0.0, 1.0], np.float32), high=np.ones(2, np.float32),
        observation_size=1, action_size=2, unstable=False,
        reset=lambda seed: np.zeros(1), step=lambda action: (np.zeros(1), 1.0, False, False),
    )  # fmt: skip
    recorder = Recorder(env, 1)
    recorder.reset(0)
    recorder.step(np.array([0.75, 1.0], np.float32))
    assert recorder.rows.tolist() == [[0.0, 0.5, 0.0, 1.0, 0.0, 0.0]]


def test_what_is_packed_for_the_way_is_unpacked_as_it_was():
    rows = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    for count in (0, 1, 3):
        travelling = packed(rows[:count], 4)
        assert (travelling.dtype, len(travelling)) == (np.float64, packed_size(4, 7))
        np.testing.assert_array_equal(unpacked(travelling, 7), rows[:count])
    assert packed_size(4, 7) == 1 + 14
