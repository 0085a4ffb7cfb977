"""Interquartile means and bootstrap intervals."""

import numpy as np
import pytest

from esac_mpi.analysis import intervals


def test_interquartile_mean_cuts_a_quarter_on_each_side():
    assert (
        intervals.interquartile_mean(np.array([7.0, 0, 1, 2, 3, 4, 5, 6])) == 3.5
    )  # of 2, 3, 4, 5
    assert intervals.interquartile_mean(np.array([1.0, 2, 3, 100])) == 2.5
    assert intervals.interquartile_mean(np.array([0.0, 0, 3])) == 1  # nothing to cut
    columns = np.array([[1.0, 5], [2, 5], [3, 5], [100, 5]])
    np.testing.assert_array_equal(intervals.interquartile_mean(columns), [2.5, 5])


def test_interval_of_what_can_be_counted():
    assert intervals.interval([np.array([1.0, 5.0])]) == (
        1.0,
        5.0,
    )  # both draws equal: 1 in 4 for each end
    low, high = intervals.interval([np.full((6, 3), 2.5)])
    np.testing.assert_array_equal([low, high], np.full((2, 3), 2.5))
    # pooled draws are 0 0 10 10, 0 2 10 10 or 2 2 10 10, the middle halves 5, 6, 6; without strata
    # 10 10 10 10 could be drawn
    assert intervals.interval([np.array([0.0, 2.0]), np.array([10.0, 10.0])]) == (5.0, 6.0)
    with pytest.raises(ValueError, match="at least two seeds"):
        intervals.interval([np.array([1.0])])


def test_interval_of_a_mean_agrees_with_the_normal_one():
    seeds = np.random.default_rng(1).standard_normal(400)
    found = intervals.interval([seeds], intervals.mean)
    assert intervals.interval([seeds], intervals.mean) == found  # the same every time
    error = seeds.std() / 20
    np.testing.assert_allclose(
        found, seeds.mean() + np.array([-1.96, 1.96]) * error, atol=0.2 * error
    )
