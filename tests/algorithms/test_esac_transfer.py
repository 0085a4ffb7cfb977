"""theta_sac held against theta_es by a test: when, what it plays, what it decides.

And Adam's moments after it.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Teacher, Track, advance, epsilon, make

from esac_mpi.algorithms import esac, esac_transfer
from esac_mpi.algorithms.esac_state import CENTRE, CHILD, SAC_COPY
from esac_mpi.config import ESAC
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import play

PLAIN = {
    "esac__winner_pull": 0.0, "esac__sac_copies": 0, "esac__p_sac_annealed": False,
    "esac__crossover": "off", "esac__amt_clip": 0.0,
}  # fmt: skip
TESTED = {"esac__transfer": "tested", **PLAIN}
EACH = {"esac__gradient_interval": 1}


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
    return [
        play(env, policy, noise.integer(0, Purpose.TRIAL, k, block=number)).episodic_return
        for number in range(episodes)
    ]


def noise_gradient(row, k):
    ranks = evolution.centered_ranks(row["fitness"])
    return sum((ranks[2 * j] - ranks[2 * j + 1]) * epsilon(k, j) for j in range(5)) / (10 * 0.3)


@pytest.mark.parametrize(("bias", "better"), [(2.0, True), (-2.0, False)])
def test_theta_sac_is_adopted_exactly_where_its_unperturbed_episodes_are_better(
    world, bias, better
):
    params, state, _ = make(world, **TESTED, **EACH, esac__transfer_episodes=4)
    other, plain, _ = make(world, **PLAIN, **EACH)
    learner, env = Teacher(going(bias)), Upwards()
    row = advance(world, params, state, env, learner=learner)  # the first phase ends in it
    advance(world, other, plain, Upwards(), learner=Teacher(going(bias)))
    assert row["adopted"] == 0
    assert np.isnan([row["trial_theta_es"], row["trial_sac"]]).all()
    tried = (
        trial_returns(params, 2, state.theta_es, 4),
        trial_returns(params, 2, state.theta_sac, 4),
    )
    row = advance(world, params, state, env, learner=learner)
    advance(world, other, plain, Upwards(), learner=Teacher(going(bias)))
    assert (row["trial_theta_es"].tolist(), row["trial_sac"].tolist()) == tried
    assert row["adopted"] == better == (np.mean(tried[1]) > np.mean(tried[0]) + 1)
    np.testing.assert_array_equal(state.theta_es, state.theta_sac if better else plain.theta_es)
    if better:
        assert row["es_step_norm"] > 0  # of the step that was not made
        assert row["update_norm"] == row["distance_to_sac"]


@pytest.mark.parametrize("moments", ["reset", "kept"])
def test_after_an_adoption_adam_begins_anew_or_goes_on(world, moments):
    params, state, _ = make(
        world, **TESTED, **EACH, esac__transfer_moments=moments, esac__transfer_interval=9
    )
    learner, env, m, v = Teacher(going(2.0)), Upwards(), np.zeros(LAYOUT.d), np.zeros(LAYOUT.d)
    for k in range(1, 5):
        theta = state.theta_es.astype(float)
        row = advance(world, params, state, env, learner=learner)
        gradient = noise_gradient(row, k)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        first = 3 if moments == "reset" and k > 2 else 1  # generation of Adam's first step
        steps = k - first + 1
        step = 0.05 * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)
        assert row["adopted"] == (k == 2)
        if k == 2:
            np.testing.assert_array_equal(state.theta_es, going(2.0))
            m, v = m * (moments == "kept"), v * (moments == "kept")
        else:
            np.testing.assert_allclose(state.theta_es, theta + step, atol=2e-6)
        np.testing.assert_allclose(state.adam_m, m, atol=1e-6)
        np.testing.assert_allclose(state.adam_v, v, atol=1e-7)
    assert state.adam_from == (2 if moments == "reset" else 0)


def test_the_first_step_after_a_reset_is_the_learning_rate_in_every_direction(world):
    params, state, _ = make(
        world, **TESTED, **EACH, esac__transfer_interval=9, esac__transfer_moments="reset"
    )
    learner, env = Teacher(going(2.0)), Upwards()
    for _ in range(2):
        advance(world, params, state, env, learner=learner)
    row = advance(world, params, state, env, learner=learner)
    gradient = noise_gradient(row, 3)
    sure = np.abs(gradient) > 1e-5
    np.testing.assert_allclose(
        (state.theta_es - going(2.0))[sure], 0.05 * np.sign(gradient[sure]), rtol=2e-3
    )


@pytest.mark.parametrize(
    ("settings", "bias", "trials"),
    [
        (EACH, -2.0, [2, 3, 4, 5, 6, 7, 8, 9]),  # after every phase
        (
            {"esac__gradient_interval": 3},
            -2.0,
            [4, 7],
        ),  # once after each of the phases of 3 and 6, and not of 9
        (
            {"esac__gradient_interval": 3, "esac__learner_lag": 2},
            -2.0,
            [6, 9],
        ),  # which enter in 5 and 8
        (EACH | {"esac__transfer_interval": 3}, 2.0, [2, 5, 8]),  # adopted in each
        (EACH | {"esac__transfer_interval": 3}, -2.0, [2, 3, 4, 5, 6, 7, 8, 9]),  # never adopted
        (EACH | {"esac__transfer_interval": 99}, 2.0, [2]),
    ],
)
def test_a_test_comes_after_a_phase_and_after_an_adoption_some_phases_later(
    world, settings, bias, trials
):
    params, state, _ = make(
        world, **TESTED, **settings, esac__transfer_episodes=2, esac__lr_es=1e-6
    )
    learner, env, found = Teacher(going(bias)), Upwards(), []
    for k in range(1, 10):
        learner.theta = going(bias + 0.1 * k * np.sign(bias))  # better, or worse, than it ever was
        row = advance(world, params, state, env, learner=learner)
        if np.isfinite(row["trial_sac"]).all():
            found.append(k)
            assert row["adopted"] == (bias > 0)
        else:
            assert np.isnan(row["trial_sac"]).all()
            assert row["adopted"] == 0
    assert found == trials
    world.end_background()


@pytest.mark.parametrize(
    ("wins", "transferred"),
    [(1, [2, 3, 5, 6, 7, 8, 9, 10]), (2, [3, 6, 8, 10]), (3, [7, 10]), (6, [10]), (7, [])],
)
def test_theta_sac_is_adopted_once_it_has_won_so_many_trials_in_a_row_against_this_theta_es(
    world, wins, transferred
):
    params, state, _ = make(
        world,
        **TESTED,
        **EACH,
        esac__transfer_wins=wins,
        esac__transfer_episodes=2,
        esac__lr_es=1e-6,
    )
    learner, env, found = Teacher(going(0.5)), Upwards(), []
    for k in range(1, 11):
        row = advance(world, params, state, env, learner=learner)
        if row["adopted"]:
            found.append(k)
            # the one that was tried
            np.testing.assert_array_equal(state.theta_es, going(0.5 + 0.1 * (k - 2)))
        # tried in k + 2: the trial of 4 is lost
        learner.theta = going(-1.0 if k == 2 else 0.5 + 0.1 * k)
    assert found == transferred
    world.end_background()


@pytest.mark.parametrize(
    ("theta_sac", "member", "at_once", "expected"),
    [
        ([11, 12, 13], 11.9, True, (0, True)),  # its mean is above every member's return
        ([11, 12, 13], 12.0, True, (2, False)),
        ([11, 12, 13], 11.9, False, (2, False)),
        ([0, 30, 60], 11.9, True, (0, False)),  # by less than twice the standard error
    ],
)
def test_one_test_is_enough_where_no_member_reaches_theta_sac(theta_sac, member, at_once, expected):
    table = ESAC(transfer="tested", transfer_wins=3, transfer_at_once=at_once)
    state = SimpleNamespace(parents=np.array([CENTRE, SAC_COPY, CHILD]), trials_won=1)
    found = SimpleNamespace(
        returns=np.array([1.0, member, 50.0, 60.0, np.nan, 2.0]),  # the copies' are 50 and 60
        trials=np.array([[1.0, 2.0, 3.5], theta_sac], float),
    )
    assert esac_transfer.judge(table, state, found) == expected


def test_without_adam_there_are_no_moments_that_an_adoption_could_reset(world):
    states = []
    for moments in ("kept", "reset"):
        settings = {
            "esac__optimiser": "sgd",
            "esac__transfer_moments": moments,
            "esac__transfer_interval": 9,
        }
        params, state, _ = make(world, **TESTED, **EACH, **settings)
        rows = [
            advance(world, params, state, env, learner=Teacher(going(2.0)))
            for env in [Upwards()] * 4
        ]
        assert [row["adopted"] for row in rows] == [0, 1, 0, 0]
        states.append(state)
    assert states[0].adam_from == states[1].adam_from == 0
    np.testing.assert_array_equal(states[0].theta_es, states[1].theta_es)


def test_an_adoption_is_followed_by_no_pull(world):
    params, state, _ = make(
        world, **{**TESTED, "esac__winner_pull": 0.25}, **EACH, esac__winner_fraction=0.2
    )
    learner, env = Teacher(going(2.0)), Upwards()
    advance(world, params, state, env, learner=learner)
    row = advance(world, params, state, env, learner=learner)
    assert (row["adopted"], row["winners"].size) == (1, 2)
    np.testing.assert_array_equal(state.theta_es, going(2.0))


def test_an_unstable_trial_is_counted_and_decides(world):
    class Falling(Upwards):
        def step(self, action):
            observation, reward, terminated, truncated = super().step(action)
            return observation, np.nan if action[0] > 0.9 else reward, terminated, truncated

    params, state, _ = make(world, **TESTED, **EACH, esac__transfer_episodes=3, esac__sigma=0.01)
    learner, env = Teacher(going(2.0)), Falling()
    advance(world, params, state, env, learner=learner)
    row = advance(world, params, state, env, learner=learner)
    assert np.isnan(row["trial_sac"]).all()
    assert np.isfinite(row["trial_theta_es"]).all()
    assert (row["adopted"], state.counters.unstable_episodes) == (0, 3)
    state.theta_es[:] = going(2.0)
    state.theta_sac[:] = going(1.0)
    learner.theta = going(1.0)  # now the other one falls
    state.theta_es[-3] = 1.474  # tanh is 0.9 there: of its members some stand
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
def test_an_error_names_the_member_or_the_trial_that_it_came_up_in(world, address, note):
    class Breaking(Upwards):
        def reset(self, seed):
            if seed == noise.integer(0, generation=2, **address):
                raise FloatingPointError
            return super().reset(seed)

    params, state, env = make(world, **TESTED, **EACH, esac__transfer_episodes=2)
    advance(world, params, state, env, learner=Teacher(going(2.0)))
    with pytest.raises(FloatingPointError) as error:
        advance(world, params, state, Breaking(), learner=Teacher(going(2.0)))
    assert error.value.__notes__ == [f"in generation 2, {note} (seed 0)"]


def test_a_trial_is_expected_to_last_as_long_as_an_episode_of_a_member(world, monkeypatch):
    params, state, env = make(
        world, **TESTED, **EACH, esac__transfer_episodes=2, esac__fitness_episodes=3
    )
    honest, seen = world.map, []
    monkeypatch.setattr(
        world,
        "map",
        lambda work, count, columns, expected: (
            seen.append(expected) or honest(work, count, columns)
        ),
    )
    for _ in range(2):
        advance(world, params, state, env, learner=Teacher(going(2.0)))
    assert seen[0].tolist() == [1.0] * 10  # nothing is known of them
    assert seen[1].tolist() == [30.0] * 10 + [10.0] * 4


def test_the_times_of_trials_are_told_apart_from_the_members(world):
    params, state, env = make(world, **TESTED, **EACH, esac__transfer_episodes=2)
    for tried in (False, True):
        _, timing = esac.generation(params, state, world, env, Teacher(going(2.0)))
        assert (timing["trial_seconds"].shape, timing["member_seconds"].shape) == ((4,), (10,))
        assert (
            (timing["trial_seconds"] > 0).all()
            == tried
            == np.isfinite(timing["trial_seconds"]).all()
        )
