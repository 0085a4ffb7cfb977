"""OpenAI-ES's options, as the whole algorithm has them, against the plain formulas."""

from types import SimpleNamespace

import numpy as np
import pytest
from esac_by_hand import make_es as make
from toy_tasks import Noted, Quadratic

from esac_mpi import config
from esac_mpi.algorithms import es
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout, Normaliser
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import ThetaNotFinite, play
from esac_mpi.training import evaluation
from esac_mpi.training.active_run import Job


class Silent(Noted):
    """No rewards: all returns are equal, and the gradient is zero."""

    def step(self, action):
        observation, _, terminated, truncated = super().step(np.zeros(2))
        return observation, 0.0, terminated, truncated


def epsilons(k, slots):
    """Return the noise of six parameters in a generation [slots, 6]."""
    return np.array([noise.normal(0, Purpose.MUTATION, k, slot, 0, 6) for slot in range(slots)])


def evaluate(world, env, params, policies, episodes, k, purpose=Purpose.EVALUATION, seen=()):
    """Return what an evaluation after generation k gave; seen: the policies' normalisers."""
    chosen = config.amend(params.config, {"evaluation.episodes": episodes})
    state = SimpleNamespace(generation=k, normaliser=lambda config: None)
    job = Job(chosen, world, env, params, state, make_policy(params, env), None)
    return evaluation.play(job, policies, purpose, seen)


def test_a_row_stays_when_the_board_is_written_again(world):
    params, state = make(world, Layout((1, 3)), population_size=4)
    rows = [es.generation(params, state, world, Quadratic()) for _ in range(3)]
    before = [(row["fitness"].copy(), timing["member_seconds"].copy()) for row, timing in rows]
    returns = evaluate(world, Quadratic(), params, state.policies, 4, 3).returns
    seen = returns["evaluation_theta_es"].copy()
    for _ in range(3):
        rows.append(es.generation(params, state, world, Quadratic()))
        evaluate(world, Quadratic(), params, state.policies, 4, 9)
    assert len({row["fitness"].tobytes() for row, _ in rows}) == 6
    for (fitness, seconds), (row, timing) in zip(before, rows, strict=False):
        assert np.array_equal(row["fitness"], fitness)
        assert np.array_equal(timing["member_seconds"], seconds)
    assert np.array_equal(returns["evaluation_theta_es"], seen)


@pytest.mark.slow
def test_with_the_blogs_constants_es_is_the_blogs_loop(world):
    blog = {"population_size": 50, "sigma": 0.1, "lr_es": 0.001, "sampling": "onesided"}
    blog |= {"fitness_shaping": "standardised", "optimiser": "sgd", "policy__output": "clip"}
    params, state = make(world, Layout((1, 3)), **blog)
    w = np.array([0.85, -0.6, 0.7])
    state.theta_es[3:] = w
    for k in range(1, 301):
        es.generation(params, state, world, Quadratic())
        epsilon = epsilons(k, 50)[:, 3:]
        actions = np.clip(w + 0.1 * epsilon, -1, 1)
        returns = -np.square(actions - Quadratic.SOLUTION).sum(axis=1)
        w = w + 0.001 / (50 * 0.1) * epsilon.T @ ((returns - np.mean(returns)) / np.std(returns))
    np.testing.assert_allclose(state.theta_es[3:], w, atol=1e-4)
    assert np.square(w - Quadratic.SOLUTION).sum() < 1e-3


@pytest.mark.filterwarnings("error")
def test_a_theta_that_is_not_finite_ends_the_run_at_once(world):
    """Weight decay alone multiplies theta by 1 - 1e38 * decay."""
    # 10 becomes -inf at once, or -1e19, 1e37 and then -inf.
    for decay, finite in ((1.0, 0), (1e-20, 2)):
        options = {"optimiser": "sgd", "lr_es": 1e38, "fitness_shaping": "standardised"}
        options |= {"population_size": 4, "weight_decay": decay}
        params, state = make(world, Layout((2, 2)), **options)
        state.theta_es[:] = 10
        for _ in range(finite):
            es.generation(params, state, world, Silent())
            assert np.isfinite(state.theta_es).all()
        with pytest.raises(ThetaNotFinite, match=f"generation {finite + 1}: theta_es"):
            es.generation(params, state, world, Silent())


@pytest.mark.parametrize("shaping", ["sign", "sign_ranks"])
def test_the_signs_of_rewards_shape_the_gradient_if_told(world, shaping):
    options = {"fitness_shaping": shaping, "population_size": 8, "sigma": 0.5, "lr_es": 0.1}
    options |= {"optimiser": "sgd", "fitness_episodes": 2}
    options["start_states"] = "member"  # of a pair's equal rewards there is no gradient
    params, state = make(world, Layout((2, 2)), **options)
    theta, env = state.theta_es.copy(), Noted()
    row, _ = es.generation(params, state, world, env)
    fitness = np.sum(env.rewards, axis=1).reshape(8, 2).mean(axis=1)
    np.testing.assert_array_equal(row["fitness"], fitness)
    signs = np.sign(env.rewards).sum(axis=1).reshape(8, 2).mean(axis=1)
    if shaping == "sign_ranks":
        below = np.array([(signs < s).sum() + (signs <= s).sum() - 1 for s in signs])
        signs = below / 2 / 7 - 0.5
    gradient = (signs[0::2] - signs[1::2]) @ epsilons(1, 4) / (8 * 0.5)
    assert np.abs(gradient).max() > 0.05
    np.testing.assert_allclose(state.theta_es, theta + 0.1 * gradient, atol=1e-6)


@pytest.mark.parametrize("start_states", ["member", "pair"])
def test_actions_have_addressed_noise_within_the_bounds(world, start_states):
    settings = {"population_size": 4, "fitness_episodes": 2, "start_states": start_states}
    plain, noisy = Noted(), Noted()
    for env, std in ((plain, 0.0), (noisy, 0.3)):
        params, state = make(world, Layout((2, 2)), action_noise=std, **settings)
        es.generation(params, state, world, env)
    assert plain.seeds == noisy.seeds
    clipped = 0
    for number, (without, shown) in enumerate(zip(plain.actions, noisy.actions, strict=True)):
        member = number // 2
        who = member // 2 if start_states == "pair" else member
        random = noise.generator(0, Purpose.ACTION, 1, who, number % 2)
        normal = random.standard_normal((4, 2), dtype=np.float32)
        expected = without + np.float32(0.3) * np.array([1, 4], np.float32) * normal
        np.testing.assert_allclose(shown, expected.clip([-1, 0], [1, 8]), atol=1e-5)
        clipped += (expected != expected.clip([-1, 0], [1, 8])).sum()
    assert clipped > 0


def test_each_policy_is_evaluated_with_its_own_normaliser(world):
    """As in a duel of two that have seen different observations."""
    ones = np.float32([1, 1])
    seen = Normaliser(np.float32([3, -2]), ones), None, Normaliser(0 * ones, 2 * ones)
    thetas = dict.fromkeys("abc", np.float32([0.3, 0.1, 0.2, 0.4, 0, 0]))
    params, _ = make(world, Layout((2, 2)), population_size=4)
    env, alone = Noted(), Noted()
    evaluate(world, env, params, thetas, 2, 3, Purpose.DUEL, seen)
    for i, theta in enumerate(thetas.values()):
        one = make_policy(params, alone, seen[i]).set(theta)
        for episode in range(2):
            play(alone, one, noise.integer(0, Purpose.DUEL, 3, block=episode))
    np.testing.assert_array_equal(env.actions, alone.actions)
    assert env.seeds == alone.seeds
    assert len({np.array(actions).tobytes() for actions in env.actions}) == 6
