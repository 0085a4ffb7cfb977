"""Exact sums: the same bits in any order and grouping, the value of fractions."""

from fractions import Fraction

import numpy as np
import pytest

from esac_mpi.operators import accumulator


def test_sums_are_those_of_fractions_in_any_order():
    random = np.random.default_rng(0)
    numbers = random.standard_normal((200, 7)) * 10.0 ** random.integers(-12, 13, (200, 7))
    total = accumulator.digits(numbers).sum(axis=1)
    for order in (slice(None, None, -1), random.permutation(200)):
        shuffled = accumulator.digits(numbers[order])
        assert (shuffled[:, :77].sum(axis=1) + shuffled[:, 77:].sum(axis=1) == total).all()
    true = [float(sum(map(Fraction, column))) for column in numbers.T]
    np.testing.assert_allclose(accumulator.value(total), true, rtol=1e-15)


@pytest.mark.parametrize("number", [0.0, 1.0, -1.5, 1e80, -3e-20, 2.0**-128, 2.0**286 + 2.0**240])
def test_a_number_comes_back_as_it_is(number):
    assert accumulator.value(accumulator.digits(np.array([number]))).tolist() == [number]


def test_cancelled_numbers_leave_the_small_one():
    assert accumulator.value(accumulator.digits(np.array([1e60, 1e-9, -1e60])).sum(axis=1)) == 1e-9
