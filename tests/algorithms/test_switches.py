"""What each switch of ESAC changes, against the plain formulas over whole vectors; sigma's."""

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Before, Teacher, advance, make, make_es, returns

from esac_mpi.algorithms import es, esac, esac_transfer
from esac_mpi.learners.replay import Replay
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose

PLAIN = {"optimiser": "sgd", "winner_pull": 0.0}  # theta_es moves by lr * gradient alone


def ranks(row):
    return evolution.centered_ranks(row["fitness"])


@pytest.mark.parametrize(
    "settings",
    [
        {"sac_copy_noise": False, "sac_copies": 0},
        {"winner_selection": "hard", "crossover": "off"},
        {"winner_selection": "uniform", "winner_fraction": 1.0, "crossover": "off"},
        {"gradient": "displacement", "sac_copies": 0, "crossover": "off"},
        {"gradient": "displacement_clipped", "sac_copies": 0, "crossover": "off"},
        {"sac_phases": False, "p_sac_initial": 0.0, "p_sac_final": 0.0},
        {"p_sac_annealed": False, "p_sac_final": 1.0},
        {"resimulated": "winners"},
        {"resimulated": "sample", "learner_lag": 2},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_switch_with_nothing_to_act_on_changes_no_bit(world, settings):
    switch, *rest = settings
    states = []
    for chosen in (settings, {name: settings[name] for name in rest}):
        params, state, env = make(world, **chosen)
        learner = Teacher(np.full(LAYOUT.d, 0.01, np.float32))
        learner.replay = Replay(1000, 3, 3)
        advance(world, params, state, env, 6, learner)
        states.append(state)
    for name in ("theta_es", "adam_m", "adam_v", "theta_sac", "children", "sigma"):
        one, other = (getattr(state, name) for state in states)
        np.testing.assert_array_equal(one, other, err_msg=f"{switch}: {name}")


@pytest.mark.parametrize(
    ("settings", "sigmas", "slots"),
    [
        ({"sac_copy_noise": False}, [0.3, 0.3, 0, 0.3, 0.3], [0, 1, 3, 4]),  # that is theta_sac
        ({"winner_selection": "hard"}, [0, 0, 0.3, 0.3, 0.3], [2, 3, 4]),  # shielded from mutation
        ({"gradient_members": "centre"}, [0.3] * 5, [3, 4]),
    ],
)
def test_who_is_not_perturbed_or_chosen_leaves_the_gradient(world, settings, sigmas, slots):
    params, state, env = make(world, **settings, **PLAIN)
    advance(world, params, state, env)
    before = Before(state)
    assert before.kinds == [2, 3, 1, 0, 0]
    row, offspring = advance(world, params, state, env), before.offspring(sigmas)
    np.testing.assert_array_equal(row["fitness"], returns(params, env, 2, offspring))
    expected = before.theta + 0.05 * before.gradient(ranks(row), slots)
    np.testing.assert_allclose(state.theta_es, expected, atol=1e-6)
    assert np.linalg.norm(state.theta_es - before.theta) > 0.1
    assert row["update_norm"] == pytest.approx(row["es_step_norm"], rel=1e-6)  # without a pull
    for child in range(2):  # made of the winner as it was evaluated, and of theta_es
        winner = offspring[row["winners"][child]]
        taken = state.children[child] != state.theta_es
        assert taken.any()
        np.testing.assert_array_equal(state.children[child][taken], winner[taken])


def test_the_pull_goes_to_the_winners_as_they_were_evaluated(world):
    settings = {"sac_copy_noise": False, "winner_selection": "hard", "optimiser": "sgd"}
    params, state, env = make(world, **settings, winner_fraction=0.6, winner_pull=0.5)
    kinds = set()
    for _ in range(4):
        before = Before(state)
        row = advance(world, params, state, env)
        noisy = [slot for slot, kind in enumerate(before.kinds) if kind == esac.CENTRE]
        offspring = before.offspring([0.3 if slot in noisy else 0 for slot in range(5)])
        stepped = before.theta + 0.05 * before.gradient(ranks(row), noisy)
        mean = np.mean([offspring[i] for i in row["winners"]], axis=0)
        np.testing.assert_allclose(state.theta_es, (stepped + mean) / 2, atol=2e-6)
        kinds |= set(row["parent"][row["winners"]].tolist())
    assert kinds >= {0, 1, 2}


def test_uniform_winners_are_drawn_and_then_ordered(world):
    params, state, env = make(world, winner_selection="uniform", sac_phases=False)
    others = 0
    for k in range(1, 9):
        row = advance(world, params, state, env)
        winners, drawn = row["winners"], noise.generator(0, Purpose.WINNERS, k).permutation(10)[:4]
        assert set(winners.tolist()) == set(drawn.tolist())
        assert (np.diff(row["fitness"][winners]) <= 0).all()
        others += set(winners) != set(evolution.select_winners(row["fitness"], 4))
    assert others >= 6  # of 8: by chance they are the best in one of 210


def test_uniform_winners_are_drawn_among_the_finite(world):
    params, _, _ = make(world, winner_selection="uniform")
    fitness = np.array([1.0, np.nan, 3.0, np.inf, 5.0, 6.0, np.nan, 8.0, 9.0, -np.inf])
    drawn = [esac.select(params, k, fitness) for k in range(200)]
    assert {winners.size for winners in drawn} == {4}
    counts, expected = np.bincount(np.concatenate(drawn), minlength=10), 200 * 4 / 6
    assert counts[[1, 3, 6, 9]].tolist() == [0] * 4
    most = 4 * np.sqrt(expected / 3)  # four standard deviations
    assert np.abs(counts[[0, 2, 4, 5, 7, 8]] - expected).max() < most


@pytest.mark.parametrize("gradient", ["displacement", "displacement_clipped"])
@pytest.mark.parametrize("far", [0.0, 0.2])
def test_displacements_are_weighed_in_place_of_noise(world, gradient, far):
    params, state, env = make(world, gradient=gradient, sac_copy_noise=False, **PLAIN)
    state.theta_sac[:] += far
    advance(world, params, state, env)
    before = Before(state)
    row = advance(world, params, state, env)
    total = np.zeros(LAYOUT.d)
    for i, offspring in enumerate(before.offspring([0.3, 0.3, 0, 0.3, 0.3])):
        displacement = (offspring - before.theta).astype(float) / 0.3
        if gradient == "displacement_clipped" and before.kinds[i // 2] != esac.CENTRE:
            displacement *= min(1, np.sqrt(LAYOUT.d) / np.linalg.norm(displacement))
        total += ranks(row)[i] * displacement
    np.testing.assert_allclose(state.theta_es, before.theta + 0.05 * total / (10 * 0.3), atol=1e-6)
    plain = before.theta + 0.05 * before.gradient(ranks(row))
    assert np.linalg.norm(state.theta_es - plain) > 0.1


def test_theta_sac_is_adopted_where_its_copies_outscore(world):
    adopted = set()
    for seed in range(6):
        params, state, env = make(world, transfer="means", winner_pull=0.0, seed=seed)
        other, plain, there = make(world, winner_pull=0.0, seed=seed)
        row = advance(world, params, state, env)
        advance(world, other, plain, there)
        better = row["fitness"][4:6].mean() > np.delete(row["fitness"], [4, 5]).mean()
        np.testing.assert_array_equal(state.theta_es, state.theta_sac if better else plain.theta_es)
        np.testing.assert_array_equal(state.adam_m, plain.adam_m)
        adopted.add(bool(better))
    assert adopted == {True, False}


@pytest.mark.parametrize(
    ("fitness", "better"),
    [
        ([9, 9, 3, 1, 1, 2], True),
        ([0, 0, 3, 0, 1, 2], False),  # equal
        ([0, 0, 3, np.nan, 1, 2], True),
        ([0, 0, np.nan, np.nan, 1, 2], False),
        ([0, 0, 1, 2, np.nan, -np.inf], True),
    ],
)
def test_copies_outscore_by_their_mean_finite_return(fitness, better):
    parents = np.array([esac.CHILD, esac.SAC_COPY, esac.CENTRE])
    assert esac_transfer.copies_lead(parents, np.array(fitness, float)) == better


def test_no_sac_phase_ever_begins_if_told(world):
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    params, state, env = make(world, sac_phases=False, gradient_interval=1, gate="normal")
    for _ in range(6):
        row = advance(world, params, state, env, learner=learner)
        assert (row["p_sac"], row["sac_phase"]) == (0, 0)
    assert (learner.phases, state.counters.learner_phases, state.sigma) == ([], 0, 0.3)


def test_p_sac_stays_where_it_is_not_annealed(world):
    settings = {"p_sac_initial": 0.75, "p_sac_decay": 1.0}
    made = make(world, p_sac_annealed=False, **settings)
    assert [advance(world, *made)["p_sac"] for _ in range(4)] == [0.75] * 4
    found = advance(world, *make(world, **settings), 4)["p_sac"]
    assert found == pytest.approx(0.1 + 0.65 * np.exp(-4))


def test_a_shaping_changes_the_gradient_and_not_who_wins(world):
    params, state, env = make(world, fitness_shaping="standardised", amt_input="rank", **PLAIN)
    before = Before(state)
    row = advance(world, params, state, env)
    shaped = (row["fitness"] - row["fitness"].mean()) / row["fitness"].std()
    expected = before.theta + 0.05 * before.gradient(shaped)
    np.testing.assert_allclose(state.theta_es, expected, atol=1e-6)
    assert row["winners"].tolist() == evolution.select_winners(row["fitness"], 4).tolist()


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
    table = {"population_size": 10, "sigma": 0.3}
    fixed, plain = make_es(world, **table)
    params, state = make_es(world, **table, sigma_rule="one_fifth")
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
