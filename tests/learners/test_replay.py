"""The replay is a ring: what it keeps, what it gives back, how it samples."""

import numpy as np
import pytest
from gradients import same

from esac_mpi.learners.replay import Replay


def filled(capacity: int, count: int, reserve: int = 0) -> Replay:
    """Return a replay whose transition i is made of i alone."""
    replay = Replay(capacity, 2, 1, reserve)
    for i in range(count):
        following = np.array([i + 1, -i - 1])
        replay.add(np.array([i, -i]), np.array([i / 100]), 10.0 * i, following, i % 3 == 0)
    return replay


def add_one(replay: Replay, reward: float = 7.0) -> None:
    replay.add(np.array([7, 7]), np.array([0.5]), reward, np.array([8, 8]), False)


def sample(replay: Replay, seed: int, batch: int) -> dict[str, np.ndarray]:
    rows = replay.sample(np.random.default_rng(seed), np.empty((batch, replay.width), np.float32))
    return {name: rows[:, column] for name, column in replay.columns._asdict().items()}


def test_a_row_is_what_was_added():
    rows = filled(5, 4).rows(3, 4)
    expected = {"observation": [[3, -3]], "action": [[0.03]], "reward": [30], "terminated": [1]}
    expected["next_observation"] = [[4, -4]]
    assert same(rows, {name: np.array(value, np.float32) for name, value in expected.items()})
    assert {column.dtype for column in rows.values()} == {np.dtype(np.float32)}


def test_many_rows_at_once_are_as_one_by_one():
    number = np.arange(40.0)[:, None]
    parts = [number, -number, number / 100, 10 * number, number % 3 == 0, number + 1, -number - 1]
    rows = np.hstack(parts).astype(np.float32)
    one_by_one, at_once = filled(5, 40, reserve=3), Replay(5, 2, 1, reserve=3)
    for part in np.split(rows, [0, 3, 7, 9, 30]):  # fewer and more than there is room for
        at_once.add_rows(part)
    assert one_by_one.added == at_once.added == 40
    assert same(at_once.rows(32, 40), one_by_one.rows(32, 40))
    at_once.hold()
    at_once.add_rows(rows[:2])
    with pytest.raises(RuntimeError, match="holds a state for 3 more"):
        at_once.add_rows(rows[:2])
    at_once.add_rows(rows[:1])
    assert at_once.added == 43


def test_the_newest_are_kept_and_the_oldest_overwritten():
    replay = filled(5, 3)
    assert (replay.added, len(replay)) == (3, 3)
    replay = filled(5, 13)
    assert (replay.added, len(replay)) == (13, 5)
    # they lie in rows 3, 4, 0, 1, 2
    assert replay.rows(8, 13)["reward"].tolist() == [80, 90, 100, 110, 120]
    assert set(sample(replay, 0, 200)["reward"]) == {80, 90, 100, 110, 120}


@pytest.mark.parametrize("bounds", [(7, 10), (10, 14), (12, 11)])
def test_rows_that_are_not_there_are_refused(bounds):
    with pytest.raises(ValueError, match="replay holds transitions 8 to 13"):
        filled(5, 13).rows(*bounds)


def test_rows_and_samples_are_copies():
    replay = filled(5, 5)
    replay.rows(0, 5)["reward"][:] = -1
    sample(replay, 0, 4)["observation"][:] = -1
    assert same(replay.rows(0, 5), filled(5, 5).rows(0, 5))


@pytest.mark.parametrize("count", [0, 3, 5, 13])
def test_restored_in_pieces_it_is_the_same_ring(count):
    """Rows, samples and what is added later, as in the saved one; also if a piece is empty."""
    saved, restored = filled(5, count), Replay(5, 2, 1)
    first = saved.added - len(saved)
    middle = (first + count) // 2
    for start, stop in ((first, middle), (middle, count), (count, count)):
        restored.restore(start, saved.rows(start, stop))
    for replay in (saved, restored):
        add_one(replay)
    assert (restored.added, len(restored)) == (count + 1, len(saved))
    kept = (count + 1 - len(saved), count + 1)
    assert same(restored.rows(*kept), saved.rows(*kept))
    assert same(*(sample(replay, 1, 9) for replay in (saved, restored)))


def test_transitions_of_another_form_are_refused():
    with pytest.raises(ValueError, match=r"must have .* got \['reward'\]"):
        Replay(5, 2, 1).restore(0, {"reward": np.zeros(2, np.float32)})


def test_sampling_is_uniform():
    """40,000 draws of 8 transitions, each within five standard deviations; they repeat."""
    replay = filled(8, 21)
    rewards = sample(replay, 0, 40_000)["reward"]
    values, counts = np.unique(rewards, return_counts=True)
    assert values.tolist() == [130, 140, 150, 160, 170, 180, 190, 200]
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(40_000 * (1 / 8) * (7 / 8))
    assert np.array_equal(rewards, sample(replay, 0, 40_000)["reward"])


@pytest.mark.parametrize("count", [0, 4, 5, 7, 8, 9, 40])
def test_a_reserve_changes_no_sample_and_reaches_further_back(count):
    plain, reserved = filled(5, count), filled(5, count, reserve=3)
    assert len(plain) == len(reserved) == min(count, 5)
    first = max(0, count - 8)
    assert reserved.rows(first, count)["reward"].tolist() == [10.0 * i for i in range(first, count)]
    with pytest.raises(ValueError, match=f"replay holds transitions {first} to {count}"):
        reserved.rows(first - 1, count)
    if count:
        assert same(*(sample(replay, 2, 50) for replay in (plain, reserved)))


def test_what_was_not_restored_is_not_there():
    restored = Replay(5, 2, 1, reserve=3)
    restored.restore(8, filled(5, 13).rows(8, 13))
    with pytest.raises(ValueError, match="replay holds transitions 8 to 13"):
        restored.rows(7, 13)


@pytest.mark.parametrize("count", [0, 3, 5, 6, 13])
def test_what_is_held_stays_until_it_is_released(count):
    replay, before = filled(5, count, reserve=3), filled(5, count)
    held = replay.hold()
    first = count - len(before)
    for i in range(3):
        add_one(replay, 7.0 + i)
        assert (held.added, held.capacity, replay.added) == (count, 5, count + i + 1)
        assert same(held.rows(first, count), before.rows(first, count))
    with pytest.raises(RuntimeError, match="holds a state for 3 more"):
        add_one(replay)
    assert same(held.rows(first, count), before.rows(first, count))
    with pytest.raises(ValueError, match="replay holds transitions"):
        held.rows(first, count + 1)
    replay.release()
    add_one(replay)
    assert replay.added == count + 4
