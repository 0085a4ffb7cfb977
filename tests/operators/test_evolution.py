"""Operators against numbers worked out by hand, or against the plain formula."""

import numpy as np
import pytest

from esac_mpi.algorithms import esac_timing
from esac_mpi.config import ESAC
from esac_mpi.operators import evolution

ANNEALED = ESAC(p_sac_annealed=True, p_sac_initial=1.0, p_sac_final=0.1, p_sac_decay=1200.0)

same = np.testing.assert_array_equal
close = np.testing.assert_allclose


@pytest.mark.parametrize(
    ("returns", "ranks"),
    [
        ([30.0, 10.0, 20.0], [0.5, -0.5, 0.0]),
        # sorted 1 1 2 5: ranks 0 1 2 3; the ones share 0.5; scaled by 1/3, less 1/2
        ([1.0, 5.0, 1.0, 2.0], [-1 / 3, 1 / 2, -1 / 3, 1 / 6]),
        ([3.0] * 7, [0.0] * 7),  # no gradient
        ([1.0, np.nan, 2.0, -np.inf], [1 / 6, -1 / 3, 1 / 2, -1 / 3]),  # not finite is last
    ],
)
def test_centered_ranks(returns, ranks):
    close(evolution.centered_ranks(np.array(returns)), ranks, rtol=1e-15)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        # mean 3, deviations -2 -1 0 3, variance 14 / 4
        ([1.0, 2.0, 3.0, 6.0], np.array([-2, -1, 0, 3]) / np.sqrt(3.5)),
        # nan and -inf count as 1: 1 1 3 1, mean 1.5, variance 0.75
        ([1.0, np.nan, 3.0, -np.inf], np.array([-1, -1, 3, -1]) / np.sqrt(3)),
        ([2.0] * 5, np.zeros(5)),
        ([np.nan] * 5, np.zeros(5)),
        ([0.1] * 50, np.zeros(50)),  # whose mean is rounded
    ],
)
def test_standardised_returns(returns, expected):
    close(evolution.standardised(np.array(returns)), expected, rtol=1e-15)
    assert np.full(50, 0.1).std() > 0


@pytest.mark.parametrize(
    ("shaping", "expected"),
    [
        ("centered_ranks", [0.5, -0.5, 0.0]),
        # of 30 10 20: deviations 10 -10 0, variance 200 / 3
        ("standardised", [np.sqrt(1.5), -np.sqrt(1.5), 0.0]),
        ("sign", [-3.0, 5.0, -3.0]),
        ("sign_ranks", [0.0, 0.5, -0.5]),  # a value that is not finite ranks last
    ],
)
def test_each_shaping_of_returns_and_signs(shaping, expected):
    shaped = evolution.shaped(shaping, np.array([30.0, 10.0, 20.0]), np.array([-3.0, 5.0, np.nan]))
    close(shaped, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("fitness", "count", "winners"),
    [
        ([1.0, 7.0, np.nan, 7.0, 3.0], 3, [1, 3, 4]),
        ([1.0, 7.0, np.nan, 7.0, 3.0], 5, [1, 3, 4, 0]),
        ([np.inf, -5.0, -np.inf], 2, [1]),
    ],
)
def test_winners_are_the_best_of_what_is_finite(fitness, count, winners):
    assert evolution.select_winners(np.array(fitness), count).tolist() == winners


@pytest.mark.parametrize(
    ("function", "of_pairs"),
    [(evolution.slot_weights, [0.75, -0.25]), (evolution.slot_offsets, [0.25, 0.25])],
)
def test_slot_weights_and_offsets_of_pairs_and_of_members(function, of_pairs):
    shaped = np.array([0.5, -0.25, 0.0, 0.25])
    for pairs, expected in ((True, of_pairs), (False, shaped)):
        found = function(shaped, pairs=pairs)
        assert found.dtype == np.float32
        same(found, expected)


def test_long_displacements_are_clipped_to_noises_length():
    same(evolution.clip_to_noise(np.array([0.0, 3.0, 4.0, 16.0, 64.0]), 4), [1, 1, 1, 0.5, 0.25])


def test_adam_is_the_formula_of_the_paper_over_many_steps():
    random = np.random.default_rng(0)
    m, v = np.zeros(5, np.float32), np.zeros(5, np.float32)
    mean, square = np.zeros(5), np.zeros(5)
    for t in range(1, 200):
        gradient = random.normal(size=5)
        step = evolution.adam_step(gradient.astype(np.float32), m, v, t, 0.01)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        expected = 0.01 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        close(step, expected, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("returns", "clip", "steps"),
    [
        # R_max 4, R_avg 2, loss 1.5; lr 0.1, n 4, sigma 0.5: 0.1 / 2 * 1.5 = 0.075
        ([4.0, 2.0, 1.0, 1.0], 1.0, (0.075, 0.075)),
        ([4.0, 2.0, 1.0, 1.0], 0.01, (0.01, 0.075)),
        ([4.0, np.nan, 2.0, np.inf, 0.0], 1.0, (0.06, 0.06)),  # of n = 5: 0.1 / 2.5 * 1.5
    ],
)
def test_amt_step_is_equation_6(returns, clip, steps):
    found = evolution.amt_step(np.array(returns), len(returns), 0.5, 0.1, clip)
    assert found == pytest.approx(steps, rel=1e-12)


def test_amt_by_generations_has_the_public_codes_phases():
    # 100 of them at p_sac 0.1, and 0.9 * 1200 / 5 * (1 - exp(-5 / 6)) = 122.1
    assert evolution.phases_by(1000.0) == pytest.approx(20 + 216 * (1 - np.exp(-5 / 6)), rel=1e-12)
    for generations in (100, 1000, 10_000):  # its sum over every fifth generation
        whole = sum(esac_timing.p_sac(ANNEALED, k) for k in range(0, generations, 5))
        assert evolution.phases_by(generations) == pytest.approx(whole, abs=0.5)
    assert evolution.phases_by(0.0) == 0


def test_the_share_of_successes_is_over_pairs():
    # 1 wins no pair, 4 two and a tie, nan none: 2.5 of 9
    members, centre = np.array([1.0, 4.0, np.nan]), np.array([2.0, 3.0, 4.0])
    assert evolution.success_share(members, centre) == pytest.approx(2.5 / 9)
    assert evolution.success_share(centre, centre) == 0.5
    assert evolution.success_share(np.full(4, 7.0), np.full(2, 7.0)) == 0.5


def test_p_sac_is_annealed_as_the_public_code_does():
    expected = {0: 1.0, 250: 0.83, 1000: 0.49, 2000: 0.27, 5000: 0.11}
    for generation, value in expected.items():
        assert esac_timing.p_sac(ANNEALED, generation) == pytest.approx(value, abs=0.006)


def test_exchanged_rows_take_between_none_and_most():
    # with the gain and shift of a layer norm
    shapes, shares = [(64, 5), (64,), (64,), (64,), (3, 64), (3,)], []
    for seed in range(4000):
        taken = evolution.exchanged_rows(np.random.default_rng(seed), shapes)
        assert taken.shape == (262,)
        shares.append(taken[:256].reshape(4, 64).mean(axis=1))
    # k exchanges uniform below 2 L (matrix) or L (bias), each takes a row with 1/2: a row is taken
    # with 1 - E[(1 - 1/2L)^k]
    matrix, bias = (1 - np.mean((1 - 1 / 128.0) ** np.arange(most)) for most in (128, 64))
    close(np.mean(shares, axis=0), [matrix, bias, bias, bias], atol=0.01)


@pytest.mark.parametrize(
    ("differences", "better"),
    [
        ([1.0, 3.0], False),  # mean 2, standard deviation 2^0.5, error 1: exactly twice
        ([1.0, 2.99], True),
        ([1.0, 3.01], False),
        ([-1.0, -3.0], False),
        ([0.0, 0.0], False),
        ([2.0, 2.0], True),  # no spread
        ([-2.0, -2.0], False),
        ([3.0, 1.0, 2.0, 2.0], True),  # mean 2, standard deviation (2 / 3)^0.5, error 0.408
        ([1.81, -0.19, 0.81, 0.81], False),  # 0.81 against 0.816
        ([1.82, -0.18, 0.82, 0.82], True),
    ],
)
def test_a_policy_surpasses_by_more_than_twice_the_error(differences, better):
    holder = np.array([5.0, 100.0, 0.0, 0.0])[: len(differences)]
    assert evolution.surpasses(holder + differences, holder) == better


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_policy_without_a_finite_return_is_surpassed(bad):
    good, broken = np.array([1.0, 2.0, 3.0]), np.array([9.0, bad, 9.0])
    assert not evolution.surpasses(broken, good)
    assert evolution.surpasses(good, broken)
    assert not evolution.surpasses(broken, broken)
