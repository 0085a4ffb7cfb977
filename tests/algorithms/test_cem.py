"""CEM and CEM-RL: generations against plain formulas and their parts, importance mixing, counts."""

import numpy as np
import pytest
from small_runs import Ending, arguments, begun, made
from toy_tasks import Quadratic
from words import words

from esac_mpi.algorithms import cem, cem_rl
from esac_mpi.config import amend, load
from esac_mpi.host import cooperative
from esac_mpi.learners import individuals
from esac_mpi.learners.updates import Update
from esac_mpi.operators import noise
from esac_mpi.operators.distribution import Gaussian, rank_weights, refit
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.policy import Layout
from esac_mpi.play.params import Generation, make_actor
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


def untrained(world, *more):
    """Return a small run of CEM-RL whose gradients train nobody."""
    config = load([str(word) for word in arguments("cem_rl", *more)])[0]
    return begun(world, amend(config, {"cem_rl.trained_fraction": 0.0}))


def test_cem_is_cem_rl_without_trained_individuals(world):
    plain = made(world, "cem", "--cem.fitness_episodes", 2)
    other = untrained(world, "--cem_rl.fitness_episodes", 2)
    for _ in range(3):
        rows = plain.generation(), other.generation()
        np.testing.assert_equal({name: rows[1][name] for name in rows[0]}, rows[0])
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
    with pytest.raises(ThetaNotFinite, match=r"1: .* another run with a lower variance_init"):
        small.generation()


@pytest.mark.parametrize("name", ["cem", "cem_rl", "aes_rl"])
def test_the_name_sets_the_public_codes_actor(name):
    config, _ = load(["--algorithm", name])
    assert (config.policy.hidden, config.policy.activation) == ((400, 300), "tanh")
    config, _ = load(["--algorithm", name, "--policy.hidden", "8", "--policy.activation", "relu"])
    assert (config.policy.hidden, config.policy.activation) == ((8,), "relu")


SMALL = ["--cem_rl.start_steps", 40]  # of Ending's short episodes


def test_individuals_learn_from_the_critic_before_they_play(world):
    """The second generation that trains, made again of its parts."""
    # Lessons, trainings, episodes, and where the mean goes.
    small, other = made(world, "cem_rl", *SMALL), made(world, "cem_rl", *SMALL)
    for _ in range(3):
        small.generation()
    now = Generation(small.params, small.state, None, Ending(), None, 4)
    assert small.state.counters.learner_phases >= 1
    other.load(small.saved())
    kept = other.learner.replay.rows(0, other.learner.replay.added)["observation"]
    gaussian = Gaussian(small.state.mean.copy(), small.state.variance.copy())
    z = np.stack([cem.write_individual(now, i, np.empty_like(gaussian.mean)) for i in range(6)])
    lessons_each, trainings = (round(share * small.state.last_steps) for share in (0.3, 0.2))
    phase = cooperative.run(other.learner.teach(list(z[:3]), lessons_each // 3, 4))
    for i in range(3):
        random, critic = generator(0, Purpose.TRAINING, 4, i), other.learner.taught[i]
        z[i] = small.params.operators.trained(z[i], critic, kept, trainings, random)
    actor = make_actor(small.params)
    played = [cem.play(now, actor.set(one), i) for i, one in enumerate(z)]
    fitness = np.array([one.episodic_return for one in played])
    elites = np.argsort(-fitness)[:3]
    damp = 0.95 * small.state.damp + 0.05 * 1e-5
    expected = refit(gaussian, z[elites], rank_weights(3, "log"), damp, True)
    row = small.generation()
    np.testing.assert_array_equal(row["fitness"], fitness)
    assert row["elites"].tolist() == elites.tolist()
    assert row["critic_loss"] == phase.critic_loss
    assert min(lessons_each // 3, trainings) > 0
    np.testing.assert_array_equal(small.state.mean, expected.mean)
    np.testing.assert_array_equal(small.state.variance, expected.variance)
    new = np.vstack([one.rows for one in played])
    added = small.learner.replay.added
    stored = small.learner.replay.rows(added - len(new), added)
    np.testing.assert_array_equal(stored["observation"], new[:, :3])
    np.testing.assert_array_equal(stored["reward"], new[:, 6])


def test_a_parallel_critic_is_taught_for_the_mean(world, monkeypatch):
    """A generation without gradients, one whose critic is taught, one that learns from it."""
    # All learn from the critic as it was. While it is first taught, all play as drawn.
    more = *SMALL, "--cem_rl.critic", "parallel", "--cem_rl.start_steps", 1
    small, other = made(world, "cem_rl", *more), made(world, "cem_rl", *more)
    given, honest, found = [], individuals.Individuals.trained, []

    def trained(self, theta, critic, *rest):
        given.append(critic.copy())
        return honest(self, theta, critic, *rest)

    monkeypatch.setattr(individuals.Individuals, "trained", trained)
    counters = small.state.counters
    for _ in range(3):
        row = small.generation()
        found.append((row["trained"], counters.gradient_updates > 0, counters.member_updates > 0))
    assert found == [(0, False, False), (0, True, False), (1, True, True)]
    given.clear()
    other.load(small.saved())
    mean, critic = small.state.mean.copy(), small.learner.critic_vector()
    updates = round(0.3 * small.state.last_steps)
    small.generation()
    assert len(given) == 3
    assert all(np.array_equal(one, critic) for one in given)
    assert np.array_equal(small.learner.theta, mean)
    cooperative.run(other.learner.teach([mean], updates, small.state.generation))
    assert np.array_equal(small.learner.critic_vector(), other.learner.critic_vector())


@pytest.mark.parametrize("breaking", [0, 3])
def test_every_step_and_update_is_counted(breaking, world, monkeypatch):
    """Where an episode breaks, its last step is counted and not learned from."""
    steps, taught, honest, env = [], [], Update.learn_actor, Ending()

    class Adam(individuals.Adam):
        def step(self):
            steps.append(1)
            super().step()

    monkeypatch.setattr(individuals, "Adam", Adam)
    monkeypatch.setattr(Update, "learn_actor", lambda own: taught.append(1) or honest(own))
    env.breaking = breaking
    small = made(world, "cem_rl", *SMALL, "--cem_rl.fitness_episodes", 2, env=env)
    counters = small.state.counters
    lengths = [int(small.generation()["length"].sum()) for _ in range(4)]
    assert counters.env_steps_population == counters.nominal_steps == env.steps == sum(lengths)
    assert counters.env_steps == small.learner.env_steps == env.steps
    assert counters.unstable_episodes == env.broken
    assert (env.broken > 0) == bool(breaking)
    assert small.state.transitions == small.learner.replay.added == env.steps - env.broken
    lessons_due = sum(3 * (round(0.3 * length) // 3) for length in lengths[:3])
    trainings_due = sum(3 * round(0.2 * length) for length in lengths[:3])
    assert counters.gradient_updates == len(taught) == lessons_due
    assert counters.member_updates == len(steps) == trainings_due
    assert counters.learner_phases == 3


def test_nothing_is_trained_before_start_steps_or_a_batch(world):
    late, steps = made(world, "cem_rl", "--cem_rl.start_steps", 70), [0]
    for _ in range(4):
        assert late.generation()["trained"] == (steps[-1] >= 70)
        steps.append(late.env.steps)
    assert steps[1] < 70 < steps[3]
    wide = made(world, "cem_rl", *words("--cem_rl.start_steps 0 --cem_rl.batch_size 60"))
    rows = [wide.generation() for _ in range(2)]
    assert [row["trained"] for row in rows] == [0, 0]
    assert wide.state.counters.learner_phases == wide.state.counters.member_updates == 0
    assert np.isnan(rows[0]["critic_loss"])


def test_a_ring_below_a_generation_has_the_newest_transitions(world):
    """Nobody is trained, so that both play the same episodes."""
    sizes = ("--cem_rl.replay_capacity 17", "--cem_rl.replay_capacity 1000")
    small, whole = (untrained(world, *words(size)) for size in sizes)
    for _ in range(3):
        small.generation()
        whole.generation()
        stop = whole.learner.replay.added
        kept, newest = (made.learner.replay.rows(stop - 17, stop) for made in (small, whole))
        for name, rows in kept.items():
            np.testing.assert_array_equal(rows, newest[name])
    assert small.state.replay.shape[0] == 17 < stop / 3


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("--budget.generations 3", 3 * 6 * 10),
        ("--budget.env_steps 100 --cem_rl.fitness_episodes 2", 100 + 2 * 6 * 10),
        ("--budget.env_steps 1000000", 1000),
        ("--budget.generations 1 --cem_rl.batch_size 100", 100),
    ],
)
def test_there_is_room_for_what_a_budget_adds_on_each_node(line, rows, world):
    assert len(made(world, "cem_rl", *words(line)).state.replay) == rows


def test_there_is_room_for_what_is_put_together(world):
    assert cem_rl.board(untrained(world).params).rows == 6
    for fraction, most in ((0.5, 3), (0.7, 4), (1, 6)):
        params = made(world, "cem_rl", "--cem_rl.trained_fraction", fraction).params
        assert cem_rl.board(params).rows == most
