"""CEM-RL: a generation against its parts, the three promises, the shared replay, the counts."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from small_cem import arguments, made
from small_runs import Ending, assert_same, part, shared_bytes
from whole_runs import assert_same_run, killed_at

from esac_mpi.algorithms import cem, cem_rl
from esac_mpi.analysis.clock import Machine, computed, grid
from esac_mpi.config import load
from esac_mpi.envs import TaskError, make
from esac_mpi.host import cooperative
from esac_mpi.host.stop import Abandoned, GivenUp
from esac_mpi.learners import cem as lessons
from esac_mpi.learners import individuals
from esac_mpi.operators.distribution import Gaussian, rank_weights, told
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.play import experience
from esac_mpi.play.params import Generation, make_actor
from esac_mpi.play.rollout import NoFiniteReturn
from esac_mpi.record import Run, read
from esac_mpi.training import check, set_up
from esac_mpi.training.check import memory

pytestmark = pytest.mark.slow

CRITICS = ["serial", "parallel"]
SMALL = ["--cem_rl.start_steps", 40]  # of Ending's short episodes
RING = ["--cem_rl.replay_capacity", 200, "--cem_rl.critic_layer_norm", "true"]
MORE = {  # a ring smaller than a generation, normalised critics; nobody who is not trained
    "serial": ["--cem_rl.fitness_episodes", 2, *RING],
    "parallel": [
        "--cem_rl.trained_fraction",
        1,
        "--cem_rl.sampling",
        "onesided",
        "--cem_rl.population_size",
        5,
    ],
}


@pytest.mark.parametrize("critic", CRITICS)
def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(critic, tmp_path, alone, together):
    line = arguments("cem_rl", "--cem_rl.critic", critic, *MORE[critic])
    alone(*line, "--budget.generations", 6, "--run-dir", tmp_path / "straight")
    together(2, *line, "--budget.generations", 3, "--run-dir", tmp_path / "parts")
    together(3, *line, "--budget.generations", 6, "--run-dir", tmp_path / "parts", nodes=2)
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    rows = Run.open(tmp_path / "straight").columns
    assert rows["metrics/trained"].tolist() == [
        0,
        critic == "serial",
        1,
        1,
        1,
        1,
    ]  # a parallel one is first taught alone
    assert rows["metrics/gradient_updates"][-1] > 0
    assert rows["metrics/member_updates"][-1] > 0
    run = Run.open(tmp_path / "straight")
    (text,) = grid.texts(run, np.array([5]))  # lessons run beside members
    for ranks in (1, 4):
        assert grid.at(grid.parsed(text), Machine(ranks)) == pytest.approx(
            computed(run, Machine(ranks))[-1], rel=1e-3
        )


def test_individuals_learn_from_the_critic_and_play_as_what_they_have_become(world):
    """The second generation that trains, made again of its parts.

    Lessons, trainings, episodes, and where the mean goes.
    """
    small = made(world, "cem_rl", *SMALL)
    for _ in range(3):
        small.generation()
    params, before = small.params, small.saved()
    now = Generation(params, small.state, None, Ending(), None, 4)
    assert small.state.counters.learner_phases >= 1
    other = made(world, "cem_rl", *SMALL)
    other.load(before)
    kept = other.learner.replay.rows(0, other.learner.replay.added)["observation"]
    gaussian = Gaussian(small.state.mean.copy(), small.state.variance.copy())
    z = np.stack([cem.individual(now, i, np.empty_like(gaussian.mean)) for i in range(6)])
    updates = round(0.3 * small.state.last_steps) // 3, round(0.2 * small.state.last_steps)
    phase = cooperative.run(other.learner.teach(list(z[:3]), updates[0], 4))
    for i in range(3):
        random = generator(0, Purpose.TRAINING, 4, i)
        z[i] = params.operators.trained(z[i], other.learner.taught[i], kept, updates[1], random)
    actor = make_actor(params)
    played = [cem.play(now, actor.set(one), i) for i, one in enumerate(z)]
    fitness = np.array([one.episodic_return for one in played])
    elites = np.argsort(-fitness)[:3]
    expected = told(
        gaussian, z[elites], rank_weights(3, "log"), 0.95 * small.state.damp + 0.05 * 1e-5, True
    )
    row = small.generation()
    np.testing.assert_array_equal(row["fitness"], fitness)
    assert row["elites"].tolist() == elites.tolist()
    assert row["critic_loss"] == phase.critic_loss
    assert min(updates) > 0
    np.testing.assert_array_equal(small.state.mean, expected.mean)
    np.testing.assert_array_equal(small.state.variance, expected.variance)
    new = np.vstack([one.rows for one in played])
    added = small.learner.replay.added
    stored = small.learner.replay.rows(added - len(new), added)
    np.testing.assert_array_equal(stored["observation"], new[:, :3])
    np.testing.assert_array_equal(stored["reward"], new[:, 6])


def test_under_a_parallel_critic_all_learn_from_it_as_it_was_and_it_is_taught_for_the_mean(
    world, monkeypatch
):
    small, given, honest = (
        made(world, "cem_rl", *SMALL, "--cem_rl.critic", "parallel"),
        [],
        individuals.Individuals.trained,
    )

    def trained(self, theta, critic, *rest):
        given.append(critic.copy())
        return honest(self, theta, critic, *rest)

    monkeypatch.setattr(individuals.Individuals, "trained", trained)
    while not small.generation()["trained"]:
        pass
    given.clear()
    before, mean, critic = small.saved(), small.state.mean.copy(), small.learner.critic_vector()
    updates = round(0.3 * small.state.last_steps)
    small.generation()
    assert len(given) == 3
    assert all(np.array_equal(one, critic) for one in given)
    assert np.array_equal(small.learner.theta, mean)
    other = made(world, "cem_rl", *SMALL, "--cem_rl.critic", "parallel")
    other.load(before)
    cooperative.run(other.learner.teach([mean], updates, small.state.generation))
    assert np.array_equal(small.learner.critic_vector(), other.learner.critic_vector())


PARTS = {  # where a generation is given up: a function, and which call of it
    "an episode": (experience, "explore", 2),
    "a lesson": (lessons.CEM, "_teach_once", 3),
    "a training": (individuals.Individuals, "trained", 2),
    "a trained one's episode": (experience, "explore", 6),
}


@pytest.mark.parametrize("critic", CRITICS)
def test_a_generation_given_up_anywhere_leaves_nothing_and_is_made_again(
    critic, world, monkeypatch
):
    """Given up in each part in turn, saved, and gone on with in another process; the ring wraps."""
    more = *SMALL, "--cem_rl.critic", critic, "--cem_rl.replay_capacity", 60
    straight = made(world, "cem_rl", *more)
    for _ in range(len(PARTS) + 3):
        straight.generation()
    small = made(world, "cem_rl", *more)
    for _ in range(3):
        small.generation()
    for place, (where, name, call) in PARTS.items():
        before, honest, calls = small.saved(), getattr(where, name), []

        def function(*arguments, honest=honest, calls=calls, call=call):
            calls.append(1)
            result = honest(*arguments)
            if len(calls) == call:
                raise GivenUp
            return result

        with monkeypatch.context() as patch:
            patch.setattr(where, name, function)
            with pytest.raises(Abandoned):
                small.generation()
        after = small.saved()
        assert_same(before, after)
        world.end_background()  # as in a new process
        small = made(world, "cem_rl", *more)
        small.load(after)
        assert small.generation()["trained"], place
    assert_same(small.saved(), straight.saved())
    np.testing.assert_array_equal(small.state.replay, straight.state.replay)
    assert small.learner.replay.added > 2 * 60


# of one process each, in the generations after the checkpoint that it goes on from,
# one every second generation
POINTS = [
    ("esac_mpi.play.experience:explore", 20),
    ("esac_mpi.learners.cem:CEM._teach_once", 50),
    ("esac_mpi.learners.individuals:Individuals.trained", 4),
    ("esac_mpi.algorithms.cem_rl:remember", 3),
    ("esac_mpi.record.files:_keep", 2),
]


def test_killed_in_any_part_of_a_generation_it_goes_on_on_other_ranks_as_if_nothing_had_been(
    tmp_path, alone, together
):
    fast = "--cem_rl.replay_capacity", 300, "--checkpoint.every_generations", 2
    line = arguments("cem_rl", *fast, "--budget.generations", 12)
    alone(*line, "--run-dir", tmp_path / "straight")
    killed_at(POINTS, *line, "--run-dir", tmp_path / "killed")
    kept = read(tmp_path / "killed/checkpoint.h5")
    assert 0 < kept[1]["generation"] < 12
    assert not {"state/replay", "state/critics"} & kept[0].keys()
    together(3, *line, "--run-dir", tmp_path / "killed")
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.parametrize("breaking", [0, 3])
def test_every_step_and_update_is_counted(breaking, world, monkeypatch):
    """Where an episode breaks, its last step is counted and not learned from."""
    steps, taught = [], []

    class Adam(individuals.Adam):
        def step(self):
            steps.append(1)
            super().step()

    honest = lessons.CEM._teach_once
    monkeypatch.setattr(individuals, "Adam", Adam)
    monkeypatch.setattr(
        lessons.CEM, "_teach_once", lambda *given: [taught.append(1), honest(*given)][1]
    )
    env = Ending()
    env.breaking = breaking
    small = made(world, "cem_rl", *SMALL, "--cem_rl.fitness_episodes", 2, env=env)
    counters, lengths = (
        small.state.counters,
        [int(small.generation()["length"].sum()) for _ in range(4)],
    )
    assert counters.env_steps_population == counters.nominal_steps == env.steps == sum(lengths)
    assert counters.env_steps == env.steps
    assert counters.unstable_episodes == env.broken
    assert (env.broken > 0) == bool(breaking)
    assert small.state.transitions == small.learner.replay.added == env.steps - env.broken
    assert (
        counters.gradient_updates
        == len(taught)
        == sum(3 * (round(0.3 * steps) // 3) for steps in lengths[:3])
    )
    assert (
        counters.member_updates
        == len(steps)
        == sum(3 * round(0.2 * steps) for steps in lengths[:3])
    )
    assert counters.learner_phases == 3
    assert small.learner.env_steps == env.steps


def test_nothing_is_trained_before_start_steps_or_before_there_is_a_batch(world):
    late = made(world, "cem_rl", "--cem_rl.start_steps", 70)
    steps = [0]
    for _ in range(4):
        assert late.generation()["trained"] == (steps[-1] >= 70)
        steps.append(late.env.steps)
    assert steps[1] < 70 < steps[3]
    wide = made(world, "cem_rl", "--cem_rl.start_steps", 0, "--cem_rl.batch_size", 60)
    rows = [wide.generation() for _ in range(2)]
    assert [row["trained"] for row in rows] == [0, 0]
    assert wide.state.counters.learner_phases == wide.state.counters.member_updates == 0
    assert np.isnan(rows[0]["critic_loss"])


def test_nobody_learns_from_a_parallel_critic_that_was_not_taught(world):
    """A generation without gradients, one whose critic is taught, one that learns from it.

    While the critic is taught, all play as drawn.
    """
    small = made(world, "cem_rl", *SMALL, "--cem_rl.critic", "parallel", "--cem_rl.start_steps", 1)
    found = []
    for _ in range(3):
        row = small.generation()
        counters = small.state.counters
        found.append((row["trained"], counters.gradient_updates > 0, counters.member_updates > 0))
    assert found == [(0, False, False), (0, True, False), (1, True, True)]


def test_a_ring_smaller_than_a_generation_has_the_newest_transitions(world):
    """Nobody is trained, so that both play the same episodes."""
    still = "--cem_rl.trained_fraction", 0
    small, whole = (
        made(world, "cem_rl", *still, "--cem_rl.replay_capacity", capacity)
        for capacity in (17, 1000)
    )
    for _ in range(3):
        small.generation()
        whole.generation()
        stop = whole.learner.replay.added
        kept, all_of_them = (
            small.learner.replay.rows(stop - 17, stop),
            whole.learner.replay.rows(stop - 17, stop),
        )
        for name, rows in kept.items():
            np.testing.assert_array_equal(rows, all_of_them[name])
    assert small.state.replay.shape[0] == 17 < stop / 3


def test_a_population_of_which_no_return_is_finite_ends_the_run_and_changes_nothing(world):
    env = Ending()
    small = made(world, "cem_rl", *SMALL, env=env)
    for _ in range(3):
        small.generation()
    before, env.breaking = small.saved(), 1
    with pytest.raises(NoFiniteReturn, match="generation 4: the return of no individual is finite"):
        small.generation()
    assert_same(small.saved(), before)


def test_there_is_room_for_what_a_budget_adds_on_each_node_and_for_what_is_put_together(world):
    def rows(*more):
        return len(made(world, "cem_rl", *more).state.replay)

    assert rows("--budget.generations", 3) == 3 * 6 * 10
    assert rows("--budget.env_steps", 100, "--cem_rl.fitness_episodes", 2) == 100 + 2 * 6 * 10
    assert rows("--budget.env_steps", 10**6) == 1000
    assert rows("--budget.generations", 1, "--cem_rl.batch_size", 100) == 100
    for fraction, most in ((0, 6), (0.5, 3), (0.7, 4), (1, 6)):
        assert (
            cem_rl.board(made(world, "cem_rl", "--cem_rl.trained_fraction", fraction).params).rows
            == most
        )


def test_what_is_saved_of_a_state_is_neither_replay_nor_scratch(world):
    assert {*part(made(world, "cem_rl").saved(), "state")} & {"replay", "critics"} == set()


@pytest.mark.parametrize("name", ["cem", "cem_rl"])
def test_shared_memory_needed_is_what_a_run_allocates(name, world):
    config, _ = load(list(map(str, arguments(name))))
    env, sizes = make("Pendulum-v1", 30), shared_bytes(world)
    made(world, name, env=env)
    replay = 1000 * (2 * 3 + 1 + 2) * 4
    assert memory.needed(config, env, 1) - 2**20 == sum(sizes) > replay * (name == "cem_rl")


@pytest.mark.parametrize(("fraction", "found"), [(0, 6), (0.5, 3), (1, 6)])
def test_a_run_is_looked_at_beforehand(fraction, found, world, tmp_path, capsys):
    config, _ = load(
        list(
            map(
                str,
                arguments(
                    "cem_rl", "--cem_rl.trained_fraction", fraction, "--run-dir", tmp_path / "run"
                ),
            )
        )
    )
    assert check.check(config, world) == 0
    said = capsys.readouterr().out
    assert re.search(rf"work +{found} episodes a generation on 1 evaluating rank", said)
    assert re.search(r"replay +comes to take .* on each node", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "discrete"), [("cem", True), ("cem_rl", False)])
def test_choices_are_for_those_without_gradients(name, discrete):
    config, _ = load(["--algorithm", name, "--task.id", "CartPole-v1"])
    with (
        nullcontext()
        if discrete
        else pytest.raises(TaskError, match=f"2 discrete actions; {name} needs continuous ones")
    ):
        set_up.make_task(config)
