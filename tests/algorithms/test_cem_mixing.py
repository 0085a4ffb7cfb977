"""Importance mixing in CEM and CEM-RL: who stays, by the plain formulas.

It plays nothing, and nothing counts it.
"""

import numpy as np
import pytest
from small_cem import arguments, made
from small_runs import Ending
from test_es import Quadratic
from whole_runs import assert_same_run, summary

from esac_mpi.analysis.clock.recorded import generations, times
from esac_mpi.analysis.episodes import training_returns
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.record import Run

MIXED = [
    "--policy.hidden",
    1,
    1,
]  # few weights: much of what a distribution gave it could give again


def mixed(name, *more):
    """Return options of a run with importance mixing.

    more: fields of the algorithm's own table, each with its value.
    """
    own = ["importance_mixing", "true", *more]
    return [*MIXED, *(f"--{name}.{word}" if i % 2 == 0 else word for i, word in enumerate(own))]


def returned(individual) -> float:
    """Return the return of an individual: a chain of 1, 1, 1 and 3 units; it observes nothing."""
    _, a, b, c, *last = individual.astype(float)
    hidden = np.tanh(b * np.tanh(a) + c)
    action = np.tanh(np.array(last[:3]) * hidden + last[3:])
    return -float(np.square(action - Quadratic.SOLUTION).sum())


def log_density(z, mean, variance) -> float:
    """Return the log of the density of a normal distribution, but for a constant."""
    return float(np.sum(-np.log(np.sqrt(variance)) - (z - mean) ** 2 / (2 * variance)))


def mixture(z, new, old, k, n) -> tuple[list[int], list[int]]:
    """Return who stays of individuals z [n, d], and the slots of who joins in generation k.

    One after the other.
    """
    luck = 1 - noise.generator(0, Purpose.SELECTION, k).random((n, 2))
    kept, joined = [], []
    for i in range(n):
        if len(kept) + len(joined) < n and np.log(luck[i, 0]) < log_density(
            z[i], *new
        ) - log_density(z[i], *old):
            kept.append(i)
        one = candidate(new, k, i)
        if len(kept) + len(joined) < n and np.log(luck[i, 1]) >= log_density(
            one, *old
        ) - log_density(one, *new):
            joined.append(i)
    return kept, [*joined, *range(n, 2 * n - len(kept) - len(joined))]


def candidate(gaussian, k, slot):
    mean, variance = gaussian
    return mean + np.sqrt(variance) * noise.normal(0, Purpose.MUTATION, k, slot, 0, mean.size)


def test_generations_are_those_of_the_plain_formulas(world):
    settings = "population_size", 11, "damp", 0.01, "damp_limit", 0.002, "variance_init", 0.04
    small = made(world, "cem", *mixed("cem", *settings), env=Quadratic())
    n, damp, stayed = 11, 0.01, 0
    new = small.state.mean.astype(float), np.full(small.state.mean.size, 0.04)
    z = np.stack([candidate(new, 1, slot) for slot in range(n)])
    kept = []
    for k in range(1, 7):
        row, fitness = small.generation(), np.array([returned(individual) for individual in z])
        np.testing.assert_allclose(row["fitness"], fitness, atol=1e-5)
        assert row["length"].tolist() == [0] * len(kept) + [1] * (n - len(kept))
        assert row["kept"] == len(kept)
        best = np.argsort(-fitness)[:6]
        assert row["elites"].tolist() == best.tolist()
        weights, damp = np.log(7 / np.arange(1, 7)), 0.95 * damp + 0.05 * 0.002
        weights /= weights.sum()
        old = new
        new = weights @ z[best], weights @ np.square(z[best] - old[0]) / 6 + damp
        np.testing.assert_allclose(small.state.mean, new[0], atol=1e-5)
        np.testing.assert_allclose(small.state.variance, new[1], atol=1e-5)
        kept, joined = mixture(z, new, old, k + 1, n)
        assert (small.state.kept.tolist(), small.state.candidates.tolist()) == (kept, joined)
        z = np.stack([*z[kept], *(candidate(new, k + 1, slot) for slot in joined)])
        stayed += len(kept)
    assert 0 < stayed < 6 * n
    assert small.state.counters.env_steps_population == 6 * n - (stayed - len(kept))


@pytest.mark.parametrize(("name", "trained"), [("cem", 0), ("cem_rl", 3)])
def test_who_stays_has_its_return_and_no_step(name, trained, world):
    """Episodes differ by their seeds: whoever played again would have another return."""
    env, stayed = Ending(), 0
    small = made(
        world, name,
        *mixed(name, "population_size", 9, "damp", 0.01, "fitness_episodes", 2)
        + (["--cem_rl.start_steps", 60, "--cem_rl.trained_fraction", 1 / 3] if trained else []),
        env=env,
    )  # fmt: skip
    before = np.zeros(9)
    for k in range(8):
        kept, learns = (
            small.state.kept,
            k and trained and small.state.counters.env_steps_population >= 60,
        )
        row = small.generation()
        stay = slice(trained, trained + len(kept))
        np.testing.assert_array_equal(row["fitness"][stay], before[trained:][kept])
        assert row["length"].astype(bool).tolist() == [
            not stay.start <= i < stay.stop for i in range(9)
        ]
        assert row["kept"] == len(kept)
        assert not trained or row["trained"] == learns
        before, stayed = row["fitness"], stayed + len(kept)
        assert small.state.counters.env_steps == small.state.counters.nominal_steps == env.steps
    assert stayed > 0
    if trained:
        assert learns
        assert small.learner.env_steps == small.learner.replay.added == env.steps


def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(tmp_path, alone, together):
    line = arguments(
        "cem_rl", *mixed("cem_rl", "population_size", 8, "damp", 0.1, "damp_limit", 0.1)
    )
    alone(*line, "--budget.generations", 7, "--run-dir", tmp_path / "straight")
    together(2, *line, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    together(3, *line, "--budget.generations", 7, "--run-dir", tmp_path / "parts", nodes=2)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    found = Run.open(tmp_path / "parts")
    length = found.columns["metrics/length"]
    assert (length == 0).sum() == found.columns["metrics/kept"].sum() > 0
    assert summary(tmp_path / "parts")["env_steps"]["population"] == length.sum()
    assert len(training_returns(found)[1]) == (length > 0).sum()  # episodes
    parts = times(found)
    np.testing.assert_array_equal(
        np.isnan(parts["members"]), length == 0
    )  # the computed clock of another cluster
    played = [one.trained.size + one.members.size for one in generations(found, parts)]
    assert played == (length > 0).sum(axis=1).tolist()
