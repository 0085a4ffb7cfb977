"""Operators against numbers worked out by hand, or against the plain formula."""

import numpy as np
import pytest

from esac_mpi.operators import evolution


def test_centered_ranks_of_distinct_values():
    np.testing.assert_array_equal(
        evolution.centered_ranks(np.array([30.0, 10.0, 20.0])), [0.5, -0.5, 0.0]
    )


def test_tied_values_share_their_average_rank():
    # sorted 1 1 2 5: ranks 0 1 2 3; the ones share 0.5; scaled by 1/3, less 1/2
    np.testing.assert_allclose(
        evolution.centered_ranks(np.array([1.0, 5.0, 1.0, 2.0])),
        [-1 / 3, 1 / 2, -1 / 3, 1 / 6],
        rtol=1e-15,
    )


def test_equal_returns_give_no_gradient():
    assert not evolution.centered_ranks(np.full(7, 3.0)).any()


def test_returns_that_are_not_finite_rank_last():
    np.testing.assert_allclose(
        evolution.centered_ranks(np.array([1.0, np.nan, 2.0, -np.inf])),
        [1 / 6, -1 / 3, 1 / 2, -1 / 3],
    )


def test_standardised_returns():
    # mean 3, deviations -2 -1 0 3, variance 14 / 4
    np.testing.assert_allclose(
        evolution.standardised(np.array([1.0, 2.0, 3.0, 6.0])),
        np.array([-2, -1, 0, 3]) / np.sqrt(3.5),
        rtol=1e-15,
    )
    # nan and -inf count as 1: 1 1 3 1, mean 1.5, variance 0.75
    np.testing.assert_allclose(
        evolution.standardised(np.array([1.0, np.nan, 3.0, -np.inf])),
        np.array([-1, -1, 3, -1]) / np.sqrt(3),
        rtol=1e-15,
    )
    assert not evolution.standardised(np.full(5, 2.0)).any()
    assert not evolution.standardised(np.full(5, np.nan)).any()
    assert np.full(50, 0.1).std() > 0  # the mean is rounded
    assert not evolution.standardised(np.full(50, 0.1)).any()


@pytest.mark.parametrize(
    ("shaping", "expected"),
    [
        ("centered_ranks", [0.5, -0.5, 0.0]),
        (
            "standardised",
            [np.sqrt(1.5), -np.sqrt(1.5), 0.0],
        ),  # of 30 10 20: deviations 10 -10 0, variance 200 / 3
        ("sign", [-3.0, 5.0, -3.0]),
        ("sign_ranks", [0.0, 0.5, -0.5]),  # a value that is not finite ranks last
    ],
)
def test_each_shaping_of_returns_and_signs(shaping, expected):
    shaped = evolution.shaped(shaping, np.array([30.0, 10.0, 20.0]), np.array([-3.0, 5.0, np.nan]))
    np.testing.assert_allclose(shaped, expected, rtol=1e-15)


# Printed by the script of the blog of OpenAI-ES (seed 0): iteration, w, reward
PRINTED = {
    0: ([1.76405235, 0.40015721, 0.97873798], -3.323094),
    20: ([1.63796944, 0.36987244, 0.84497941], -2.678783),
    60: ([1.36438269, 0.29247833, 0.56990397], -1.540938),
    100: ([1.08819889, 0.22827364, 0.30415088], -0.727430),
    120: ([0.95675286, 0.19282042, 0.16682465], -0.435164),
}


def test_the_blogs_quadratic_in_three_numbers_comes_out_as_printed():
    random, solution = np.random.RandomState(0), np.array([0.5, 0.1, -0.3])
    n, sigma, lr = 50, 0.1, 0.001
    w = random.randn(3)
    for iteration in range(300):
        if iteration in PRINTED:
            printed, reward = PRINTED[iteration]
            np.testing.assert_allclose(w, printed, atol=2e-6)
            assert -np.square(w - solution).sum() == pytest.approx(reward, abs=3e-6)
        epsilon = random.randn(n, 3)
        returns = np.array(
            [-np.square(evolution.mutated(w, e, 1, sigma) - solution).sum() for e in epsilon]
        )
        weights = evolution.slot_weights(
            evolution.shaped("standardised", returns, np.zeros(n)), pairs=False
        )
        w = w + evolution.sgd_step(weights @ epsilon / (n * sigma), lr)
    assert -np.square(w - solution).sum() > -1e-3


def test_winners_are_the_best_with_ties_by_index_and_only_what_is_finite_wins():
    fitness = np.array([1.0, 7.0, np.nan, 7.0, 3.0])
    np.testing.assert_array_equal(evolution.select_winners(fitness, 3), [1, 3, 4])
    np.testing.assert_array_equal(evolution.select_winners(fitness, 5), [1, 3, 4, 0])
    np.testing.assert_array_equal(
        evolution.select_winners(np.array([np.inf, -5.0, -np.inf]), 2), [1]
    )


def test_slot_weights_of_pairs_and_of_members():
    shaped = np.array([0.5, -0.25, 0.0, 0.25])
    np.testing.assert_array_equal(
        evolution.slot_weights(shaped, pairs=True), np.array([0.75, -0.25], np.float32)
    )
    np.testing.assert_array_equal(
        evolution.slot_weights(shaped, pairs=False), shaped.astype(np.float32)
    )


def test_slot_offsets_of_pairs_and_of_members():
    shaped = np.array([0.5, -0.25, 0.0, 0.25])
    np.testing.assert_array_equal(
        evolution.slot_offsets(shaped, pairs=True), np.array([0.25, 0.25], np.float32)
    )
    np.testing.assert_array_equal(
        evolution.slot_offsets(shaped, pairs=False), shaped.astype(np.float32)
    )


def test_displacements_longer_than_noise_are_clipped_to_its_length():
    np.testing.assert_array_equal(
        evolution.clipped_to_noise(np.array([0.0, 3.0, 4.0, 16.0, 64.0]), 4), [1, 1, 1, 0.5, 0.25]
    )


def test_first_adam_step_is_the_learning_rate_towards_the_gradient():
    m, v = np.zeros(3, np.float32), np.zeros(3, np.float32)
    step = evolution.adam_step(np.array([2.0, -0.5, 0.0], np.float32), m, v, t=1, lr=0.1)
    np.testing.assert_allclose(step, [0.1, -0.1, 0.0], rtol=1e-6)
    np.testing.assert_allclose(m, [0.2, -0.05, 0.0], rtol=1e-6)
    np.testing.assert_allclose(v, [0.004, 0.00025, 0.0], rtol=1e-6)


def test_adam_is_the_formula_of_the_paper_over_many_steps():
    random = np.random.default_rng(0)
    m, v = np.zeros(5, np.float32), np.zeros(5, np.float32)
    mean, square = np.zeros(5), np.zeros(5)
    for t in range(1, 200):
        gradient = random.normal(size=5)
        step = evolution.adam_step(gradient.astype(np.float32), m, v, t, 0.01)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        expected = 0.01 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(step, expected, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("x", "y", "loss"), [(3.0, 3.0, 0.0), (3.0, 3.5, 0.125), (3.0, 2.0, 0.5), (10.0, 0.0, 9.5)]
)
def test_smooth_l1_is_equation_4(x, y, loss):
    assert evolution.smooth_l1(x, y) == loss


def test_amt_step_is_equation_6():
    # R_max 4, R_avg 2, loss 1.5; lr 0.1, n 4, sigma 0.5: 0.1 / 2 * 1.5 = 0.075
    returns = np.array([4.0, 2.0, 1.0, 1.0])
    assert evolution.amt_step(returns, 4, 0.5, 0.1, clip=1.0) == pytest.approx(
        (0.075, 0.075), rel=1e-12
    )
    assert evolution.amt_step(returns, 4, 0.5, 0.1, clip=0.01) == pytest.approx(
        (0.01, 0.075), rel=1e-12
    )


def test_amt_step_leaves_out_returns_that_are_not_finite():
    returns = np.array([4.0, np.nan, 2.0, np.inf, 0.0])  # R_max 4, R_avg 2, n 5
    assert evolution.amt_step(returns, 5, 0.5, 0.1, 1.0)[1] == pytest.approx(0.1 / 2.5 * 1.5)


def test_amt_counted_in_generations_has_the_phases_of_the_public_code():
    # 100 of them at p_sac 0.1, and 0.9 * 1200 / 5 * (1 - exp(-5 / 6)) = 122.1
    assert evolution.phases_by(1000.0) == pytest.approx(20 + 216 * (1 - np.exp(-5 / 6)), rel=1e-12)
    for generations in (100, 1000, 10_000):  # its sum over every fifth generation
        whole = sum(evolution.p_sac(k, 1.0, 0.1, 1200.0) for k in range(0, generations, 5))
        assert evolution.phases_by(generations) == pytest.approx(whole, abs=0.5)
    assert evolution.phases_by(0.0) == 0


def test_the_share_of_successes_is_over_pairs_and_noise_alone_gives_a_half():
    # 1 wins no pair, 4 two and a tie, nan none: 2.5 of 9
    members, centre = np.array([1.0, 4.0, np.nan]), np.array([2.0, 3.0, 4.0])
    assert evolution.success_share(members, centre) == pytest.approx(2.5 / 9)
    assert evolution.success_share(centre, centre) == 0.5
    assert evolution.success_share(np.full(4, 7.0), np.full(2, 7.0)) == 0.5


def test_a_fifth_of_successes_leaves_sigma_as_it_is():
    assert evolution.one_fifth(0.3, 0.2) == 0.3
    assert evolution.one_fifth(0.3, 1.0) == pytest.approx(0.3 * np.exp(0.1))
    assert evolution.one_fifth(0.3, 0.0) == pytest.approx(0.3 * np.exp(-0.025))
    assert [evolution.within_span(sigma, 0.5) for sigma in (0.01, 0.4, 9.0)] == [0.1, 0.4, 2.5]


def test_p_sac_is_annealed_as_the_public_code_does():
    expected = {0: 1.0, 250: 0.83, 1000: 0.49, 2000: 0.27, 5000: 0.11}
    for generation, value in expected.items():
        assert evolution.p_sac(generation, 1.0, 0.1, 1200.0) == pytest.approx(value, abs=0.006)


def test_exchanged_rows_take_between_none_and_most():
    shapes = [
        (64, 5),
        (64,),
        (64,),
        (64,),
        (3, 64),
        (3,),
    ]  # with the gain and shift of a layer norm
    shares = []
    for seed in range(4000):
        taken = evolution.exchanged_rows(np.random.default_rng(seed), shapes)
        assert taken.shape == (262,)
        shares.append(taken[:256].reshape(4, 64).mean(axis=1))
    # k exchanges uniform below 2 L (matrix) or L (bias), each takes a row with 1/2: a row is taken
    # with 1 - E[(1 - 1/2L)^k]
    matrix = 1 - np.mean((1 - 1 / 128.0) ** np.arange(128))
    bias = 1 - np.mean((1 - 1 / 128.0) ** np.arange(64))
    np.testing.assert_allclose(np.mean(shares, axis=0), [matrix, bias, bias, bias], atol=0.01)


def test_crossover_takes_the_winners_values_where_told():
    child = evolution.crossover(
        np.array([1.0, 2.0, 3.0]), np.array([7.0, 8.0, 9.0]), np.array([True, False, True])
    )
    np.testing.assert_array_equal(child, [1.0, 8.0, 3.0])


def test_pull_moves_towards_the_mean_winner():
    moved = evolution.pull(
        np.array([1.0, -2.0], np.float32), np.array([3.0, 2.0], np.float32), 0.25
    )
    np.testing.assert_array_equal(moved, np.array([1.5, -1.0], np.float32))


def test_mutated_is_line_7():
    moved = evolution.mutated(
        np.array([1.0, 2.0], np.float32), np.array([0.5, -4.0], np.float32), -1, 0.25
    )
    np.testing.assert_array_equal(moved, np.array([0.875, 3.0], np.float32))


def test_a_policy_surpasses_another_by_more_than_twice_the_error_of_the_mean_difference():
    holder = np.array([5.0, 100.0])
    for differences, better in (
        ([1.0, 3.0], False),  # mean 2, standard deviation 2^0.5, error 1: exactly twice
        ([1.0, 2.99], True),
        ([1.0, 3.01], False),
        ([-1.0, -3.0], False),
        ([0.0, 0.0], False),
        ([2.0, 2.0], True),  # no spread
        ([-2.0, -2.0], False),
    ):
        assert evolution.surpasses(holder + differences, holder) == better, differences
    more = np.array([3.0, 1.0, 2.0, 2.0])  # mean 2, standard deviation (2 / 3)^0.5, error 0.408
    assert evolution.surpasses(more, np.zeros(4))
    assert not evolution.surpasses(more - 1.19, np.zeros(4))  # 0.81 against 0.816
    assert evolution.surpasses(more - 1.18, np.zeros(4))


def test_a_policy_with_a_return_that_is_not_finite_surpasses_nothing_and_is_surpassed():
    good = np.array([1.0, 2.0, 3.0])
    for bad in (np.nan, np.inf, -np.inf):
        broken = np.array([9.0, bad, 9.0])
        assert not evolution.surpasses(broken, good)
        assert evolution.surpasses(good, broken)
        assert not evolution.surpasses(broken, broken)
