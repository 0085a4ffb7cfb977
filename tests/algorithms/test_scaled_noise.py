"""Noise that is scaled by the size of each observation, against the plain formulas."""

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Track, epsilon, make_es

from esac_mpi.algorithms import es
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout
from esac_mpi.play import population, state
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import play

SETTINGS = {"population_size": 10, "observation_normalisation": False}


class Loud(Track):
    """Track whose second observation is of the size of forces, and is seen as such alone."""

    def reset(self, seed):
        return super().reset(seed) * np.float32([1, 500, 1])

    def step(self, action):
        observation, *rest = super().step(action)
        return observation * np.float32([1, 500, 1]), *rest


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout((2, 2, 1)), [3, 5, 3, 5, 1, 1, 1, 1, 1]),
        (Layout((2, 2, 1), linear=4.0), [3, 5, 3, 5, 1, 1, 1, 1, 3, 5, 1]),
        (Layout((2, 1)), [3, 5, 1]),
    ],
)
def test_the_weights_of_an_observation_have_its_factor(layout, expected):
    assert layout.input_scale(np.array([3, 5], np.float32)).tolist() == expected


def test_members_and_steps_are_scaled_by_what_was_seen_before(world):
    params, values = make_es(world, **SETTINGS)
    sums = np.zeros((3, 3))
    for k in (1, 2, 3):
        scale, theta = np.ones(LAYOUT.d, np.float32), values.theta_es.copy()
        m, v = values.adam_m.copy(), values.adam_v.copy()
        factors = 1 / np.sqrt(1 + sums[2] / sums[0]) if k > 1 else np.zeros(3)
        scale[: 140 * 3] = np.tile(factors, 140)
        row, _ = es.generation(params, values, world, Loud())
        policy, returns = make_policy(params, Loud()), []
        for slot in range(5):
            seed = noise.integer(0, Purpose.EPISODE, k, slot)
            for sign in (1, -1):
                step = np.float32(0.02 * sign) * (epsilon(k, slot) * scale)
                returns.append(play(Loud(), policy.set(theta + step), seed).episodic_return)
        assert row["fitness"].tolist() == returns
        ranks = evolution.shaped("centered_ranks", np.array(returns), np.zeros(10))
        gradient = sum((ranks[2 * s] - ranks[2 * s + 1]) * epsilon(k, s) * scale for s in range(5))
        step = evolution.adam_step((gradient / (10 * 0.02)).astype(np.float32), m, v, k, 0.01)
        np.testing.assert_allclose(values.theta_es, theta + step * scale, atol=1e-5)
        sums, former = values.noise_sums.copy(), sums
        assert sums[0].tolist() == [100.0 * k] * 3
        assert np.all(sums[2] > former[2])
    assert 0 < factors[1] < 0.01 < 0.5 < factors[0] < 1
    assert not values.observation_sums.any()


def test_a_run_of_a_version_without_scaled_noise_goes_on_without(world):
    params, resumed = make_es(world, **SETTINGS)
    without, plain = make_es(world, **SETTINGS, scaled_noise=False)
    es.generation(without, plain, world, Loud())
    former = state.arrays(plain)
    del former["noise_sums"]
    state.load(resumed, former)
    es.generation(params, resumed, world, Loud())
    es.generation(without, plain, world, Loud())
    assert np.array_equal(resumed.theta_es, plain.theta_es)
    assert not resumed.noise_sums.any()


def test_a_standardised_population_has_plain_noise(world):
    params, values = make_es(world, population_size=10, observation_normalisation=True)
    assert population.noise_scale(params, params.config.es, values.noise_sums, 1) is None
