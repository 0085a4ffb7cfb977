"""CEM, and importance mixing in CEM and CEM-RL: generations against plain formulas."""

import numpy as np
import pytest
from small_runs import Ending, made
from toy_tasks import Quadratic
from words import words

from esac_mpi.config import load
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout
from esac_mpi.play.rollout import ThetaNotFinite

ONESIDED = "--cem.sampling onesided --cem.elite_weights equal --cem.cov_extra_div false"


def mixed(name, line):
    """Return options of a run with importance mixing, its table's own without the table's name."""
    # Of few weights: much of what a distribution gave it could give again.
    own = f"--importance_mixing true {line}".replace("--", f"--{name}.")
    return words(f"--policy.hidden 1 1 {own}")


def returned(individual, hidden) -> float:
    """Return an individual's return on Quadratic, of which it observes a zero."""
    views, x = Layout((1, *hidden, 3)).views(individual.astype(np.float32)), np.zeros(1)
    for weight, bias in zip(views[::2], views[1::2], strict=True):
        x = np.tanh(weight @ x + bias)
    return -float(np.square(x - Quadratic.SOLUTION).sum())


def log_density(z, mean, variance) -> float:
    """Return the log of the density of a normal distribution, but for a constant."""
    return float(np.sum(-np.log(np.sqrt(variance)) - (z - mean) ** 2 / (2 * variance)))


def candidate(gaussian, k, slot):
    mean, variance = gaussian
    return mean + np.sqrt(variance) * noise.normal(0, Purpose.MUTATION, k, slot, 0, mean.size)


def mixture(z, new, old, k, n) -> tuple[list[int], list[int]]:
    """Return who stays of individuals z [n, d], and the slots of who joins in generation k."""
    luck = 1 - noise.generator(0, Purpose.SELECTION, k).random((n, 2))
    kept, joined = [], []
    for i in range(n):
        stays = log_density(z[i], *new) - log_density(z[i], *old)
        if len(kept) + len(joined) < n and np.log(luck[i, 0]) < stays:
            kept.append(i)
        one = candidate(new, k, i)
        joins = log_density(one, *old) - log_density(one, *new)
        if len(kept) + len(joined) < n and np.log(luck[i, 1]) >= joins:
            joined.append(i)
    return kept, [*joined, *range(n, 2 * n - len(kept) - len(joined))]


@pytest.mark.parametrize(
    ("form", "n", "elites", "line"),
    [
        ("mirrored", 6, 3, []),
        ("onesided", 7, 4, words(ONESIDED)),  # half of 7, to even
        ("mixed", 11, 6, mixed("cem", "")),
    ],
)
def test_generations_are_those_of_the_plain_formulas(form, n, elites, line, world):
    more = words("--cem.variance_init 0.04 --cem.damp 0.01 --cem.damp_limit 0.002")
    more += words("--cem.damp_tau 0.5 --cem.population_size", n)
    small, damp, kept, stayed = made(world, "cem", *more, *line, env=Quadratic()), 0.01, [], 0
    new = small.state.mean.astype(float), np.full(small.state.mean.size, 0.04)
    slots = range(n // 2 if form == "mirrored" else n)
    for k in range(1, 7):
        if k == 1 or form != "mixed":
            z = np.stack([candidate(new, k, slot) for slot in slots])
            z = np.concatenate([z, 2 * new[0] - z]) if form == "mirrored" else z
        row = small.generation()
        fitness = np.array([returned(one, small.params.config.policy.hidden) for one in z])
        np.testing.assert_allclose(row["fitness"], fitness, atol=1e-5)
        assert row["length"].tolist() == [0] * len(kept) + [1] * (n - len(kept))
        best = np.argsort(-fitness)[:elites]
        assert row["elites"].tolist() == best.tolist()
        logs = np.log((elites + 1) / np.arange(1, elites + 1))
        weights = np.full(elites, 1 / elites) if form == "onesided" else logs / logs.sum()
        damp = 0.5 * damp + 0.5 * 0.002  # the public code damps before it adds
        old, spread = new, weights @ np.square(z[best] - new[0])
        new = weights @ z[best], spread / (1 if form == "onesided" else elites) + damp
        np.testing.assert_allclose(small.state.mean, new[0], atol=1e-5)
        np.testing.assert_allclose(small.state.variance, new[1], atol=1e-5)
        assert row["damp"] == small.state.damp == pytest.approx(damp)
        assert row["mean_variance"] == pytest.approx(new[1].mean(), rel=1e-4)
        assert row["theta_norm"] == pytest.approx(np.linalg.norm(new[0]), rel=1e-5)
        if form == "mixed":
            assert row["kept"] == len(kept)
            kept, joined = mixture(z, new, old, k + 1, n)
            assert (small.state.kept.tolist(), small.state.candidates.tolist()) == (kept, joined)
            z = np.stack([*z[kept], *(candidate(new, k + 1, slot) for slot in joined)])
            stayed += len(kept)
    assert (0 < stayed < 6 * n) == (form == "mixed")
    assert small.state.counters.env_steps_population == 6 * n - (stayed - len(kept))


@pytest.mark.parametrize(("name", "trained"), [("cem", 0), ("cem_rl", 3)])
def test_who_stays_has_its_return_and_no_step(name, trained, world):
    """Episodes differ by their seeds: whoever played again would have another return."""
    more = mixed(name, "--population_size 9 --damp 0.01 --fitness_episodes 2")
    if trained:
        more += words("--cem_rl.start_steps 60 --cem_rl.trained_fraction", 1 / 3)
    env, stayed, before = Ending(), 0, np.zeros(9)
    small = made(world, name, *more, env=env)
    counters = small.state.counters
    for k in range(8):
        kept = small.state.kept
        learns = k and trained and counters.env_steps_population >= 60
        row = small.generation()
        stay = slice(trained, trained + len(kept))
        np.testing.assert_array_equal(row["fitness"][stay], before[trained:][kept])
        assert np.flatnonzero(row["length"] == 0).tolist() == [*range(stay.start, stay.stop)]
        assert row["kept"] == len(kept)
        assert not trained or row["trained"] == learns
        before, stayed = row["fitness"], stayed + len(kept)
        assert counters.env_steps == counters.nominal_steps == env.steps
    assert stayed > 0
    if trained:
        assert learns
        assert small.learner.env_steps == small.learner.replay.added == env.steps


def test_cem_is_cem_rl_without_trained_individuals(world):
    plain = made(world, "cem", "--cem.fitness_episodes", 2)
    more = words("--cem_rl.fitness_episodes 2 --cem_rl.trained_fraction 0")
    other = made(world, "cem_rl", *more)
    for _ in range(3):
        rows = plain.generation(), other.generation()
        for name in rows[0]:
            np.testing.assert_array_equal(rows[0][name], rows[1][name], err_msg=name)
    assert other.learner.replay.added == plain.env.steps == other.env.steps
    assert rows[1]["trained"] == 0
    for name in ("mean", "variance", "damp", "counters"):
        np.testing.assert_array_equal(getattr(plain.state, name), getattr(other.state, name))


def test_individuals_that_break_are_no_elites(world):
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


@pytest.mark.filterwarnings("error")
def test_a_distribution_that_is_not_finite_ends_the_run(world):
    small = made(world, "cem", env=Quadratic())
    small.state.variance[:] = 3e38
    with pytest.raises(ThetaNotFinite, match=r"generation 1: .* lower variance_init"):
        small.generation()


@pytest.mark.parametrize("name", ["cem", "cem_rl", "aes_rl"])
def test_the_name_sets_the_public_codes_actor(name):
    config, _ = load(["--algorithm", name])
    assert (config.policy.hidden, config.policy.activation) == ((400, 300), "tanh")
    config, _ = load(["--algorithm", name, "--policy.hidden", "8", "--policy.activation", "relu"])
    assert (config.policy.hidden, config.policy.activation) == ((8,), "relu")
