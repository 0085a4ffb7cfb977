"""The distribution of CEM and AES-RL.

Against numbers worked out by hand, plain formulas, and functions that it minimises.
"""

import math

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.operators import distribution, noise, update_rules
from esac_mpi.operators.distribution import Gaussian
from esac_mpi.operators.evolution import select_winners
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.update_rules import MeanRule, SuccessRule, VarianceRule


def row(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def individual(gaussian: Gaussian, seed: int, k: int, i: int, n: int, mirrored: bool) -> np.ndarray:
    """Return an individual made block by block from its address."""
    slot, sign = distribution.slot_and_sign(i, n, mirrored)
    blocks = [
        distribution.sampled(
            Gaussian(gaussian.mean[part], gaussian.variance[part]),
            noise.normal(seed, Purpose.MUTATION, k, slot, number, part.stop - part.start),
            sign,
        )
        for number, part in noise.blocks(gaussian.mean.size)
    ]
    return np.concatenate(blocks)


def sphere(x: np.ndarray) -> float:
    return float(np.square(x, dtype=np.float64).sum())


def ellipsoid(x: np.ndarray) -> float:
    return float(
        np.sum(1000 ** (np.arange(x.size) / (x.size - 1)) * np.square(x, dtype=np.float64))
    )


def test_the_second_half_of_mirrored_individuals_mirrors_the_first():
    assert [distribution.slot_and_sign(i, 4, True) for i in range(4)] == [
        (0, 1),
        (1, 1),
        (0, -1),
        (1, -1),
    ]
    assert [distribution.slot_and_sign(i, 3, False) for i in range(3)] == [(0, 1), (1, 1), (2, 1)]


def test_an_individual_is_the_mean_and_so_many_standard_deviations():
    gaussian = Gaussian(row(1, -2, 3), row(4, 0.25, 9))
    np.testing.assert_array_equal(distribution.sampled(gaussian, row(0.5, 4, -1)), row(2, 0, 0))
    np.testing.assert_array_equal(
        distribution.sampled(gaussian, row(0.5, 4, -1), -1), row(0, -4, 6)
    )


def test_weights_of_elites_by_hand():
    # log 3, log 1.5: 1.0986, 0.4055 of 1.5041
    np.testing.assert_allclose(distribution.rank_weights(2, "log"), [0.73042, 0.26958], atol=1e-5)
    logs = np.log([6, 3, 2, 1.5, 1.2])
    np.testing.assert_allclose(distribution.rank_weights(5, "log"), logs / logs.sum(), rtol=1e-6)
    np.testing.assert_array_equal(
        distribution.rank_weights(4, "equal"), np.full(4, 0.25, np.float32)
    )
    for weights in ("log", "equal"):
        assert distribution.rank_weights(0, weights).shape == (0,)
        assert distribution.rank_weights(1, weights).tolist() == [1]


def test_damping_is_drawn_to_its_limit():
    assert distribution.damped(1e-3, 0.95, 1e-5) == pytest.approx(0.0009505, rel=1e-12)
    damp = 1e-3
    for _ in range(50):
        damp = distribution.damped(damp, 0.95, 1e-5)
    assert damp == pytest.approx(1e-5 + 0.95**50 * (1e-3 - 1e-5), rel=1e-12)


def test_a_generation_by_hand():
    gaussian = Gaussian(row(1, 0), row(1, 1))
    elites = [row(3, 1), row(-1, 2)]
    weights = row(0.75, 0.25)
    # gaps (2, 1) and (-2, 2); move .75 (2, 1) + .25 (-2, 2) = (1, 1.25);
    # spread .75 (4, 1) + .25 (4, 4) = (4, 1.75)
    mean, variance = distribution.told(gaussian, elites, weights, 0.5, cov_extra_div=False)
    np.testing.assert_array_equal(mean, row(2, 1.25))
    np.testing.assert_array_equal(variance, row(4.5, 2.25))
    mean, variance = distribution.told(gaussian, elites, weights, 0.5, cov_extra_div=True, step=0.1)
    np.testing.assert_allclose(mean, [1.1, 0.125], rtol=1e-6)
    np.testing.assert_array_equal(variance, row(2.5, 1.375))


def test_without_an_elite_a_generation_changes_nothing():
    gaussian = Gaussian(row(1, 0), row(1, 1))
    assert (
        distribution.told(gaussian, [], distribution.rank_weights(0, "log"), 0.5, True) is gaussian
    )


@pytest.mark.parametrize("cov_extra_div", [False, True])
def test_generations_are_the_public_codes_formulas(cov_extra_div):
    random, d, n, parents = np.random.default_rng(0), 40, 10, 5
    gaussian = Gaussian(random.standard_normal(d).astype(np.float32), np.full(d, 1e-3, np.float32))
    mu, cov, damp = gaussian.mean.astype(np.float64), gaussian.variance.astype(np.float64), 1e-3
    weights = np.array([np.log((parents + 1) / i) for i in range(1, parents + 1)])
    weights /= weights.sum()
    for _ in range(20):
        epsilon, fitness = random.standard_normal((n, d)), random.standard_normal(n)
        individuals = [distribution.sampled(gaussian, e.astype(np.float32)) for e in epsilon]
        damp = distribution.damped(damp, 0.95, 1e-5)
        best = select_winners(fitness, parents)
        ranked = distribution.rank_weights(best.size, "log")
        gaussian = distribution.told(
            gaussian, [individuals[i] for i in best], ranked, damp, cov_extra_div
        )
        solutions, order, old_mu = mu + epsilon * np.sqrt(cov), np.argsort(-fitness), mu
        mu = weights @ solutions[order[:parents]]
        z = solutions[order[:parents]] - old_mu
        cov = (1 / parents if cov_extra_div else 1) * weights @ (z * z) + damp * np.ones(d)
        np.testing.assert_allclose(gaussian.mean, mu, atol=3e-6)
        np.testing.assert_allclose(gaussian.variance, cov, rtol=3e-5)


def test_blocks_of_a_generation_are_parts_of_the_whole_to_the_bit():
    d, n = noise.BLOCK + 1000, 6
    gaussian = Gaussian(
        np.linspace(-1, 1, d, dtype=np.float32), np.linspace(0.1, 0.2, d, dtype=np.float32)
    )
    individuals = [individual(gaussian, 3, 1, i, n, mirrored=True) for i in range(n)]
    np.testing.assert_allclose(individuals[0] + individuals[3], 2 * gaussian.mean, atol=1e-6)
    elites, weights = [individuals[i] for i in (4, 1, 3)], distribution.rank_weights(3, "log")
    whole = distribution.told(gaussian, elites, weights, 1e-3, True)
    for _, part in noise.blocks(d):
        block = Gaussian(gaussian.mean[part], gaussian.variance[part])
        for got, expected in zip(
            distribution.told(block, (e[part] for e in elites), weights, 1e-3, True),
            whole,
            strict=True,
        ):
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, expected[part])


def minimised(
    function, mirrored: bool, cov_extra_div: bool, weights: str, seed: int
) -> list[float]:
    """Return the value at the mean after each of 300 generations of 20, in 10-D, from all ones."""
    n, d, damp, values = 20, 10, 0.1, []
    gaussian = Gaussian(np.ones(d, np.float32), np.full(d, 0.1, np.float32))
    for k in range(300):
        individuals = [individual(gaussian, seed, k, i, n, mirrored) for i in range(n)]
        best = select_winners(-np.array([function(x) for x in individuals]), n // 2)
        damp = distribution.damped(damp, 0.95, 1e-8)
        elites = [individuals[i] for i in best]
        ranked = distribution.rank_weights(best.size, weights)
        gaussian = distribution.told(gaussian, elites, ranked, damp, cov_extra_div)
        values.append(function(gaussian.mean))
    return values


@pytest.mark.parametrize(("mirrored", "weights"), [(True, "log"), (False, "log"), (True, "equal")])
@pytest.mark.parametrize(
    (
        "function",
        "cov_extra_div",
        "early",
        "late",
    ),  # from 10 and 1,900; 2,000 and 6,000 evaluations
    [
        (sphere, False, 1e-2, 1e-6),
        (sphere, True, 1e-2, 1e-6),
        (ellipsoid, False, 1.0, 1e-3),
        (ellipsoid, True, 5.0, 2.0),
    ],
)
def test_cem_minimises_within_stated_evaluations(
    function, cov_extra_div, early, late, mirrored, weights
):
    for seed in (0, 1):
        values = minimised(function, mirrored, cov_extra_div, weights, seed)
        assert values[99] < early, values[99]
        assert values[299] < late, values[299]


def test_an_arrival_by_hand():
    gaussian, z = Gaussian(row(1, 0), row(1, 2)), row(3, -4)
    # mean (1, 0) + (2, -4) / 4 = (1.5, -1); spread (2, -4) (1.5, -3) = (3, 12)
    mean, variance = distribution.moved(gaussian, z, 0.25, 4.0, 1e-5)
    np.testing.assert_array_equal(mean, row(1.5, -1))
    np.testing.assert_array_equal(variance, row(1.5, 4.5))
    # away from it: mean (0, 2), spread (2, -4) (3, -6) = (6, 24)
    mean, variance = distribution.moved(gaussian, z, -0.5, 4.0, 1e-5)
    np.testing.assert_array_equal(mean, row(0, 2))
    np.testing.assert_array_equal(variance, row(2.25, 7.5))


def test_a_full_move_is_to_the_individual_itself_and_its_variance_is_the_floor():
    random = np.random.default_rng(0)
    gaussian = Gaussian(*random.random((2, 100)).astype(np.float32))
    z = random.random(100).astype(np.float32)
    mean, variance = distribution.moved(gaussian, z, 1.0, 1.0, 1e-5)
    np.testing.assert_array_equal(mean, z)
    np.testing.assert_array_equal(variance, np.full(100, 1e-5, np.float32))


def test_an_arrival_that_says_nothing_changes_no_bit():
    gaussian = Gaussian(row(1, 0), row(1, 1e-7))
    for got, old in zip(
        distribution.moved(gaussian, row(np.nan, np.inf), 0.0, math.inf, 1e-5),
        gaussian,
        strict=True,
    ):
        np.testing.assert_array_equal(got, old)
    # fixed n, p = 0, as printed: the variance alone moves, from (1, 1e-7) a tenth of the way to
    # (4, 9)
    mean, variance = distribution.moved(gaussian, row(3, -3), 0.0, 10.0, 1e-5)
    np.testing.assert_array_equal(mean, gaussian.mean)
    np.testing.assert_allclose(variance, [1.3, 0.9], rtol=1e-6)


def test_a_mean_that_moves_by_one_nth_has_the_mean_and_variance_of_all_so_far():
    arrivals = np.random.default_rng(1).normal(3.0, 2.0, (40, 7)).astype(np.float32)
    whole = sample = Gaussian(arrivals[0], np.zeros(7, np.float32))
    for n, z in enumerate(arrivals[1:], 2):
        p = 1 / n
        whole = distribution.moved(whole, z, p, n, 0.0)
        sample = distribution.moved(
            sample, z, p, update_rules.weight_of_past(VarianceRule("adaptive"), p), 0.0
        )
        np.testing.assert_allclose(whole.mean, arrivals[:n].mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(whole.variance, arrivals[:n].var(axis=0), rtol=1e-4)
        # n of Eq. (12) is 1/p - 1
        np.testing.assert_allclose(sample.variance, arrivals[:n].var(axis=0, ddof=1), rtol=1e-4)


def test_a_variance_is_scaled_down_to_its_floor():
    gaussian = Gaussian(row(1, 0), row(1, 1e-5))
    np.testing.assert_array_equal(distribution.scaled(gaussian, 0.5, 1e-5).variance, row(0.5, 1e-5))
    assert distribution.scaled(Gaussian(row(1), row(1e-7)), 1.0, 1e-5).variance == row(1e-7)


def arrivals(
    mean_rule: MeanRule, variance_rule: VarianceRule, count: int, seed: int, trained: float = 0.0
) -> Gaussian:
    """Return the distribution after so many arrivals in 10 dimensions, from all ones.

    The sphere's negative is the fitness.
    trained: share of the way to the optimum that every second individual goes first, as gradients
    would have it.
    """
    gaussian = Gaussian(np.ones(10, np.float32), np.full(10, 0.1, np.float32))
    history = update_rules.no_history(10)
    for a in range(count):
        z = individual(gaussian, seed, a, 0, 1, mirrored=False) * np.float32(1 - trained * (a % 2))
        p, n = update_rules.update(mean_rule, variance_rule, -sphere(z), -sphere(gaussian.mean))
        gaussian = distribution.moved(gaussian, z, p, n, 1e-5)
        if variance_rule.rule == "success":
            history, factor = update_rules.variance_factor(SuccessRule(), history, p == 1)
            gaussian = distribution.scaled(gaussian, factor, 1e-5)
    return gaussian


FIXED_RANGE = [MeanRule("full_move"), MeanRule("linear", 2.0), MeanRule("sigmoid", 2.0)]
BASELINES = [MeanRule("absolute", -12.0), MeanRule("relative", 2.0)]


@pytest.mark.parametrize("variance", ["fixed", "adaptive"])
@pytest.mark.parametrize("mean_rule", FIXED_RANGE + BASELINES, ids=lambda rule: rule.rule)
@pytest.mark.parametrize("seed", [0, 1])
def test_where_half_are_trained_any_mean_rule_goes_with_any_variance_rule_down_the_sphere(
    mean_rule, variance, seed
):
    # from 10
    assert sphere(arrivals(mean_rule, VarianceRule(variance), 200, seed, trained=0.1).mean) < 0.5


@pytest.mark.parametrize("mean_rule", FIXED_RANGE, ids=lambda rule: rule.rule)
@pytest.mark.parametrize("seed", [0, 1])
def test_superior_individuals_alone_go_down_the_sphere_where_only_they_move_the_mean(
    mean_rule, seed
):
    assert sphere(arrivals(mean_rule, VarianceRule("fixed"), 500, seed).mean) < 0.3


@pytest.mark.parametrize("mean_rule", BASELINES, ids=lambda rule: rule.rule)
@pytest.mark.parametrize("variance", ["fixed", "adaptive"])
def test_baselines_take_the_variance_to_its_floor_where_nobody_is_trained(mean_rule, variance):
    gaussian = arrivals(mean_rule, VarianceRule(variance), 500, 0)
    # p is near a half whoever arrives, and a half of the gap's square remains
    assert gaussian.variance.mean() < 2e-5
    assert sphere(gaussian.mean) > 3


def test_the_success_rule_goes_down_the_sphere_with_full_moves():
    for seed in (0, 1):
        assert (
            sphere(arrivals(MeanRule("full_move"), VarianceRule("success"), 1500, seed).mean) < 0.05
        )


def test_the_ring_has_no_elites_until_it_is_full_and_then_those_of_the_newest():
    fitness = np.array([5.0, np.nan, 7.0, 7.0])
    assert distribution.ring_elites(fitness, 3, 2).size == 0
    assert distribution.ring_elites(fitness, 4, 2).tolist() == [2, 3]
    assert distribution.ring_elites(fitness, 9, 4).tolist() == [2, 3, 0]


def test_rank_based_oldest_is_the_public_codes_formula():
    random, d, size, parents = np.random.default_rng(2), 12, 10, 5
    mean = random.standard_normal(d)
    gaussian = Gaussian(mean.astype(np.float32), np.full(d, 1e-3, np.float32))
    damp = 1e-3
    old_damp = 1e-3
    var, tau = gaussian.variance.astype(np.float64), 0.95 ** (1 / size)
    weights = np.array([np.log((parents + 1) / i) for i in range(1, parents + 1)])
    weights /= weights.sum()
    ring, ring_fitness = np.zeros((size, d), np.float32), np.zeros(size)
    for a in range(35):
        ring[a % size] = mean + random.standard_normal(d) * np.sqrt(var)
        ring_fitness[a % size] = random.standard_normal()
        best = distribution.ring_elites(ring_fitness, a + 1, parents)
        ranked = distribution.rank_weights(best.size, "log")
        if best.size:
            damp = distribution.damped(damp, tau, 1e-5)
        gaussian = distribution.told(gaussian, ring[best], ranked, damp, True, 1 / size)
        if a + 1 >= size:
            order, old_mean = np.argsort(-ring_fitness), mean
            old_damp = old_damp * tau + (1 - tau) * 1e-5
            mean = old_mean + (weights @ ring[order[:parents]] - old_mean) / size
            z = ring[order[:parents]] - old_mean
            var = 1 / parents * weights @ (z * z) + old_damp
        np.testing.assert_allclose(gaussian.mean, mean, atol=1e-6)
        np.testing.assert_allclose(gaussian.variance, var, rtol=1e-5)
    # 26 arrivals of a tenth of a generation
    assert damp == pytest.approx(1e-5 + 0.95**2.6 * (1e-3 - 1e-5))


def test_a_ratio_of_densities_by_hand():
    new, old = Gaussian(row(0, 1), row(1, 4)), Gaussian(row(2, 1), row(1, 1))
    # at (1, 3): new -1/2 (1 + 4/4 + log 4), old -1/2 (1 + 4)
    assert distribution.log_ratio(row(1, 3), new, old) == pytest.approx(
        1.5 - math.log(2), rel=1e-12
    )
    assert distribution.log_ratio(row(1, 3), old, old) == 0
    parts = [slice(0, 1), slice(1, 2)]
    blocks = [
        distribution.log_ratio(
            row(1, 3)[p], *(Gaussian(g.mean[p], g.variance[p]) for g in (new, old))
        )
        for p in parts
    ]
    assert sum(blocks) == pytest.approx(1.5 - math.log(2), rel=1e-12)


def test_mixing_by_hand():
    log = np.log
    old, candidates = log([0.5, 0.5, 2.0, np.nan]), log([4.0, 1.25, 0.5, 4.0])
    # old ones stay where luck is below 0.5, 0.5, 1, never; candidates join where it is at least
    # 1/4, 4/5, 2, 1/4
    luck = 1 - np.array([[0.4, 0.3], [0.6, 0.7], [0.9, 1.0], [0.1, 0.2]])
    assert [part.tolist() for part in distribution.mix(5, old, candidates, Drawn(luck))] == [
        [0, 2],
        [0, 4, 5],
    ]
    assert [part.tolist() for part in distribution.mix(2, old, candidates, Drawn(luck))] == [
        [0],
        [0],
    ]
    assert [part.tolist() for part in distribution.mix(1, old, candidates, Drawn(luck))] == [
        [0],
        [],
    ]


def test_mixing_keeps_all_where_nothing_moved_and_none_where_all_is_elsewhere():
    random, same = np.random.default_rng(0), np.zeros(10)
    assert [part.tolist() for part in distribution.mix(10, same, same, random)] == [
        list(range(10)),
        [],
    ]
    away = distribution.mix(10, np.full(10, -1e3), np.full(10, 1e3), random)
    assert [part.tolist() for part in away] == [[], list(range(10))]
    broken = distribution.mix(3, np.full(3, -np.inf), np.full(3, np.nan), random)
    assert [part.tolist() for part in broken] == [[], [3, 4, 5]]


def test_a_mixed_generation_is_distributed_as_the_new_distribution_says():
    old, new = Gaussian(row(0), row(1)), Gaussian(row(1), row(1))
    random, n, generations, mixed, kept = np.random.default_rng(3), 400, 100, [], 0
    for _ in range(generations):
        before = random.standard_normal((n, 1)).astype(np.float32)
        fresh = 1 + random.standard_normal((2 * n, 1)).astype(np.float32)
        assert distribution.log_ratio(fresh[0], new, old) == pytest.approx(
            fresh[0, 0] - 0.5, abs=1e-6
        )
        chosen = distribution.mix(n, before[:, 0] - 0.5, fresh[:n, 0] - 0.5, random)
        kept += len(chosen.kept)
        mixed.append(np.concatenate([before[chosen.kept], fresh[chosen.drawn]]))
        assert mixed[-1].shape == (n, 1)
    everyone = np.concatenate(mixed)  # [40,000]: errors 0.005 of the mean, 0.007 of the variance
    assert everyone.mean() == pytest.approx(1, abs=0.02)
    assert everyone.var() == pytest.approx(1, abs=0.03)
    overlap = math.erfc(0.5 / math.sqrt(2))  # of both densities: 2 Phi(-1/2) = 0.617
    assert kept / (n * generations) == pytest.approx(overlap, abs=0.02)


def test_where_all_would_stay_one_gives_way_to_a_new_one():
    same = distribution.mix(4, np.zeros(4), np.zeros(4), np.random.default_rng(0))
    assert [part.tolist() for part in same] == [[0, 1, 2, 3], []]
    gone = set()
    for seed in range(20):
        kept, drawn = distribution.renewed(same, np.random.default_rng(seed))
        gone |= {0, 1, 2, 3} - {*kept.tolist()}
        assert (len(kept), drawn.tolist()) == (3, [4])
    assert gone == {0, 1, 2, 3}
    some = distribution.Mixing(np.array([0, 2]), np.array([1]))
    assert distribution.renewed(some, np.random.default_rng(0)) is some
