"""AES-RL's rules against numbers by hand: at ties, at their ranges' edges, far below a baseline."""

import math

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.config import AESRL
from esac_mpi.operators import update_rules

RULES = ["full_move", "linear", "sigmoid", "absolute", "relative"]
E = math.e


def ratio(rule: str, f_z: float, f_mean: float, **settings) -> float:
    return update_rules.update_ratio(AESRL(mean_rule=rule, **settings), f_z, f_mean)


def both(positive: float, negative: float) -> dict[str, float]:
    return {"p_positive": positive, "p_negative": negative}


@pytest.mark.parametrize(("f_z", "p"), [(10.1, 1), (10.0, 0), (9.0, 0)])
def test_a_full_move_is_to_superior_individuals_alone(f_z, p):
    assert ratio("full_move", f_z, 10.0) == p


@pytest.mark.parametrize(
    ("f_z", "p", "negative"),  # f_mean = 10, r = 4; negative: with p_positive 0.5, p_negative 0.25
    [
        (12, 0.5, 0.25),
        (14, 1, 0.5),
        (99, 1, 0.5),
        (10, 0, 0),
        (8, 0, -0.125),
        (6, 0, -0.25),
        (-99, 0, -0.25),
    ],
)
def test_a_fixed_range_is_clipped_and_linear_inside(f_z, p, negative):
    assert ratio("linear", f_z, 10.0, fitness_range=4.0) == p
    assert ratio("linear", f_z, 10.0, fitness_range=4.0, **both(0.5, 0.25)) == negative


@pytest.mark.parametrize(
    # f_mean = 10, r = 4; signed: with p_positive 0.5, p_negative 0.25
    ("f_z", "p", "signed", "signless"),
    [
        (10, 0, 0.125, 0.5),
        (14, E / (1 + E), 0.5 * E / (1 + E), E / (1 + E)),
        (6, 0, 0.25 / (1 + E), 1 / (1 + E)),
        (1e6, 1, 0.5, 1),
        (-1e6, 0, 0, 0),
    ],
)
def test_a_sigmoid_and_that_of_the_public_code(f_z, p, signed, signless):
    for settings, expected in (
        ({}, p),
        (both(0.5, 0.25), signed),
        ({"sigmoid_signless": True}, signless),
    ):
        found = ratio("sigmoid", f_z, 10.0, fitness_range=4.0, **settings)
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    # f_b = -20: individual and mean are 20 more above it; p_negative = 0.5
    ("f_z", "f_mean", "p", "negative"),
    [
        (10, 10, 0.5, 0.5),
        (40, 0, 0.75, 0.75),
        (-10, 10, 0.25, 0.25),
        (-20, 10, 0, 0),  # at the baseline
        (-25, 10, 0, -0.1),  # -5 / 25
        (-34, 10, 0, -0.5),  # -14 / 16; then clipped: -20 / 10
        (-40, 10, 0, -0.5),
        (-50, 10, 0, 0),  # the denominator is 0, then negative
        (-90, 10, 0, 0),
        (0, -20, 1, 1),  # the mean at the baseline, below it, and far below
        (0, -30, 1, 1),
        (0, -60, 1, 1),
        (-20, -20, 0, 0),
        (-30, -30, 0, 0),
    ],
)
def test_an_absolute_baseline(f_z, f_mean, p, negative):
    assert ratio("absolute", f_z, f_mean, absolute_baseline=20.0) == p
    found = ratio("absolute", f_z, f_mean, absolute_baseline=20.0, p_negative=0.5)
    assert found == pytest.approx(-14 / 16 * 0.5 if f_z == -34 else negative, rel=1e-12)


def test_above_a_baseline_far_over_the_mean_p_positive_counts():
    assert ratio("absolute", 0.0, -60.0, absolute_baseline=20.0, p_positive=0.3) == 0.3


@pytest.mark.parametrize(
    # f_mean = 10, f_b = 4, so that f_rb = 6; signed: p_positive 0.6, p_negative 0.5
    ("f_z", "p", "signed"),
    [
        (10, 0.5, 0.3),
        (14, 2 / 3, 0.4),
        (8, 1 / 3, 0.2),
        (6, 0, 0),
        (5, 0, -1 / 6),  # -1 / 3
        (4, 0, -0.5),  # -2 / 2
        (3, 0, -0.5),  # -3 / 1, clipped
        (2, 0, 0),  # f_rb - f_b
        (-9, 0, 0),
        (4e9, 1, 0.6),
    ],
)
def test_a_relative_baseline(f_z, p, signed):
    for settings, expected in (({}, p), (both(0.6, 0.5), signed)):
        found = ratio("relative", f_z, 10.0, relative_baseline=4.0, **settings)
        assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("shift", [-1000.0, 0.0, 7.5])
def test_a_relative_baseline_knows_differences_alone(shift):
    assert ratio("relative", 12.0 + shift, 10.0 + shift, relative_baseline=4.0) == 0.6


@pytest.mark.parametrize("rule", RULES)
def test_without_a_finite_fitness_nothing_moves(rule):
    for bad in (math.nan, math.inf, -math.inf):
        for variance in ("fixed", "adaptive"):
            aes = AESRL(mean_rule=rule, variance_rule=variance, variance_least_p=0.0)
            for f_mean in (10.0, bad):
                assert update_rules.update(aes, bad, f_mean) == (0, math.inf)
        assert ratio(rule, 10.0, bad) == 1
    expected = 1.0 if rule == "full_move" else 0.5  # which does not read it
    assert ratio(rule, -1e9, math.nan, p_positive=0.5) == expected


@pytest.mark.parametrize("rule", RULES)
def test_no_ratio_is_a_negative_zero(rule):
    assert math.copysign(1, ratio(rule, 5.0, 10.0)) == 1


@pytest.mark.parametrize(
    ("p", "adaptive", "fixed", "printed_adaptive", "printed_fixed"),
    [
        (1, 1, 10, 1, 10),
        (0.5, 1, 10, 1, 10),
        (0.75, 1, 10, 1, 10),
        (0.2, 4, 10, 4, 10),
        (1e-3, 999, 10, 999, 10),
        (2**-11, math.inf, math.inf, 2047, 10),
        (0, math.inf, math.inf, math.inf, 10),
        (-0.5, math.inf, math.inf, math.inf, 10),
    ],
)
def test_what_the_past_weighs_in_the_variance(p, adaptive, fixed, printed_adaptive, printed_fixed):
    def weighs(rule: str, **settings: float) -> float:
        return update_rules.weight_of_past(AESRL(variance_rule=rule, **settings), p)

    assert weighs("adaptive") == pytest.approx(adaptive)
    assert weighs("fixed") == fixed
    assert weighs("adaptive", variance_least_p=0.0) == pytest.approx(printed_adaptive)
    assert weighs("fixed", variance_least_p=0.0) == printed_fixed
    assert weighs("success") == math.inf


def test_an_update_joins_both_rules():
    aes = AESRL(mean_rule="linear", fitness_range=4.0, variance_rule="adaptive")
    assert update_rules.update(aes, 10.8, 10.0) == pytest.approx((0.2, 4))
    aes = AESRL(mean_rule="full_move", variance_rule="fixed", variance_n=7.0)
    assert update_rules.update(aes, 9.0, 10.0) == (0, math.inf)


def factors(aes: AESRL, window: int, successes: list[int]) -> list[float]:
    history, found = np.full(window, -1), []
    for success in successes:
        history, factor = update_rules.variance_factor(aes, history, bool(success))
        found.append(factor)
    return found


def test_the_success_rule_looks_back_over_its_window():
    # full after 5; the last five of 1 0 0 0 0 0 | 1 | 1 | 0: 0, 1, 2, 2 successes;
    # one fifth is not above the threshold
    grows, shrinks = 1 / 0.99, 0.99
    expected = [1] * 5 + [shrinks, shrinks, grows, grows]
    assert factors(AESRL(), 5, [1, 0, 0, 0, 0, 0, 1, 1, 0]) == expected


def test_the_public_codes_success_rule_keeps_its_first_window():
    grows, shrinks = 1 / 0.5, 0.5
    aes = AESRL(success_factor=0.5, success_frozen=True)
    assert factors(aes, 5, [1, 1, 0, 0, 0] + [0] * 20) == [1] * 5 + [grows] * 20
    assert factors(aes, 5, [1, 0, 0, 0, 0] + [1] * 20) == [1] * 5 + [shrinks] * 20


@pytest.mark.parametrize(
    ("n_rl", "n_es", "p"),  # gain 50, desired 0.5
    [(1, 1, 0.5), (51, 49, 0), (49, 51, 1), (50.2, 49.8, 0.4), (1, 99, 1), (99, 1, 0)],
)
def test_the_share_of_trained_individuals_is_controlled(n_rl, n_es, p):
    assert update_rules.p_rl(n_rl, n_es, 50.0, 0.5) == pytest.approx(p, abs=1e-12)


def test_an_individual_is_trained_where_chance_is_below_p():
    assert update_rules.is_trained(502, 498, 50.0, 0.5, Drawn(0.399))  # p = 0.4
    assert not update_rules.is_trained(502, 498, 50.0, 0.5, Drawn(0.401))
    assert not update_rules.is_trained(9, 1, 50.0, 0.5, Drawn(0.0))  # p = 0
    assert update_rules.is_trained(1, 9, 50.0, 0.5, Drawn(1 - 2**-53))  # p = 1


@pytest.mark.parametrize("desired", [0.5, 0.1, 0.0, 1.0])
def test_the_share_settles_where_it_equals_the_probability(desired):
    random, counts = np.random.default_rng(0), [1, 1]
    for _ in range(5000):
        counts[not update_rules.is_trained(*counts, 50.0, desired, random)] += 1
    assert counts[0] / sum(counts) == pytest.approx((50 * desired + 0.5) / 51, abs=0.002)
