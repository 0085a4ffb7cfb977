"""Observation normalisation: what batches, learners and ESAC make of it, by the plain formula."""

from functools import partial

import numpy as np
import pytest
import torch
from esac_by_hand import LAYOUT, Teacher, Track, advance, make
from gradients import Line, same
from small_learners import RIVALS, SAC_FORMS, run_phase, sac
from small_learners import learner as rival
from small_ppo import KINDS, task
from small_ppo import learner as ppo
from small_runs import begun
from warm_starts import options

from esac_mpi.config import load
from esac_mpi.host import cooperative
from esac_mpi.learners.updates import Batch
from esac_mpi.operators import noise
from esac_mpi.operators.kernels import count_in
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import LEAST, SHRINKS, Normaliser
from esac_mpi.play import population, state
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import play

# of 4 observations in two columns: 1, 1, 3, 3 and 0, 0, 0, 0: means 2 and 0,
# standard deviations 1 and 0.1, which is the least
SUMS = np.array([[4, 4], [8, 0], [20, 0]], np.float64)
OFF_POLICY = [
    *(partial(sac, **form) for form in SAC_FORMS),
    *(partial(rival, name) for name in RIVALS),
]
IDS = ["sac", "value", "temperature", "interleaved", *RIVALS]


def of_line() -> np.ndarray:
    """Return sums over 100 observations of Line with mean 0.4 and standard deviation 0.2."""
    return 100 * np.array([[1.0], [0.4], [0.2**2 + 0.4**2]])


def by_formula(x: np.ndarray) -> np.ndarray:
    """Return observations of Line as they are seen by `of_line`."""
    return np.clip((x - np.float32(0.4)) / np.float32(0.2), -5, 5)


def test_statistics_are_those_of_what_was_counted():
    sums = np.zeros((3, 2))
    assert Normaliser.of(sums) is None
    for x in (1, 3, 1, 3):
        count_in(sums, np.array([x, 0], np.float32))
    np.testing.assert_array_equal(sums, SUMS)
    normaliser = Normaliser.of(sums)
    np.testing.assert_array_equal(normaliser.mean, np.array([2, 0], np.float32))
    np.testing.assert_array_equal(normaliser.std, np.array([1, 0.1], np.float32))
    np.testing.assert_allclose(normaliser(np.array([2.5, 0.2], np.float32)), [0.5, 2])
    np.testing.assert_array_equal(normaliser(np.array([-9, 9], np.float32)), [-5, 5])
    np.testing.assert_array_equal(Normaliser.of(SUMS, SHRINKS).std, np.ones(2, np.float32))
    np.testing.assert_array_equal(Normaliser.of(SUMS * [[1], [2], [4]], SHRINKS).std, [2, 1])


def test_a_batch_has_its_observations_alone_standardised():
    batch = Batch(torch.zeros(1), 2, 2, 1)
    # o, a, reward, terminated, o'
    raw = np.array([[2.5, 0.05, 0.3, 70, 1, 1, -0.1], [9, -9, -0.3, -70, 0, 3, 0]], np.float32)
    for normaliser, expected in (
        (None, raw),
        (Normaliser.of(SUMS), [[0.5, 0.5, 0.3, 70, 1, -1, -1], [5, -5, -0.3, -70, 0, 1, 0]]),
        (None, raw),
    ):
        batch.standardise(normaliser)
        batch.rows[:] = raw
        batch.move()
        expected = torch.tensor(np.array(expected, np.float32))
        assert torch.equal(batch.observation, expected[:, :2])
        assert torch.equal(batch.taken, expected[:, :3])
        assert torch.equal(batch.reward, expected[:, 3])
        assert torch.equal(batch.terminated, expected[:, 4])
        assert torch.equal(batch.next_observation, expected[:, 5:])


def standardised_by_itself(plain):
    """Return a task with `plain`'s observations, standardised; what it pays stays the same."""

    class Standardised(type(plain)):
        def observe(self):
            return by_formula(super().observe())

    return Standardised()


def seen_of(observations) -> list:
    whole = observations.astype(np.float64)
    return [[len(whole)], whole.sum(0), np.square(whole).sum(0)]


@pytest.mark.parametrize("made", OFF_POLICY, ids=IDS)
def test_a_learner_given_sums_learns_as_in_a_standardised_task(made):
    """To the bit: actions, gradients and losses; the replays differ by the plain formula."""
    plain, standardised = made(), made()
    for k in (0, 1):
        ours = run_phase(plain, Line(), k, 1, 50, sums=of_line())
        theirs = run_phase(standardised, standardised_by_itself(Line()), k, 1, 50)
        assert np.array_equal(ours.vector(), theirs.vector(), equal_nan=True)
    assert ours.gradient_updates > 0
    assert same(plain.arrays(), standardised.arrays())
    raw = plain.replay.rows(0, plain.replay.added)
    seen = standardised.replay.rows(0, plain.replay.added)
    for name in ("observation", "next_observation"):
        np.testing.assert_array_equal(seen[name], by_formula(raw[name]))
    assert np.abs(raw["observation"]).max() <= 1 < np.abs(seen["observation"]).max()
    acted_on = raw["observation"][-60:]  # of the second phase: three episodes
    np.testing.assert_allclose(plain.seen, seen_of(acted_on), rtol=1e-12)
    assert standardised.seen is None


@pytest.mark.parametrize(("chosen", "least"), [(True, 0.2), ("shrink", 1)])
def test_a_learner_shrinks_where_the_algorithm_does(chosen, least):
    made = sac(esac__observation_normalisation=chosen)
    made.standardise(of_line())
    assert made.normaliser.std == np.float32(least)


@pytest.mark.parametrize("name", RIVALS)
def test_episodes_of_others_are_counted_and_standardised(name):
    taken, standardised = rival(name), rival(name)
    rows = np.random.default_rng(0).uniform(-1, 1, (40, 5)).astype(np.float32)
    seen = rows.copy()
    seen[:, [0, 4]] = by_formula(rows[:, [0, 4]])
    ours = cooperative.run(taken.take([(rows, 1.0, 40)], 0, of_line()))
    theirs = cooperative.run(standardised.take([(seen, 1.0, 40)], 0))
    assert ours == theirs
    assert ours.gradient_updates > 0
    assert same(taken.arrays(), standardised.arrays())
    np.testing.assert_allclose(taken.seen, seen_of(rows[:, :1]), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ppo_given_sums_learns_as_in_a_standardised_task(kind):
    plain, standardised, env, other = ppo(kind), ppo(kind), task(kind), task(kind)
    other = standardised_by_itself(other)
    for k in (1, 2):
        ours = run_phase(plain, env, k, 0, 47, sums=of_line())
        theirs = run_phase(standardised, other, k, 0, 47)
        assert np.array_equal(ours.vector(), theirs.vector(), equal_nan=True)
    assert same(plain.arrays(), standardised.arrays())
    assert plain.seen[0, 0] == 47
    assert np.abs(plain.seen[1, 0]) < 47


class Watcher(Teacher):
    """A teacher that notes by which sums it is to see, and says that it saw SUMS of its own."""

    seen = np.array([[7.0] * 3, [3.5] * 3, [2.0] * 3])

    def begin(self, env, k, episodes, steps, cut=False, sums=None, every=0):
        self.sums.append(sums)
        return (yield from super().begin(env, k, episodes, steps, cut))


NORMALISED = {"observation_normalisation": True, "gradient_interval": 3, "p_sac_final": 1.0}


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_phase_sees_by_the_sums_before_its_generation(world, lag, restarted):
    params, values, env = make(world, learner_lag=lag, **NORMALISED)
    learner, history = Watcher(np.full(LAYOUT.d, 0.01, np.float32)), [values.observation_sums]
    learner.sums = []
    for _ in range(8):
        if restarted and values.flight.phase_begun:
            world.end_background()  # as in a new process
        advance(world, params, values, env, learner=learner)
        history.append(values.observation_sums)
    assert learner.phases == [3, 6]
    np.testing.assert_array_equal(learner.sums, [history[2], history[5]])
    # of 10 members, 10 steps each
    steps = [10 * 10 * k + 7 * ((k >= 3 + lag) + (k >= 6 + lag)) for k in range(9)]
    assert [sums[0, 0] for sums in history] == steps


@pytest.mark.parametrize(("chosen", "least"), [(True, LEAST), ("shrink", SHRINKS)])
def test_members_see_by_the_statistics_before_them(world, chosen, least):
    params, values, env = make(world, observation_normalisation=chosen, sac_phases=False)
    for k in (1, 2, 3):
        sums, returns = values.observation_sums, []
        policy = make_policy(params, env, Normaliser.of(sums, least))
        for i in range(10):
            slot, sign = i // 2, 1 - 2 * (i % 2)
            population.perturb(params, policy, k, slot, values.parent(slot), sign, 0.3)
            seen = np.zeros((3, 3))
            seed = noise.integer(0, Purpose.EPISODE, k, i)
            returns.append(play(Track(), policy, seed, partial(count_in, seen)).episodic_return)
            sums = sums + seen
        row = advance(world, params, values, env)
        assert row["fitness"].tolist() == returns
        np.testing.assert_allclose(values.observation_sums, sums, rtol=1e-12)
        assert (policy.normaliser is None) == (k == 1)


# es had them in every version
@pytest.mark.parametrize("name", ["ddpg", "esac", "ppo", "sac", "td3"])
def test_a_state_of_a_version_without_statistics_is_taken_over(world, name):
    values = begun(world, options(name)).state
    former = {**state.arrays(values), "generation": np.array(3)}
    for lacking in ("observation_sums", "phase_sums"):
        former.pop(lacking, None)
    state.load(values, former)
    assert values.generation == 3
    assert values.normaliser(load([*map(str, options(name))])[0]) is None
    assert values.observation_sums.tolist() == [[0, 0, 0]] * 3


def test_a_saved_number_keeps_its_kind_and_a_shared_array_its_shape(world):
    values = begun(world, options("sac")).state
    former = state.arrays(values)
    state.load(values, {**former, "generation": np.array(1.5)})
    assert values.generation == 1.5
    with pytest.raises(ValueError, match=r"theta_sac is \[1\], no longer"):
        state.load(values, {**former, "theta_sac": former["theta_sac"][:1]})
