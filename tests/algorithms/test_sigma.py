"""A sigma that AMT grows by the paper's count, and rules by which it may also shrink."""

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Teacher, advance, make, make_es

from esac_mpi.algorithms import es, esac
from esac_mpi.operators import evolution

TESTED = {"transfer": "tested", "transfer_episodes": 4, "transfer_wins": 99}
TESTED |= {"gradient_interval": 1, "p_sac_annealed": False}


@pytest.mark.parametrize("phases", [True, False])
def test_amt_grows_sigma_by_the_papers_count_of_phases(world, phases):
    settings = {"amt_trigger": "generation", "amt_clip": 1e-3, "sac_phases": phases}
    params, state, env = make(world, **settings, gradient_interval=1)
    learner = Teacher(np.zeros(LAYOUT.d, np.float32))
    for k in range(1, 8):
        row = advance(world, params, state, env, learner=learner)
        assert row["sac_phase"] == phases
        phases_of_the_paper = k / 50 + 216 * (1 - np.exp(-k / 1200))
        assert state.sigma == pytest.approx(0.3 + 1e-3 * phases_of_the_paper, rel=1e-12)
    assert state.tuning_multiplier == pytest.approx(state.sigma / 0.3)


@pytest.mark.parametrize(("share", "end"), [(0.0, 0.06), (1.0, 1.5)])
def test_sigma_stays_between_floor_and_ceiling(world, monkeypatch, share, end):
    monkeypatch.setattr(evolution, "success_share", lambda members, centre: share)
    monkeypatch.setattr(evolution, "FIFTH_RATE", 9.0)
    params, state, env = make(world, **TESTED, sigma_rule="one_fifth")
    advance(world, params, state, env, 5, Teacher(np.zeros(LAYOUT.d, np.float32)))
    assert state.sigma == pytest.approx(end, rel=1e-12)


def test_the_one_fifth_rule_counts_members_around_theta_es(world):
    params, state, env = make(world, **TESTED, sigma_rule="one_fifth")
    learner, sigma, shares = Teacher(np.zeros(LAYOUT.d, np.float32)), 0.3, set()
    for k in range(1, 9):
        row = advance(world, params, state, env, learner=learner)
        if k > 1:
            members, centre = row["fitness"][row["parent"] == 0], row["trial_theta_es"]
            share = np.mean([one > other for one in members for other in centre])
            sigma *= np.exp(0.1 * (share - 0.2) / 0.8)
            shares.add(share)
        assert state.sigma == pytest.approx(sigma, rel=1e-12)
    assert len(shares) > 2


def test_an_unstable_test_leaves_sigma_as_it_is(world):
    params, state, _ = make(world, **TESTED, sigma_rule="one_fifth")
    trials = np.array([[1.0, np.nan], [1.0, 1.0]])
    found = type("Found", (), {"trials": trials, "fitness": np.zeros(10), "returns": np.zeros(10)})
    assert esac.one_fifth_step(params.config.esac, state, found) == 0.0
    assert evolution.adapt_sigma(0.3, 0.3, np.zeros(10), trials[0]) == 0.3


def test_es_tests_theta_es_every_fifth_generation(world):
    _, _, env = make(world)
    table = {"es__population_size": 10, "es__sigma": 0.3}
    fixed, plain = make_es(world, **table)
    params, state = make_es(world, **table, es__sigma_rule="one_fifth")
    for k in range(1, 7):
        row, timing = es.generation(params, state, world, env)
        other, _ = es.generation(fixed, plain, world, env)
        assert row["sigma"] == 0.3 if k < 6 else row["sigma"] != 0.3
        assert np.isfinite(row["trial_theta_es"]).all() == (k == 5)
        assert np.isfinite(timing["trial_seconds"]).all() == (k == 5)
        if k < 6:
            np.testing.assert_array_equal(row["fitness"], other["fitness"])
        if k == 5:
            share = np.mean([one > c for one in row["fitness"] for c in row["trial_theta_es"]])
            assert state.sigma == pytest.approx(0.3 * np.exp(0.1 * (share - 0.2) / 0.8), rel=1e-12)
            np.testing.assert_array_equal(state.theta_es, plain.theta_es)
    assert (other["sigma"], "trial_theta_es" in other) == (0.3, False)
    assert state.counters.env_steps_population == plain.counters.env_steps_population + 5 * 10
