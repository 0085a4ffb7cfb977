"""What each switch of ESAC changes, against the plain formulas over whole vectors.

And all of them on ranks and over restarts.
"""

import numpy as np
import pytest
from command_lines import words
from conftest import LEARNER, POPULATION, ROUTINE, TASK
from esac_by_hand import LAYOUT, Teacher, Track, advance, epsilon, make
from whole_runs import assert_same_run, science

from esac_mpi.algorithms import esac, esac_transfer
from esac_mpi.learners.replay import Replay
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import play
from esac_mpi.play.transitions import Recorder, packed_size, unpacked
from esac_mpi.record import read

PLAIN = {
    "esac__optimiser": "sgd",
    "esac__winner_pull": 0.0,
}  # theta_es moves by lr * gradient alone
MEMBERS = [(i // 2, 1 - 2 * (i % 2)) for i in range(10)]


class Before:
    """What a generation starts from."""

    def __init__(self, state):
        vectors = [state.theta_es.copy(), state.theta_sac.copy(), *state.children.copy()]
        self.theta, self.sac, self.kinds = vectors[0], vectors[1], state.parents.tolist()
        self.parents, self.k = [vectors[kind] for kind in self.kinds], state.generation + 1

    def offspring(self, sigmas):
        """Return parent + sign * sigma * eps of every member, from the slots' sigmas."""
        return [
            self.parents[s] + np.float32(sign * sigmas[s]) * epsilon(self.k, s)
            for s, sign in MEMBERS
        ]


def returns(params, env, k, offspring):
    policy = make_policy(params, env)
    return [
        play(env, policy.set(o), noise.integer(0, Purpose.EPISODE, k, i)).episodic_return
        for i, o in enumerate(offspring)
    ]


def noise_gradient(row, k, slots):
    """Return line 11's sum over the members of `slots`, over n sigma."""
    ranks = evolution.centered_ranks(row["fitness"])
    return sum((ranks[2 * j] - ranks[2 * j + 1]) * epsilon(k, j) for j in slots) / (
        2 * len(slots) * 0.3
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"sac_copy_noise": False, "sac_copies": 0},
        {"winner_selection": "hard", "crossover": "off"},
        {"winner_selection": "uniform", "winner_fraction": 1.0, "crossover": "off"},
        {"gradient": "displacement", "sac_copies": 0, "crossover": "off"},
        {"gradient": "displacement_clipped", "sac_copies": 0, "crossover": "off"},
        {"sac_phases": False, "p_sac_initial": 0.0, "p_sac_final": 0.0},
        {"p_sac_annealed": False, "p_sac_final": 1.0},
        {"resimulated": "winners"},
        {"resimulated": "sample", "learner_lag": 2},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_switch_that_has_nothing_to_act_on_leaves_the_bits_as_they_are(world, settings):
    switch, *rest = settings
    states = []
    for chosen in (settings, {name: settings[name] for name in rest}):
        params, state, env = make(
            world, **{f"esac__{name}": value for name, value in chosen.items()}
        )
        learner = Teacher(np.full(LAYOUT.d, 0.01, np.float32))
        learner.replay = Replay(1000, 3, 3)
        advance(world, params, state, env, 6, learner)
        states.append(state)
    for name in ("theta_es", "adam_m", "adam_v", "theta_sac", "children"):
        np.testing.assert_array_equal(
            getattr(states[0], name), getattr(states[1], name), err_msg=f"{switch}: {name}"
        )
    assert states[0].sigma == states[1].sigma


def test_an_unperturbed_sac_copy_is_theta_sac_and_leaves_the_gradient(world):
    params, state, env = make(world, esac__sac_copy_noise=False, **PLAIN)
    advance(world, params, state, env)
    before = Before(state)
    assert before.kinds == [2, 3, 1, 0, 0]
    row = advance(world, params, state, env)
    assert row["fitness"].tolist() == returns(
        params, env, 2, before.offspring([0.3, 0.3, 0, 0.3, 0.3])
    )
    assert row["fitness"][4:6].tolist() == returns(params, env, 2, [before.sac] * 6)[4:]
    np.testing.assert_allclose(
        state.theta_es, before.theta + 0.05 * noise_gradient(row, 2, [0, 1, 3, 4]), atol=1e-6
    )


def test_hard_winners_are_shielded_from_mutation_and_leave_the_gradient(world):
    params, state, env = make(world, esac__winner_selection="hard", **PLAIN)
    advance(world, params, state, env)
    before = Before(state)
    row = advance(world, params, state, env)
    offspring = before.offspring([0, 0, 0.3, 0.3, 0.3])
    assert row["fitness"].tolist() == returns(params, env, 2, offspring)
    assert row["fitness"][:2].tolist() == returns(params, env, 2, [before.parents[0]] * 2)
    np.testing.assert_allclose(
        state.theta_es, before.theta + 0.05 * noise_gradient(row, 2, [2, 3, 4]), atol=1e-6
    )
    for child in range(2):  # made of the winner as it was evaluated, and of theta_es
        winner = offspring[row["winners"][child]]
        taken = state.children[child] != state.theta_es
        assert taken.any()
        np.testing.assert_array_equal(state.children[child][taken], winner[taken])


def test_the_pull_goes_to_the_winners_as_they_were_evaluated(world):
    settings = {
        "esac__sac_copy_noise": False,
        "esac__winner_selection": "hard",
        "esac__optimiser": "sgd",
    }
    params, state, env = make(world, **settings, esac__winner_fraction=0.6, esac__winner_pull=0.5)
    kinds = set()
    for k in range(1, 5):
        before = Before(state)
        row = advance(world, params, state, env)
        noisy = [slot for slot, kind in enumerate(before.kinds) if kind == esac.CENTRE]
        offspring = before.offspring([0.3 if slot in noisy else 0 for slot in range(5)])
        stepped = before.theta + 0.05 * noise_gradient(row, k, noisy)
        mean = np.mean([offspring[i] for i in row["winners"]], axis=0)
        np.testing.assert_allclose(state.theta_es, (stepped + mean) / 2, atol=2e-6)
        kinds |= set(row["parent"][row["winners"]].tolist())
    assert kinds >= {0, 1, 2}


def test_uniform_winners_are_drawn_and_then_ordered(world):
    params, state, env = make(world, esac__winner_selection="uniform", esac__sac_phases=False)
    others = 0
    for k in range(1, 9):
        row = advance(world, params, state, env)
        drawn = noise.generator(0, Purpose.WINNERS, k).permutation(10)[:4]
        fitness = row["fitness"][row["winners"]]
        assert set(row["winners"].tolist()) == set(drawn.tolist())
        assert fitness.tolist() == sorted(fitness, reverse=True)
        others += set(row["winners"].tolist()) != set(
            evolution.select_winners(row["fitness"], 4).tolist()
        )
    assert others >= 6  # of 8: by chance they are the best in one of 210


def test_uniform_winners_are_drawn_among_the_finite(world):
    params, _, _ = make(world, esac__winner_selection="uniform")
    fitness = np.array([1.0, np.nan, 3.0, np.inf, 5.0, 6.0, np.nan, 8.0, 9.0, -np.inf])
    drawn = [esac.select(params, k, fitness) for k in range(200)]
    assert {winners.size for winners in drawn} == {4}
    counts = np.bincount(np.concatenate(drawn), minlength=10)
    assert counts[[1, 3, 6, 9]].tolist() == [0] * 4
    expected = 200 * 4 / 6
    # four standard deviations
    assert np.abs(counts[[0, 2, 4, 5, 7, 8]] - expected).max() < 4 * np.sqrt(expected / 3)


@pytest.mark.parametrize("gradient", ["displacement", "displacement_clipped"])
@pytest.mark.parametrize("far", [0.0, 0.2])
def test_the_displacement_of_a_member_is_weighed_in_place_of_its_noise(world, gradient, far):
    params, state, env = make(world, esac__gradient=gradient, esac__sac_copy_noise=False, **PLAIN)
    state.theta_sac[:] += far
    advance(world, params, state, env)
    before = Before(state)
    row = advance(world, params, state, env)
    ranks, d = evolution.centered_ranks(row["fitness"]), LAYOUT.d
    total = np.zeros(d)
    for i, offspring in enumerate(before.offspring([0.3, 0.3, 0, 0.3, 0.3])):
        displacement = (offspring - before.theta).astype(float) / 0.3
        length = np.linalg.norm(displacement)
        if gradient == "displacement_clipped" and before.kinds[i // 2] != esac.CENTRE:
            displacement *= min(1, np.sqrt(d) / length)
        total += ranks[i] * displacement
    np.testing.assert_allclose(state.theta_es, before.theta + 0.05 * total / (10 * 0.3), atol=1e-6)
    plain = before.theta + 0.05 * noise_gradient(row, 2, range(5))
    assert np.linalg.norm(state.theta_es - plain) > 0.1


def test_theta_es_adopts_theta_sac_where_its_copies_outscore_the_centre(world):
    adopted = []
    for seed in range(6):
        params, state, env = make(world, esac__transfer="means", esac__winner_pull=0.0, seed=seed)
        other, plain, _ = make(world, esac__winner_pull=0.0, seed=seed)
        row = advance(world, params, state, env)
        advance(world, other, plain, Track())
        better = row["fitness"][4:6].mean() > np.delete(row["fitness"], [4, 5]).mean()
        np.testing.assert_array_equal(state.theta_es, state.theta_sac if better else plain.theta_es)
        np.testing.assert_array_equal(state.adam_m, plain.adam_m)
        adopted.append(bool(better))
    assert set(adopted) == {True, False}


def test_copies_outscore_by_their_mean_finite_return():
    parents = np.array([esac.CHILD, esac.SAC_COPY, esac.CENTRE])
    for fitness, better in (
        ([9, 9, 3, 1, 1, 2], True),
        ([0, 0, 3, 0, 1, 2], False),  # equal
        ([0, 0, 3, np.nan, 1, 2], True),
        ([0, 0, np.nan, np.nan, 1, 2], False),
        ([0, 0, 1, 2, np.nan, -np.inf], True),
    ):
        assert esac_transfer.outscored(parents, np.array(fitness, float)) == better


def test_no_sac_phase_ever_begins_if_told(world):
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    params, state, env = make(
        world, esac__sac_phases=False, esac__gradient_interval=1, esac__gate="normal"
    )
    off, closed, _ = make(world, esac__p_sac_initial=0.0, esac__p_sac_final=0.0)
    for _ in range(6):
        row = advance(world, params, state, env, learner=learner)
        assert (row["p_sac"], row["sac_phase"]) == (0, 0)
        advance(world, off, closed, Track())
    assert (learner.phases, state.counters.learner_phases, state.sigma) == ([], 0, 0.3)
    np.testing.assert_array_equal(state.theta_es, closed.theta_es)


def test_p_sac_stays_where_it_is_not_annealed(world):
    params, state, env = make(
        world, esac__p_sac_annealed=False, esac__p_sac_initial=0.75, esac__p_sac_decay=1.0
    )
    assert [advance(world, params, state, env)["p_sac"] for _ in range(4)] == [0.75] * 4
    params, state, env = make(world, esac__p_sac_initial=0.75, esac__p_sac_decay=1.0)
    assert advance(world, params, state, env, 4)["p_sac"] == pytest.approx(0.1 + 0.65 * np.exp(-4))


def test_a_shaping_changes_the_gradient_and_not_who_wins(world):
    params, state, env = make(
        world, esac__fitness_shaping="standardised", esac__amt_input="rank", **PLAIN
    )
    theta = state.theta_es.copy()
    row = advance(world, params, state, env)
    shaped = (row["fitness"] - row["fitness"].mean()) / row["fitness"].std()
    gradient = sum((shaped[2 * j] - shaped[2 * j + 1]) * epsilon(1, j) for j in range(5)) / (
        10 * 0.3
    )
    np.testing.assert_allclose(state.theta_es, theta + 0.05 * gradient, atol=1e-6)
    assert row["winners"].tolist() == evolution.select_winners(row["fitness"], 4).tolist()


class Rough(Track):
    """Bounds 0 and 4; the fifth reward of an episode is nan.

    The simulator warns from the eighth step on; the tenth ends it.
    """

    low, high = np.zeros(3, np.float32), np.full(3, 4, np.float32)

    def step(self, action):
        observation, reward, _, ended = super().step(action)
        return observation, np.nan if self.left == 5 else reward, ended, False

    @property
    def unstable(self):
        return self.left <= 2


def test_a_recorder_keeps_what_can_be_learned_from_and_packs_it():
    recorder = Recorder(Rough(), 20)
    actions = np.random.default_rng(0).uniform(0, 4, (10, 3)).astype(np.float32)
    for seed in (4, 5):
        observations = [recorder.reset(seed)]
        observations += [recorder.step(action)[0] for action in actions]
    assert recorder.count == 2 * 6  # steps 1 to 4, 6 and 7 of each episode
    rows = unpacked(recorder.packed(), 11)
    assert (rows.shape, recorder.packed().dtype, recorder.packed().shape) == (
        (12, 11),
        np.float64,
        (packed_size(20, 11),),
    )
    for row, step in zip(rows[6:], (0, 1, 2, 3, 5, 6), strict=True):
        np.testing.assert_array_equal(row[:3], observations[step])
        np.testing.assert_allclose(row[3:6], actions[step] / 2 - 1, atol=1e-6)
        assert row[6] == pytest.approx(
            -np.square(actions[step] - observations[step]).sum(), rel=1e-5
        )
        assert row[7] == 0
        np.testing.assert_array_equal(row[8:], observations[step + 1])
    assert packed_size(3, 7) == 1 + 11  # the count, and 21 numbers, two by two


class Scaling(Track):
    """Track that scales the action it is given in place, as a user's own task may."""

    def step(self, action):
        action *= 10
        return super().step(action)


def test_a_recorder_keeps_the_action_that_was_taken_whatever_the_task_makes_of_it():
    recorder = Recorder(Scaling(), 1)
    recorder.reset(0)
    recorder.step(np.array([0.36, 0.09, -1.0], np.float32))
    np.testing.assert_array_equal(recorder.rows[0, 3:6], np.array([0.36, 0.09, -1.0], np.float32))


def test_a_recorder_knows_an_end_from_a_time_limit():
    for task, terminated in ((Ending(), 1.0), (Track(), 0.0)):
        recorder = Recorder(task, 10)
        recorder.reset(0)
        for _ in range(10):
            recorder.step(np.zeros(3, np.float32))
        assert recorder.rows[:, 7].tolist() == [0.0] * 9 + [terminated]


class Ending(Track):
    """Track whose tenth step is an end and no time limit."""

    def step(self, action):
        observation, reward, _, ended = super().step(action)
        return observation, reward, ended, False


ALL = words(
    "--esac.winner_selection hard --esac.sac_copy_noise false --esac.gradient displacement_clipped"
)
ALL += words(
    "--esac.action_noise 0.1 --esac.fitness_shaping sign_ranks --esac.fitness_episodes 2 --seed 5"
)
ALL += words(
    "--esac.transfer tested --esac.transfer_episodes 2 "
    "--esac.resimulated sample --esac.resimulated_members 3"
)
ALL += words(
    "--esac.phase_timing virtual --esac.sac_min_steps 30 --esac.update_cost 0.4 --esac.workers 2"
)
ALL += ["--esac.length_cap", 1.5, "--esac.sigma_rule", "grow", "--policy.linear", "false"]


def test_switches_depend_neither_on_ranks_nor_on_nodes_nor_on_restarts(tmp_path, alone, together):
    arguments = [*TASK, *POPULATION, *LEARNER, *ROUTINE, *ALL]
    alone(*arguments, "--budget.generations", 9, "--run-dir", tmp_path / "straight")
    for generations, ranks in ((5, 3), (9, 2)):
        together(
            ranks,
            *arguments,
            "--budget.generations",
            generations,
            "--run-dir",
            tmp_path / "parts",
            nodes=2,
        )
        assert read(tmp_path / "parts/checkpoint.h5")[0]["state/phase_begun"] > 0  # in flight
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    rows = science(tmp_path / "straight")
    assert rows["metrics/gradient_updates"][-1] > 0
    begun, entered = rows["metrics/sac_phase"], np.diff(rows["metrics/learner_phases"], prepend=0)
    assert entered.sum() >= 3
    assert begun.sum() == entered.sum() + 1
    tried = np.isfinite(rows["metrics/trial_sac"]).all(axis=1)
    assert tried[1:].tolist() == entered[:-1].astype(bool).tolist()
    assert rows["metrics/env_steps_replayed"][-1] > 0
