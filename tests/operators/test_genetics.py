"""Crossover and mutation of vectors: of a few weights by hand, and one change at a time."""

import math

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.config import ERL
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout

same = np.testing.assert_array_equal

PUBLIC = ERL()  # as the public code: 0.1 of the weights, by 0.1, 10 or anew, 0.05 each
LAYOUT = Layout((7, 16, 3))
NORMALISED = Layout((1, 2, 1), layer_norm=True)


def theta(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def some(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=LAYOUT.d).astype(np.float32)


def test_an_actor_begins_with_a_tenth_of_the_usual_last_layer():
    usual, made = LAYOUT.initial(3, 2), genetics.initial(LAYOUT, 3, 2)
    assert (genetics.initial(LAYOUT, 3, 2, 1.0) == usual).all()
    last = LAYOUT.tensors[-2].start
    same(made[:last], usual[:last])
    same(made[last:], usual[last:] * np.float32(0.1))
    assert made.dtype == np.float32


def test_n_point_crossover_by_hand():
    # matrix [3, 1]: row 2 from the first, row 0 from the second, then row 2 again, twice, when both
    # have the same; bias [3]: 1
    random = Drawn(4, [2, 0, 2, 2], [0.2, 0.5, 0.1, 0.9], 1, [1], [0.7])
    first, second = theta(1, 2, 3, 4, 5, 6), theta(11, 12, 13, 14, 15, 16)
    one, other = genetics.n_point(first, second, Layout((1, 3)), random)
    same(one, theta(11, 2, 3, 4, 15, 6))
    same(other, theta(11, 12, 3, 14, 15, 16))
    assert random.spent
    # below twice the rows of a matrix; below a vector's length
    assert [random.calls[0], random.calls[3]] == [(6,), (3,)]
    same(first, theta(1, 2, 3, 4, 5, 6))
    same(second, theta(11, 12, 13, 14, 15, 16))


def test_what_normalises_a_layer_is_exchanged_like_its_bias():
    # matrix [2, 1], bias, gain and shift [2] of the hidden layer;
    # matrix [1, 2] and bias [1] of the output
    random = Drawn(0, [], [], 0, [], [], 1, [0], [0.1], 1, [1], [0.9], 0, [], [], 0, [], [])
    first, second = np.arange(11, dtype=np.float32), np.arange(20, 31, dtype=np.float32)
    one, other = genetics.n_point(first, second, NORMALISED, random)
    same(one, theta(0, 1, 2, 3, 4, 5, 6, 27, 8, 9, 10))
    same(other, theta(20, 21, 22, 23, 4, 25, 26, 27, 28, 29, 30))
    assert random.calls[::3] == [(4,), (2,), (2,), (2,), (2,), (1,)]


def test_gaussian_mutation_by_hand():
    # 2: +0.1 * 2 * 1 = 2.2, then reset to 0.25; -4: +10 * 4 * -1 = -44, then
    # +0.1 * 44 * 1 = -39.6; 1: +0.1 * 1 * 2 = 1.2
    random = Drawn(
        0.3, 0.5, 5, [0, 1, 0, 2, 1], [0.5, 0.01, 0.07, 0.9, 0.5], [1.0, -1.0, 0.25, 2.0, 1.0]
    )
    parent = theta(2, -4, 1, 7)  # three weights and a bias
    mutated = genetics.gaussian(parent, Layout((3, 1)), PUBLIC, random)
    np.testing.assert_allclose(mutated, theta(0.25, -39.6, 1.2, 7), rtol=1e-6)
    assert mutated.dtype == np.float32
    assert random.spent
    # below ceil(0.1 * 3) changes; of three weights
    assert random.calls[1:4] == [(0.0, 2.0), (1,), (3,)]
    same(parent, theta(2, -4, 1, 7))


@pytest.mark.parametrize(
    ("weight", "luck", "normal", "changed"),
    [
        (2.0, np.nextafter(0.05, 0), 1.0, 22.0),  # the kind of a change at its bounds
        (2.0, 0.05, 1.5, 1.5),
        (2.0, np.nextafter(0.1, 0), 1.5, 1.5),
        (2.0, 0.1, 1.0, 2.2),
        (5e5, 0.01, 1.0, 1e6),  # weights are clamped at a million
        (5e5, 0.01, -1.0, -1e6),
        (-5e5, 0.01, 1.0, 1e6),  # the spread has no sign
        (0.0, 0.01, 1.0, 0.0),  # a weight of zero is moved by a reset alone
        (0.0, 0.07, 1.0, 1.0),
        (0.0, 0.5, 1.0, 0.0),
    ],
)
def test_one_change_by_hand(weight, luck, normal, changed):
    random = Drawn(0.0, 1.0, 1, [0], [luck], [normal])
    found = genetics.gaussian(theta(weight, 1), Layout((1, 1)), PUBLIC, random)
    assert found[0] == np.float32(changed)


def test_what_normalises_a_layer_is_never_mutated():
    often, parent = ERL(mutated_fraction=3.0), np.ones(NORMALISED.d, np.float32)
    changed = np.zeros(NORMALISED.d, bool)
    for seed in range(30):
        random = np.random.default_rng(seed)
        changed |= genetics.gaussian(parent, NORMALISED, often, random) != parent
    for tensor in NORMALISED.tensors:
        expected = tensor.kind == "weight"
        assert (changed[tensor.start : tensor.stop] == expected).all(), tensor


def test_no_fraction_means_no_change():
    none, parent = ERL(mutated_fraction=0.0), some(1)
    for seed in range(20):
        same(genetics.gaussian(parent, LAYOUT, none, np.random.default_rng(seed)), parent)


def changed_one_by_one(parent: np.ndarray, erl: ERL, random: np.random.Generator) -> np.ndarray:
    mutated = parent.copy()
    for view in LAYOUT.views(mutated)[::2]:  # matrices
        if not random.random() < random.uniform(0.0, 2.0):
            continue
        count = random.integers(math.ceil(erl.mutated_fraction * view.size))
        places = random.integers(view.size, size=count)
        luck = random.random(count)
        normal = random.standard_normal(count)
        for place, chance, number in zip(places, luck, normal, strict=True):
            at = np.unravel_index(place, view.shape)
            old = float(view[at])
            if chance < erl.super_probability:
                new = old + erl.super_strength * abs(old) * number
            elif chance < erl.super_probability + erl.reset_probability:
                new = number
            else:
                new = old + erl.mutation_strength * abs(old) * number
            view[at] = min(max(new, -1e6), 1e6)
    return mutated


@pytest.mark.parametrize("fraction", [0.1, 3.0])  # at 3 most are drawn more than once
def test_gaussian_mutation_is_its_changes_one_after_the_other(fraction):
    erl = ERL(mutated_fraction=fraction, super_probability=0.3, reset_probability=0.2)
    repeated = some(7)
    for seed in range(50):
        mutated = genetics.gaussian(repeated, LAYOUT, erl, np.random.default_rng(seed))
        same(mutated, changed_one_by_one(repeated, erl, np.random.default_rng(seed)))
