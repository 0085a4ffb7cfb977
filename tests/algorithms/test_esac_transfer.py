"""theta_sac held against theta_es by a test: when, what it plays and decides; Adam after it."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Before, Teacher, Track, advance, make

from esac_mpi.algorithms import esac, esac_transfer
from esac_mpi.algorithms.esac_state import CENTRE, CHILD, SAC_COPY
from esac_mpi.config import ESAC
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import play

PLAIN = {"winner_pull": 0.0, "sac_copies": 0, "p_sac_annealed": False}
PLAIN |= {"crossover": "off", "amt_clip": 0.0}
TESTED = {"transfer": "tested", **PLAIN}
EACH = {"gradient_interval": 1}


class Upwards(Track):
    """Pay the first action, and some chance of the start state: -10 to 10 an episode."""

    def reset(self, seed):
        observation = super().reset(seed)
        self.chance = float(observation[0])
        return observation

    def step(self, action):
        observation, _, terminated, truncated = super().step(action)
        return observation, float(action[0]) + 0.1 * self.chance, terminated, truncated


def going(bias):
    """Return a policy whose first action is tanh(bias) in every state."""
    theta = np.zeros(LAYOUT.d, np.float32)
    theta[-3] = bias
    return theta


def trial_returns(params, k, theta, episodes):
    env, policy = Upwards(), make_policy(params, Upwards()).set(theta)
    starts = [noise.integer(0, Purpose.TRIAL, k, block=number) for number in range(episodes)]
    return [play(env, policy, start).episodic_return for start in starts]


@pytest.mark.parametrize(("bias", "better"), [(2.0, True), (-2.0, False)])
def test_theta_sac_is_adopted_where_its_episodes_are_better(world, bias, better):
    params, state, _ = make(world, **TESTED, **EACH, transfer_episodes=4)
    other, plain, _ = make(world, **PLAIN, **EACH)
    learner, env = Teacher(going(bias)), Upwards()
    row = advance(world, params, state, env, learner=learner)  # the first phase ends in it
    advance(world, other, plain, Upwards(), learner=Teacher(going(bias)))
    assert row["adopted"] == 0
    assert np.isnan([row["trial_theta_es"], row["trial_sac"]]).all()
    mine, its = (trial_returns(params, 2, one, 4) for one in (state.theta_es, state.theta_sac))
    row = advance(world, params, state, env, learner=learner)
    advance(world, other, plain, Upwards(), learner=Teacher(going(bias)))
    assert (row["trial_theta_es"].tolist(), row["trial_sac"].tolist()) == (mine, its)
    assert row["adopted"] == better == (np.mean(its) > np.mean(mine) + 1)
    np.testing.assert_array_equal(state.theta_es, state.theta_sac if better else plain.theta_es)
    if better:
        assert row["es_step_norm"] > 0  # of the step that was not made
        assert row["update_norm"] == row["distance_to_sac"]


@pytest.mark.parametrize("moments", ["reset", "kept"])
def test_after_an_adoption_adam_begins_anew_or_goes_on(world, moments):
    settings = {"transfer_moments": moments, "transfer_interval": 9}
    params, state, _ = make(world, **TESTED, **EACH, **settings)
    learner, env, m, v = Teacher(going(2.0)), Upwards(), np.zeros(LAYOUT.d), np.zeros(LAYOUT.d)
    for k in range(1, 5):
        before = Before(state)
        row = advance(world, params, state, env, learner=learner)
        gradient = before.gradient(evolution.centered_ranks(row["fitness"]))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        first = 3 if moments == "reset" and k > 2 else 1  # generation of Adam's first step
        steps = k - first + 1
        step = 0.05 * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)
        assert row["adopted"] == (k == 2)
        if k == 2:
            np.testing.assert_array_equal(state.theta_es, going(2.0))
            m, v = m * (moments == "kept"), v * (moments == "kept")
        else:
            np.testing.assert_allclose(state.theta_es, before.theta + step, atol=2e-6)
        np.testing.assert_allclose(state.adam_m, m, atol=1e-6)
        np.testing.assert_allclose(state.adam_v, v, atol=1e-7)
        if k == 3 and moments == "reset":  # the learning rate in every direction
            sure = np.abs(gradient) > 1e-5
            moved = (state.theta_es - going(2.0))[sure]
            np.testing.assert_allclose(moved, 0.05 * np.sign(gradient[sure]), rtol=2e-3)
    assert state.adam_from == (2 if moments == "reset" else 0)


@pytest.mark.parametrize(
    ("settings", "bias", "trials"),
    [
        (EACH, -2.0, [2, 3, 4, 5, 6, 7, 8, 9]),  # after every phase
        # once after each of the phases of 3 and 6, and not of 9
        ({"gradient_interval": 3}, -2.0, [4, 7]),
        ({"gradient_interval": 3, "learner_lag": 2}, -2.0, [6, 9]),  # which enter in 5 and 8
        (EACH | {"transfer_interval": 3}, 2.0, [2, 5, 8]),  # adopted in each
        (EACH | {"transfer_interval": 3}, -2.0, [2, 3, 4, 5, 6, 7, 8, 9]),  # never adopted
        (EACH | {"transfer_interval": 99}, 2.0, [2]),
    ],
)
def test_a_test_comes_after_a_phase_and_not_too_often(world, settings, bias, trials):
    params, state, _ = make(world, **TESTED, **settings, transfer_episodes=2, lr_es=1e-6)
    learner, env, found = Teacher(going(bias)), Upwards(), []
    for k in range(1, 10):
        learner.theta = going(bias + 0.1 * k * np.sign(bias))  # better, or worse, than it ever was
        row = advance(world, params, state, env, learner=learner)
        tried = np.isfinite(row["trial_sac"])
        assert tried.all() == tried.any()
        found += [k] if tried.all() else []
        assert row["adopted"] == (tried.all() and bias > 0)
    assert found == trials
    world.end_background()


@pytest.mark.parametrize(
    ("wins", "transferred"),
    [(1, [2, 3, 5, 6, 7, 8, 9, 10]), (2, [3, 6, 8, 10]), (3, [7, 10]), (6, [10]), (7, [])],
)
def test_theta_sac_is_adopted_once_it_has_won_so_often_in_a_row(world, wins, transferred):
    """Against this theta_es."""
    settings = {"transfer_wins": wins, "transfer_episodes": 2, "lr_es": 1e-6}
    params, state, _ = make(world, **TESTED, **EACH, **settings)
    learner, env, found = Teacher(going(0.5)), Upwards(), []
    for k in range(1, 11):
        row = advance(world, params, state, env, learner=learner)
        if row["adopted"]:
            found.append(k)
            np.testing.assert_array_equal(state.theta_es, going(0.5 + 0.1 * (k - 2)))
        # tried in k + 2: the trial of 4 is lost
        learner.theta = going(-1.0 if k == 2 else 0.5 + 0.1 * k)
    assert found == transferred
    world.end_background()


@pytest.mark.parametrize(
    ("theta_sac", "member", "at_once", "start", "expected"),
    [
        ([11, 12, 13], 11.9, True, -7.0, (0, True, 12.0)),  # above the mean of every other member
        ([11, 12, 13], 12.0, True, -7.0, (2, False, -7.0)),
        ([11, 12, 13], 11.9, False, -7.0, (2, False, -7.0)),
        ([0, 30, 60], 11.9, True, -7.0, (0, False, -7.0)),  # within twice the standard error
        # theta_es has gained 10, as it leads by
        ([11, 12, 13], 11.9, True, -8.0, (2, False, -8.0)),
        ([11, 12, 13], 11.9, True, np.nan, (0, True, 12.0)),  # it began at 2, the finite ones' mean
        ([3, 4, 5], 3.9, True, np.nan, (0, True, 4.0)),
    ],
)
def test_one_clear_test_is_enough(theta_sac, member, at_once, start, expected):
    """No member reaches theta_sac, and its lead is more than theta_es, at 2, has gained."""
    table = ESAC(transfer="tested", transfer_wins=3, transfer_at_once=at_once)
    parents = np.array([CENTRE, SAC_COPY, CHILD, CENTRE])
    transfer = SimpleNamespace(trials_won=1, start_return=start)
    state = SimpleNamespace(parents=parents, transfer=transfer)
    found = SimpleNamespace(  # the copies' are 50 and 60
        returns=np.array([1.0, 1.5, 50.0, 60.0, member, 2.0, np.nan, 3.5]),
        trials=np.array([[1.0, 2.0, 3.0], theta_sac], float),
    )
    assert esac_transfer.judge(table, state, found) == esac_transfer.Verdict(*expected)


def test_without_adam_an_adoption_resets_no_moments(world):
    states, settings = [], {"optimiser": "sgd", "transfer_interval": 9}
    for moments in ("kept", "reset"):
        params, state, _ = make(world, **TESTED, **EACH, **settings, transfer_moments=moments)
        learner, env, adopted = Teacher(going(2.0)), Upwards(), []
        for _ in range(4):
            adopted.append(advance(world, params, state, env, learner=learner)["adopted"])
        assert adopted == [0, 1, 0, 0]
        states.append(state)
    assert states[0].adam_from == states[1].adam_from == 0
    np.testing.assert_array_equal(states[0].theta_es, states[1].theta_es)


def test_an_adoption_is_followed_by_no_pull(world):
    settings = {**TESTED, **EACH, "winner_pull": 0.25, "winner_fraction": 0.2}
    params, state, _ = make(world, **settings)
    row = advance(world, params, state, Upwards(), 2, Teacher(going(2.0)))
    assert (row["adopted"], row["winners"].size) == (1, 2)
    np.testing.assert_array_equal(state.theta_es, going(2.0))


def test_an_unstable_trial_is_counted_and_decides(world):
    class Falling(Upwards):
        def step(self, action):
            observation, reward, terminated, truncated = super().step(action)
            return observation, np.nan if action[0] > 0.9 else reward, terminated, truncated

    params, state, _ = make(world, **TESTED, **EACH, transfer_episodes=3, sigma=0.01)
    learner, env = Teacher(going(2.0)), Falling()
    row = advance(world, params, state, env, 2, learner)
    assert np.isnan(row["trial_sac"]).all()
    assert np.isfinite(row["trial_theta_es"]).all()
    assert (row["adopted"], state.counters.unstable_episodes) == (0, 3)
    state.theta_es[:] = going(1.474)  # tanh is 0.9 there: of its members some stand
    state.theta_sac[:] = learner.theta = going(1.0)
    row = advance(world, params, state, env, learner=learner)
    assert np.isnan(row["trial_theta_es"]).all()
    assert row["adopted"] == 1


@pytest.mark.parametrize(
    ("address", "note"),
    [
        ({"purpose": Purpose.EPISODE, "member": 3}, "member 3"),
        ({"purpose": Purpose.TRIAL, "block": 1}, "trial episode 1"),
    ],
)
def test_an_error_names_its_member_or_trial(world, address, note):
    class Breaking(Upwards):
        def reset(self, seed):
            if seed == noise.integer(0, generation=2, **address):
                raise FloatingPointError
            return super().reset(seed)

    params, state, env = make(world, **TESTED, **EACH, transfer_episodes=2)
    advance(world, params, state, env, learner=Teacher(going(2.0)))
    with pytest.raises(FloatingPointError) as error:
        advance(world, params, state, Breaking(), learner=Teacher(going(2.0)))
    assert error.value.__notes__ == [f"in generation 2, {note} (seed 0)"]


def test_trials_are_expected_and_timed_beside_the_members(world, monkeypatch):
    """A trial is expected to last as long as an episode of a member."""
    params, state, env = make(world, **TESTED, **EACH, transfer_episodes=2, fitness_episodes=3)
    dealt = Mock(wraps=world.map)
    monkeypatch.setattr(world, "map", dealt)
    for tried in (False, True):
        _, timing = esac.generation(params, state, world, env, Teacher(going(2.0)))
        trials = timing["trial_seconds"]
        assert (trials.shape, timing["member_seconds"].shape) == ((4,), (10,))
        assert (trials > 0).all() == tried == np.isfinite(trials).all()
    # of the first nothing is known
    expected = [call.args[3].tolist() for call in dealt.call_args_list]
    assert expected == [[1.0] * 10, [30.0] * 10 + [10.0] * 4]
