"""What memories hold after episodes, clones, crossovers and mutations, transition by transition."""

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.learners.replay import Replay
from esac_mpi.operators import memories
from esac_mpi.operators.memories import Memory


def row(age: int, owner: int = 0) -> list[float]:
    """Return an observation [2] and an action [1] that tell the age and whose it is."""
    return [age, owner, age / 100]


def memory(*ages: int, kappa: int, owner: int = 0) -> Memory:
    made = memories.make_empty(kappa, 3)
    made.ages[: len(ages)] = ages
    for place, age in enumerate(ages):
        made.rows[place] = row(age, owner)
    return made


def used(kappa: int) -> Memory:
    """Return a place to write to that is full of another memory's transitions."""
    return Memory(np.full((kappa, 3), 77, np.float32), np.full(kappa, 77))


def ages(held: Memory) -> list[int]:
    """Return the ages of a memory, after a look at its invariants."""
    size = memories.size(held)
    assert (held.ages[:size] >= 0).all()
    assert (held.ages[size:] == -1).all()
    assert not held.rows[size:].any()
    np.testing.assert_array_equal(held.rows[:size, 0], held.ages[:size])  # a row goes with its age
    return held.ages[:size].tolist()


def remembered(held: Memory, count: int, first_age: int) -> list[int]:
    out = used(len(held.ages))
    new = np.array([row(first_age + i) for i in range(count)], np.float32).reshape(count, 3)
    memories.remember(held, new, first_age, out)
    return ages(out)


def inherited(first: Memory, second: Memory, kappa: int, random: Drawn | None = None) -> Memory:
    out = used(kappa)
    memories.inherit(first, second, out, random)
    return out


def test_a_blank_memory_holds_nothing():
    blank = memories.make_empty(4, 3)
    assert (blank.rows.shape, blank.rows.dtype, blank.ages.dtype) == ((4, 3), np.float32, np.int64)
    assert ages(blank) == []
    assert memories.states(blank, 2).shape == (0, 2)


def test_states_are_a_view_of_what_is_held():
    held = memory(3, 8, kappa=5, owner=9)
    np.testing.assert_array_equal(memories.states(held, 2), [[3, 9], [8, 9]])
    assert np.shares_memory(memories.states(held, 2), held.rows)


@pytest.mark.parametrize(
    ("before", "kappa", "count", "expected"),
    [
        ((1, 2, 3), 5, 0, [1, 2, 3]),
        ((1, 2, 3), 5, 2, [1, 2, 3, 20, 21]),  # exactly full
        ((1, 2, 3), 5, 3, [2, 3, 20, 21, 22]),
        ((1, 2, 3), 5, 5, [20, 21, 22, 23, 24]),  # as many as it has place for
        ((1, 2, 3), 5, 8, [23, 24, 25, 26, 27]),  # more: the newest of them
        ((1, 2, 3), 3, 1, [2, 3, 20]),  # it was full
        ((), 3, 2, [20, 21]),
        ((), 3, 0, []),
    ],
)
def test_a_memory_keeps_the_newest(before, kappa, count, expected):
    held = memory(*before, kappa=kappa)
    assert remembered(held, count, 20) == expected
    assert ages(held) == [*before]  # as it was


def test_a_clone_holds_what_its_original_holds_alone():
    out = used(4)
    memories.copy(memory(5, 6, kappa=4), out)
    assert ages(out) == [5, 6]


def test_a_child_has_the_newest_half_of_each_parent_by_age():
    child = inherited(memory(1, 4, 5, 9, kappa=6, owner=1), memory(0, 2, 4, 7, kappa=6, owner=2), 6)
    assert ages(child) == [2, 4, 4, 5, 7, 9]
    # of the two of age 4 the first parent's comes first
    assert child.rows[:, 1].tolist() == [2, 1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("first", "second", "kappa", "child"),
    [
        # less than half a memory gives all of it, and the other no more for that
        ((1, 2, 3, 4, 5, 6), (0,), 6, [0, 4, 5, 6]),
        ((), (3,), 6, [3]),
        ((), (), 6, []),
        ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10), 5, [4, 5, 9, 10]),  # half is rounded down
        ((1, 2, 3, 4), (1, 2, 3, 4), 4, [3, 3, 4, 4]),  # of an ancestor: twice
    ],
)
def test_what_a_child_has_of_its_parents(first, second, kappa, child):
    parents = memory(*first, kappa=kappa), memory(*second, kappa=kappa)
    assert ages(inherited(*parents, kappa)) == child


def test_a_shuffled_child_has_transitions_in_the_order_drawn():
    random = Drawn([3, 0, 2, 1])
    child = inherited(memory(1, 5, kappa=4, owner=1), memory(3, 4, kappa=4, owner=2), 4, random)
    assert ages(child) == [4, 1, 3, 5]
    assert child.rows[:, 1].tolist() == [2, 1, 2, 1]
    assert random.calls == [(4,)]


def test_the_newest_of_a_shuffled_memory_are_its_last():
    # 5 4 3 1
    shuffled = inherited(memory(1, 5, kappa=4), memory(3, 4, kappa=4), 4, Drawn([1, 3, 2, 0]))
    assert remembered(shuffled, 2, 8) == [3, 1, 8, 9]
    assert ages(memories.select_newest(shuffled, 2)) == [3, 1]


def test_a_sample_has_distinct_positions_of_the_newest():
    held, random = memory(*range(30, 40), kappa=12), np.random.default_rng(0)
    for _ in range(20):
        places = memories.sample(held, 4, random, newest=6)
        assert len(set(places.tolist())) == 4
        assert set(places.tolist()) <= {4, 5, 6, 7, 8, 9}
    seen = {place for _ in range(50) for place in memories.sample(held, 3, random).tolist()}
    assert seen == set(range(10))


@pytest.mark.parametrize(
    ("held", "newest", "places"),
    [((1, 2, 3), {}, [0, 1, 2]), ((1, 2, 3), {"newest": 2}, [1, 2]),
     ((1, 2, 3), {"newest": 9}, [0, 1, 2]), ((), {}, [])],
)  # fmt: skip
def test_a_sample_is_all_where_there_are_fewer(held, newest, places):
    found = memories.sample(memory(*held, kappa=5), 256, np.random.default_rng(0), **newest)
    assert sorted(found.tolist()) == places


def replay(last: int, capacity: int) -> Replay:
    """Return a replay of the transitions 0, 1, ... last, the newest `capacity` of them there."""
    made = Replay(capacity, 2, 1)
    for age in range(last + 1):
        made.add(row(age)[:2], row(age)[2:], 0.0, [0, 0], False)
    return made


@pytest.mark.parametrize(
    ("capacity", "lost"),
    [(100, []), (10, []), (9, [0]), (5, [0, 3, 4]), (3, [0, 3, 4, 5]), (1, [0, 3, 4, 5, 7, 8])],
)
def test_what_the_replay_has_lost_is_stored_once(capacity, lost):
    """Three memories, ages to 9, some in two, one empty: beside a replay from 10 - capacity on."""
    several = [memory(0, 3, 4, 4, 9, kappa=6), memory(kappa=6), memory(3, 4, 5, 7, 8, 9, kappa=6)]
    held = Memory(*(np.stack(parts) for parts in zip(*several, strict=True)))
    ring = replay(9, capacity=capacity)
    rows = memories.collect_lost(held, ring)
    assert rows[:, 0].tolist() == lost
    again = Memory(np.full_like(held.rows, 77), held.ages)
    memories.refill(again, rows, ring)
    np.testing.assert_array_equal(again.rows, held.rows)


def test_rows_of_another_replay_are_refused():
    held, ring = memory(0, 1, 2, kappa=4), replay(2, capacity=1)
    with pytest.raises(ValueError, match="2 transitions that the replay holds no more, got 0"):
        memories.refill(held, np.zeros((0, 3), np.float32), ring)
    with pytest.raises(ValueError, match="asked for 9 to 10"):
        memories.refill(memory(0, 9, kappa=4), np.array([row(0)], np.float32), ring)
