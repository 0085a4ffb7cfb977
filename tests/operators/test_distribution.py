"""The distribution of CEM and AES-RL: by hand, and against plain formulas."""
# test_cem.py has whole generations of CEM against the public code's formulas: individuals, weights
# of elites, damping.

import math

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.config import AESRL
from esac_mpi.operators import distribution, noise, update_rules
from esac_mpi.operators.distribution import Gaussian
from esac_mpi.operators.noise import Purpose

same = np.testing.assert_array_equal


def row(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def individual(gaussian: Gaussian, seed: int, k: int, i: int, n: int, mirrored: bool) -> np.ndarray:
    """Return an individual made block by block from its address."""
    slot, sign = distribution.slot_and_sign(i, n, mirrored)
    blocks = []
    for number, part in noise.blocks(gaussian.mean.size):
        eps = noise.normal(seed, Purpose.MUTATION, k, slot, number, part.stop - part.start)
        block = Gaussian(gaussian.mean[part], gaussian.variance[part])
        blocks.append(distribution.sample(block, eps, sign))
    return np.concatenate(blocks)


def test_one_elite_has_all_the_weight():
    for weights in ("log", "equal"):
        assert distribution.rank_weights(1, weights).tolist() == [1]


def test_a_generation_by_hand():
    gaussian, weights = Gaussian(row(1, 0), row(1, 1)), row(0.75, 0.25)
    elites = [row(3, 1), row(-1, 2)]
    # gaps (2, 1) and (-2, 2); move .75 (2, 1) + .25 (-2, 2) = (1, 1.25);
    # spread .75 (4, 1) + .25 (4, 4) = (4, 1.75)
    mean, variance = distribution.refit(gaussian, elites, weights, 0.5, cov_extra_div=False)
    same(mean, row(2, 1.25))
    same(variance, row(4.5, 2.25))
    mean, variance = distribution.refit(
        gaussian, elites, weights, 0.5, cov_extra_div=True, step=0.1
    )
    np.testing.assert_allclose(mean, [1.1, 0.125], rtol=1e-6)
    same(variance, row(2.5, 1.375))


def test_blocks_are_parts_of_the_whole_to_the_bit():
    d, n = noise.BLOCK + 1000, 6
    ends = (-1, 1), (0.1, 0.2)
    gaussian = Gaussian(*(np.linspace(*pair, d, dtype=np.float32) for pair in ends))
    individuals = [individual(gaussian, 3, 1, i, n, mirrored=True) for i in range(n)]
    np.testing.assert_allclose(individuals[0] + individuals[3], 2 * gaussian.mean, atol=1e-6)
    elites, weights = [individuals[i] for i in (4, 1, 3)], distribution.rank_weights(3, "log")
    whole = distribution.refit(gaussian, elites, weights, 1e-3, True)
    for _, part in noise.blocks(d):
        block = Gaussian(gaussian.mean[part], gaussian.variance[part])
        found = distribution.refit(block, (e[part] for e in elites), weights, 1e-3, True)
        for got, expected in zip(found, whole, strict=True):
            assert got.dtype == np.float32
            same(got, expected[part])


def test_an_arrival_by_hand():
    gaussian, z = Gaussian(row(1, 0), row(1, 2)), row(3, -4)
    # mean (1, 0) + (2, -4) / 4 = (1.5, -1); spread (2, -4) (1.5, -3) = (3, 12)
    mean, variance = distribution.move(gaussian, z, 0.25, 4.0, 1e-5)
    same(mean, row(1.5, -1))
    same(variance, row(1.5, 4.5))
    # away from it: mean (0, 2), spread (2, -4) (3, -6) = (6, 24)
    mean, variance = distribution.move(gaussian, z, -0.5, 4.0, 1e-5)
    same(mean, row(0, 2))
    same(variance, row(2.25, 7.5))


def test_a_full_move_is_to_the_individual_itself():
    random = np.random.default_rng(0)
    gaussian = Gaussian(*random.random((2, 100)).astype(np.float32))
    z = random.random(100).astype(np.float32)
    mean, variance = distribution.move(gaussian, z, 1.0, 1.0, 1e-5)
    same(mean, z)
    same(variance, np.full(100, 1e-5, np.float32))


def test_an_arrival_that_says_nothing_changes_no_bit():
    gaussian = Gaussian(row(1, 0), row(1, 1e-7))
    same(distribution.move(gaussian, row(np.nan, np.inf), 0.0, math.inf, 1e-5), gaussian)
    # fixed n, p = 0, as printed: the variance alone moves, from (1, 1e-7) a tenth of the way to
    # (4, 9)
    mean, variance = distribution.move(gaussian, row(3, -3), 0.0, 10.0, 1e-5)
    same(mean, gaussian.mean)
    np.testing.assert_allclose(variance, [1.3, 0.9], rtol=1e-6)


def test_moves_by_one_nth_give_mean_and_variance_of_all():
    arrivals = np.random.default_rng(1).normal(3.0, 2.0, (40, 7)).astype(np.float32)
    whole = sample = Gaussian(arrivals[0], np.zeros(7, np.float32))
    for n, z in enumerate(arrivals[1:], 2):
        whole = distribution.move(whole, z, 1 / n, n, 0.0)
        weight = update_rules.weight_of_past(AESRL(variance_rule="adaptive"), 1 / n)
        sample = distribution.move(sample, z, 1 / n, weight, 0.0)
        seen = arrivals[:n]
        np.testing.assert_allclose(whole.mean, seen.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(whole.variance, seen.var(axis=0), rtol=1e-4)
        # n of Eq. (12) is 1/p - 1
        np.testing.assert_allclose(sample.variance, seen.var(axis=0, ddof=1), rtol=1e-4)


def test_a_variance_is_scaled_down_to_its_floor():
    gaussian = Gaussian(row(1, 0), row(1, 1e-5))
    same(distribution.scale_variance(gaussian, 0.5, 1e-5).variance, row(0.5, 1e-5))
    assert distribution.scale_variance(Gaussian(row(1), row(1e-7)), 1.0, 1e-5).variance == row(1e-7)


def test_a_ratio_of_densities_by_hand():
    new, old = Gaussian(row(0, 1), row(1, 4)), Gaussian(row(2, 1), row(1, 1))
    # at (1, 3): new -1/2 (1 + 4/4 + log 4), old -1/2 (1 + 4)
    expected = pytest.approx(1.5 - math.log(2), rel=1e-12)
    assert distribution.log_ratio(row(1, 3), new, old) == expected
    assert distribution.log_ratio(row(1, 3), old, old) == 0
    one = distribution.log_ratio(row(1), Gaussian(row(0), row(1)), Gaussian(row(2), row(1)))
    other = distribution.log_ratio(row(3), Gaussian(row(1), row(4)), Gaussian(row(1), row(1)))
    assert one + other == expected  # as blocks are summed


def mixed(*arguments) -> list[list[int]]:
    return [part.tolist() for part in distribution.mix(*arguments)]


@pytest.mark.parametrize(
    ("n", "kept", "joined"), [(5, [0, 2], [0, 4, 5]), (2, [0], [0]), (1, [0], [])]
)
def test_mixing_by_hand(n, kept, joined):
    old, candidates = np.log([0.5, 0.5, 2.0, np.nan]), np.log([4.0, 1.25, 0.5, 4.0])
    # old ones stay where luck is below 0.5, 0.5, 1, never; candidates join where it is at least
    # 1/4, 4/5, 2, 1/4
    luck = 1 - np.array([[0.4, 0.3], [0.6, 0.7], [0.9, 1.0], [0.1, 0.2]])
    assert mixed(n, old, candidates, Drawn(luck)) == [kept, joined]


def test_mixing_keeps_all_or_none_at_its_ends():
    random, equal, everyone = np.random.default_rng(0), np.zeros(10), [*range(10)]
    assert mixed(10, equal, equal, random) == [everyone, []]
    assert mixed(10, np.full(10, -1e3), np.full(10, 1e3), random) == [[], everyone]
    assert mixed(3, np.full(3, -np.inf), np.full(3, np.nan), random) == [[], [3, 4, 5]]


def test_where_all_would_stay_one_gives_way_to_a_new_one():
    everyone = distribution.mix(4, np.zeros(4), np.zeros(4), np.random.default_rng(0))
    assert [part.tolist() for part in everyone] == [[0, 1, 2, 3], []]
    gone = set()
    for seed in range(20):
        kept, drawn = distribution.replace_one(everyone, np.random.default_rng(seed))
        gone |= {0, 1, 2, 3} - {*kept.tolist()}
        assert (len(kept), drawn.tolist()) == (3, [4])
    assert gone == {0, 1, 2, 3}
    some = distribution.Mixing(np.array([0, 2]), np.array([1]))
    assert distribution.replace_one(some, np.random.default_rng(0)) is some
