"""CEM-RL: a generation against its parts, the three promises, the shared replay, the counts."""

import numpy as np
import pytest
from small_runs import Ending, made
from words import words

from esac_mpi.algorithms import cem, cem_rl
from esac_mpi.host import cooperative
from esac_mpi.learners import cem as lessons
from esac_mpi.learners import individuals
from esac_mpi.operators.distribution import Gaussian, rank_weights, refit
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.play.params import Generation, make_actor

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
    steps, taught, honest, env = [], [], lessons.CEM._teach_once, Ending()

    class Adam(individuals.Adam):
        def step(self):
            steps.append(1)
            super().step()

    def teach_once(*given):
        taught.append(1)
        return honest(*given)

    monkeypatch.setattr(individuals, "Adam", Adam)
    monkeypatch.setattr(lessons.CEM, "_teach_once", teach_once)
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
    still = words("--cem_rl.trained_fraction 0 --cem_rl.replay_capacity")
    small, whole = (made(world, "cem_rl", *still, capacity) for capacity in (17, 1000))
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
    for fraction, most in ((0, 6), (0.5, 3), (0.7, 4), (1, 6)):
        params = made(world, "cem_rl", "--cem_rl.trained_fraction", fraction).params
        assert cem_rl.board(params).rows == most
