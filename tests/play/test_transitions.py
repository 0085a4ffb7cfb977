"""The layout of a transition, what a recorder keeps, and how it travels."""

from types import SimpleNamespace

import numpy as np
import pytest
from esac_by_hand import Track

from esac_mpi.play.transitions import Recorder, as_doubles, as_floats, columns, join, width


def test_a_row_has_its_parts_in_their_order():
    action = np.array([0.5, -0.5, 0.25], np.float32)
    row = join(np.array([1.0, 2.0]), action, 7.0, True, np.array([3.0, 4.0]))
    assert row.dtype == np.float32
    assert row.tolist() == [1, 2, 0.5, -0.5, 0.25, 7, 1, 3, 4]
    assert len(row) == width(2, 3) == 9
    at = columns(2, 3)
    assert (row[at.reward], row[at.terminated]) == (7, 1)
    assert row[at.observation].tolist() == [1, 2]
    assert row[at.action].tolist() == [0.5, -0.5, 0.25]
    assert row[at.next_observation].tolist() == [3, 4]
    assert row[at.taken].tolist() == [1, 2, 0.5, -0.5, 0.25]


def test_a_fixed_action_is_in_the_middle_of_its_range():
    env = SimpleNamespace(
        low=np.array([0.0, 1.0], np.float32), high=np.ones(2, np.float32),
        observation_size=1, action_size=2, unstable=False,
        reset=lambda seed: np.zeros(1), step=lambda action: (np.zeros(1), 1.0, False, False),
    )  # fmt: skip
    recorder = Recorder(env, 1)
    recorder.reset(0)
    recorder.step(np.array([0.75, 1.0], np.float32))
    assert recorder.rows.tolist() == [[0.0, 0.5, 0.0, 1.0, 0.0, 0.0]]


class Rough(Track):
    """Bounds 0 and 4; the fifth reward of an episode is nan."""

    # The simulator warns from the eighth step on; the tenth ends it.

    low, high = np.zeros(3, np.float32), np.full(3, 4, np.float32)

    def step(self, action):
        observation, reward, _, ended = super().step(action)
        return observation, np.nan if self.left == 5 else reward, ended, False

    @property
    def unstable(self):
        return self.left <= 2


def test_a_recorder_keeps_what_can_be_learned_from():
    recorder = Recorder(Rough(), 20)
    actions = np.random.default_rng(0).uniform(0, 4, (10, 3)).astype(np.float32)
    for seed in (4, 5):
        observations = [recorder.reset(seed)]
        observations += [recorder.step(action)[0] for action in actions]
    assert recorder.count == 2 * 6  # steps 1 to 4, 6 and 7 of each episode
    rows = recorder.rows[: recorder.count]
    assert rows.shape == (12, 11)
    for row, step in zip(rows[6:], (0, 1, 2, 3, 5, 6), strict=True):
        reward = -np.square(actions[step] - observations[step]).sum()
        np.testing.assert_array_equal(row[:3], observations[step])
        np.testing.assert_allclose(row[3:6], actions[step] / 2 - 1, atol=1e-6)
        assert row[6:8] == pytest.approx([reward, 0], rel=1e-5)
        np.testing.assert_array_equal(row[8:], observations[step + 1])


class Scaling(Track):
    """Track that scales the action it is given in place, as a user's own task may."""

    # Its tenth step is an end and no time limit.

    def step(self, action):
        action *= 10
        observation, reward, _, ended = super().step(action)
        return observation, reward, ended, False


@pytest.mark.parametrize(("task", "terminated"), [(Scaling(), 1.0), (Track(), 0.0)])
def test_a_recorder_knows_an_end_from_a_time_limit(task, terminated):
    recorder, action = Recorder(task, 10), np.array([0.36, 0.09, -1.0], np.float32)
    recorder.reset(0)
    for _ in range(10):
        recorder.step(action.copy())
    assert (recorder.rows[:, 3:6] == action).all()
    assert recorder.rows[:, 7].tolist() == [0.0] * 9 + [terminated]


def test_transitions_arrive_as_they_were_sent():
    rows = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    for count in (0, 1, 3):
        travelling = as_doubles(rows[:count].ravel())
        assert (travelling.dtype, len(travelling)) == (np.float64, {0: 0, 1: 4, 3: 11}[count])
        np.testing.assert_array_equal(as_floats(travelling, count * 7).reshape(-1, 7), rows[:count])
