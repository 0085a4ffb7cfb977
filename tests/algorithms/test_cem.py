"""CEM: its generations against plain formulas, the three promises, and what is refused."""

import numpy as np
import pytest
from small_cem import arguments, made
from small_runs import Ending, assert_same
from test_es import Quadratic
from whole_runs import assert_same_run

from esac_mpi.config import load
from esac_mpi.host.stop import Abandoned, GivenUp
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import experience
from esac_mpi.play.rollout import NoFiniteReturn, ThetaNotFinite

OPTIONS = [
    [],
    [
        "--cem.sampling",
        "onesided",
        "--cem.population_size",
        7,
        "--cem.elite_weights",
        "equal",
        "--cem.cov_extra_div",
        "false",
    ],
]


def quadratic(world, *more):
    """Return a run whose network is three biases, of which the fitness is made."""
    return made(world, "cem", "--cem.variance_init", 0.04, *more, env=Quadratic())


def returned(individual) -> float:
    """Return an individual's return: layers of one, 8, 8 and 3 units; it observes nothing."""
    first, second, third = individual[8:16], individual[16:88], individual[88:]
    hidden = np.tanh(first)
    hidden = np.tanh(second[:64].reshape(8, 8) @ hidden + second[64:])
    return -float(
        np.square(
            np.tanh(third[:24].reshape(3, 8) @ hidden + third[24:]) - Quadratic.SOLUTION
        ).sum()
    )


@pytest.mark.parametrize("options", OPTIONS, ids=["mirrored", "onesided"])
def test_generations_are_those_of_the_plain_formulas(options, world):
    small = quadratic(
        world, "--cem.damp", 0.01, "--cem.damp_limit", 0.002, "--cem.damp_tau", 0.5, *options
    )
    mean, variance, damp = (
        small.state.mean.astype(float),
        np.full(small.state.mean.size, 0.04),
        0.01,
    )
    n, mirrored = (7, False) if options else (6, True)
    for k in range(1, 5):
        row = small.generation()
        slots = range(3) if mirrored else range(7)
        epsilon = np.stack(
            [noise.normal(0, Purpose.MUTATION, k, slot, 0, mean.size) for slot in slots]
        )
        z = mean + np.sqrt(variance) * (
            np.concatenate([epsilon, -epsilon]) if mirrored else epsilon
        )
        fitness = np.array([returned(individual) for individual in z])
        np.testing.assert_allclose(row["fitness"], fitness, atol=1e-5)
        best = np.argsort(-fitness)[: 3 if mirrored else 4]  # half of 7, to even
        assert row["elites"].tolist() == best.tolist()
        weights = np.log(4 / np.arange(1, 4)) if mirrored else np.ones(4)
        weights /= weights.sum()
        damp = 0.5 * damp + 0.5 * 0.002  # the public code damps before it adds
        variance = weights @ np.square(z[best] - mean) / (3 if mirrored else 1) + damp
        mean = weights @ z[best]
        np.testing.assert_allclose(small.state.mean, mean, atol=1e-5)
        np.testing.assert_allclose(small.state.variance, variance, atol=1e-5)
        assert row["damp"] == small.state.damp == pytest.approx(damp)
        assert row["mean_variance"] == pytest.approx(variance.mean(), rel=1e-4)
        assert row["theta_norm"] == pytest.approx(np.linalg.norm(mean), rel=1e-5)
        assert row["length"].tolist() == [1] * n


def test_the_mean_comes_to_the_solution(world):
    small = quadratic(world, "--cem.population_size", 10, "--cem.damp", 0.01)
    assert returned(small.state.mean) < -0.1
    for _ in range(60):
        small.generation()
    assert returned(small.state.mean) > -1e-3
    assert small.state.counters.env_steps == small.state.counters.nominal_steps == 600


def test_cem_is_cem_rl_without_trained_individuals(world):
    more = "fitness_episodes", 2
    plain = made(world, "cem", f"--cem.{more[0]}", more[1])
    other = made(world, "cem_rl", f"--cem_rl.{more[0]}", more[1], "--cem_rl.trained_fraction", 0)
    for _ in range(3):
        rows = plain.generation(), other.generation()
        for name in rows[0]:
            np.testing.assert_array_equal(rows[0][name], rows[1][name], err_msg=name)
    assert other.learner.replay.added == plain.env.steps == other.env.steps
    assert rows[1]["trained"] == 0
    for name in ("mean", "variance", "damp", "counters"):
        np.testing.assert_array_equal(getattr(plain.state, name), getattr(other.state, name))


def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(tmp_path, alone, together):
    line = arguments("cem", "--cem.fitness_episodes", 2)
    alone(*line, "--budget.generations", 6, "--run-dir", tmp_path / "straight")
    together(2, *line, "--budget.generations", 2, "--run-dir", tmp_path / "parts")
    together(3, *line, "--budget.generations", 6, "--run-dir", tmp_path / "parts", nodes=2)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")


def test_a_generation_that_is_given_up_leaves_nothing_and_is_made_again(world, monkeypatch):
    straight, small, honest = made(world, "cem"), made(world, "cem"), experience.explore
    for _ in range(2):
        straight.generation()
    small.generation()
    before, calls = small.saved(), []

    def fourth(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise GivenUp
        return honest(*arguments)

    monkeypatch.setattr(experience, "explore", fourth)
    with pytest.raises(Abandoned):
        small.generation()
    assert_same(small.saved(), before)
    small.generation()
    assert_same(small.saved(), straight.saved())


def test_individuals_that_break_are_no_elites_and_without_others_the_run_ends_as_it_was(world):
    env = Ending()
    small = made(world, "cem", "--cem.elite_fraction", 1, env=env)
    env.breaking = 2
    row = small.generation()
    broken = np.flatnonzero(np.isnan(row["fitness"]))
    assert 0 < broken.size < 6
    elites = row["elites"][row["elites"] >= 0]
    assert sorted([*elites, *broken]) == list(range(6))
    assert (row["elites"][elites.size :] == -1).all()
    assert small.state.counters.unstable_episodes == env.broken == broken.size
    assert small.state.counters.env_steps_population == env.steps == row["length"].sum()
    before, env.breaking = small.saved(), 1
    with pytest.raises(NoFiniteReturn, match="generation 2: the return of no individual is finite"):
        small.generation()
    assert_same(small.saved(), before)


@pytest.mark.filterwarnings("error")
def test_a_distribution_that_is_not_finite_ends_the_run(world):
    small = quadratic(world)
    small.state.variance[:] = 3e38
    with pytest.raises(
        ThetaNotFinite,
        match=r"generation 1: mean or variance is not finite, .*: lower variance_init",
    ):
        small.generation()


@pytest.mark.parametrize("name", ["cem", "cem_rl", "aes_rl"])
def test_the_name_sets_the_public_codes_actor(name):
    config, _ = load(["--algorithm", name])
    assert (config.policy.hidden, config.policy.activation) == ((400, 300), "tanh")
    config, _ = load(["--algorithm", name, "--policy.hidden", "8", "--policy.activation", "relu"])
    assert (config.policy.hidden, config.policy.activation) == ((8,), "relu")
