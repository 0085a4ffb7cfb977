"""The phases of the SAC learner: what they play and count, their addresses, their hold.

And that it learns.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from gradients import Breaking, Line, same, through
from small_sac import FORMS, SMALL, learner

from esac_mpi.config import Config, updated
from esac_mpi.learners import LearnerNotFinite, make
from esac_mpi.learners.sac import SAC
from esac_mpi.operators.policy import Layout, Policy


@pytest.mark.parametrize(
    ("episodes", "steps", "played"), [(2, 0, 2), (0, 41, 3), (5, 41, 5), (0, 0, 0)]
)
def test_a_phase_plays_whole_episodes_until_both_are_enough(episodes, steps, played):
    phase = learner().phase(Line(), 0, episodes, steps)
    assert (phase.episodes, phase.env_steps) == (played, 20 * played)
    assert phase.gradient_updates == (20 * played if played else 0)
    assert math.isfinite(phase.critic_loss) == (played > 0)
    assert math.isnan(phase.value_loss)


def test_cut_plays_exactly_the_steps_and_bootstraps_at_the_cut():
    sac = learner()
    phase = sac.phase(Line(terminate=True), 0, 9, 50, cut=True)
    assert (phase.env_steps, phase.episodes, phase.gradient_updates, sac.env_steps) == (
        50,
        2,
        50,
        50,
    )
    assert np.flatnonzero(sac.replay.rows(0, 50)["terminated"]).tolist() == [19, 39]
    assert phase.episodic_return == pytest.approx(
        sac.replay.rows(0, 40)["reward"].sum() / 2, rel=1e-5
    )
    truncated = learner()
    truncated.phase(Line(), 0, 0, 40)
    assert not truncated.replay.rows(0, 40)["terminated"].any()


def test_no_update_before_a_batch_is_there_and_no_fraction_is_lost():
    sac = learner(sac__batch_size=32, sac__updates_per_step=0.12)
    phases = [sac.phase(Line(), k, 1, 0) for k in range(5)]
    assert [p.gradient_updates for p in phases] == [
        0,
        3,
        2,
        3,
        2,
    ]  # of 20 steps: 2.4 each; round(.12 * 20 k) = 2 5 7 10 12
    assert math.isnan(phases[0].critic_loss)
    interleaved = learner(sac__batch_size=32, sac__interleaved=True)
    assert [interleaved.phase(Line(), k, 1, 0).gradient_updates for k in range(3)] == [
        0,
        9,
        20,
    ]  # from the 32nd step on


def test_the_first_steps_are_uniform_and_actions_are_scaled_to_the_bounds():
    env, sac = Line(), learner(sac__start_steps=400, sac__updates_per_step=0.0)
    sac.actor.values.fill_(0.0)
    sac.actor.values[-2:] = torch.tensor(
        [0.4, -20.0]
    )  # mean and log std of every action of the actor
    sac.phase(env, 0, 0, 440)
    stored = sac.replay.rows(0, 440)["action"][:, 0]
    assert (
        np.abs(env.actions - stored).max() < 1e-6
    )  # [-1, 1] is what is stored, [-3, 1] what the task got
    assert np.abs(np.histogram(stored[:400], 4, (-1, 1))[0] - 100).max() < 5 * np.sqrt(75)
    assert np.abs(stored[400:] - np.tanh(0.4)).max() < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_a_phase_is_a_function_of_the_learner_and_its_address(form):
    """Saved after two phases and loaded into a fresh learner, the third has the same bits.

    Another k has others.
    """
    straight = learner(**form)
    for k in (0, 3):
        straight.phase(Line(), k, 1, 30)
    saved, rows = straight.arrays(), straight.replay.rows(0, 80)
    resumed, elsewhere = learner(**form), learner(**form)
    for sac in (resumed, elsewhere):
        sac.load(saved)
        sac.replay.restore(0, rows)
    torch.manual_seed(99)  # nothing hangs on torch's own generator
    first, again, other = (
        straight.phase(Line(), 4, 1, 30),
        resumed.phase(Line(), 4, 1, 30),
        elsewhere.phase(Line(), 5, 1, 30),
    )
    assert np.array_equal(first.vector(), again.vector(), equal_nan=True)
    ours, theirs = straight.arrays(), resumed.arrays()
    assert ours.keys() == theirs.keys() == saved.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(straight.theta, resumed.theta)
    assert other.episodic_return != first.episodic_return
    assert not np.array_equal(elsewhere.theta, straight.theta)
    assert not np.array_equal(saved["actor_values"], ours["actor_values"])  # arrays are copies


def grown(**form) -> SAC:
    """Return a learner after phases that have wrapped its ring of 60 transitions."""
    sac = learner(sac__replay_capacity=60, **form)
    for k in (0, 3):
        sac.phase(Line(), k, 2, 50)
    assert sac.replay.added == 120
    return sac


@pytest.mark.parametrize("form", FORMS)
def test_a_phase_in_parts_has_the_bits_of_a_phase_at_once(form):
    """It pauses after each of 60 steps, and twice in each of 60 updates."""
    straight, parts = grown(**form), grown(reserve=60, **form)
    phase = straight.phase(Line(), 4, 1, 60)
    parts.hold()
    pauses, again = through(parts.begin(Line(), 4, 1, 60))
    assert pauses == 60 + 2 * 60
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    parts.release()
    assert same(straight.arrays(), parts.arrays())
    assert same(straight.replay.rows(120, 180), parts.stored_replay.rows(120, 180))


@pytest.mark.parametrize("pauses", [0, 1, 45, 60, 61, 101, 179])
@pytest.mark.parametrize("form", FORMS)
def test_a_held_learner_is_that_of_the_hold_and_the_phase_begun_again_has_the_same_bits(
    form, pauses
):
    """Interrupted after any number of its 180 parts, in a ring that has wrapped."""
    sac = grown(reserve=60, **form)
    arrays, rows = sac.arrays(), sac.replay.rows(60, 120)
    sac.hold()
    work = sac.begin(Line(), 4, 1, 60)
    for _ in range(pauses):
        next(work)
    saved, stored = sac.arrays(), sac.stored_replay
    assert same(saved, arrays)
    assert (stored.added, stored.capacity) == (120, 60)
    kept = stored.rows(60, 120)
    assert same(kept, rows)
    with pytest.raises(ValueError, match="transitions 60 to 120; asked for 60 to 121"):
        stored.rows(60, 121)

    resumed = learner(sac__replay_capacity=60, **form)
    resumed.load(saved)
    resumed.replay.restore(60, kept)
    again = resumed.phase(Line(), 4, 1, 60)
    _, phase = through(work)
    assert same(sac.arrays(), arrays)
    sac.release()
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    assert same(sac.arrays(), resumed.arrays())
    assert same(sac.stored_replay.rows(120, 180), resumed.stored_replay.rows(120, 180))
    assert sac.stored_replay is sac.replay
    assert not same(sac.arrays(), arrays)


def test_a_held_replay_is_not_overwritten():
    sac = grown(reserve=59)
    sac.hold()
    with pytest.raises(RuntimeError, match="holds a state for 59 more transitions"):
        sac.phase(Line(), 4, 3, 0)
    assert len(sac.stored_replay.rows(60, 120)["reward"]) == 60


def test_arrays_of_another_learner_are_refused():
    with pytest.raises(ValueError, match="learner arrays must be"):
        learner().load(learner(sac__value_network=True).arrays())
    with pytest.raises(ValueError, match=r"must be float32 \[\d+\], got float32 \[\d+\]"):
        learner().load(learner((1, 9, 9, 1)).arrays())


def test_episodes_have_their_own_start_states_and_phases_their_own_exploration():
    env, sac = Line(), learner(sac__start_steps=1000)
    sac.phase(env, 0, 2, 0)
    sac.phase(env, 1, 2, 0)
    assert len(set(env.seeds)) == 4
    assert len(set(env.actions)) == 80


@pytest.mark.parametrize("how", ["raise", "warn", "reward", "huge", "observation"])
def test_a_broken_transition_ends_the_episode_and_is_not_stored(how):
    sac = learner()
    phase = sac.phase(Breaking(how), 0, 2, 0)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes, sac.replay.added) == (
        8,
        0,
        2,
        6,
    )
    assert math.isnan(phase.episodic_return)
    assert all(np.isfinite(column).all() for column in sac.replay.rows(0, 6).values())


@pytest.mark.parametrize("name", ["actor", "critic", "target"])
def test_a_learner_that_is_not_finite_says_so(name):
    sac = learner(sac__start_steps=1000)
    getattr(sac, name).values[3] = math.nan
    with pytest.raises(LearnerNotFinite, match=f"{name}.* no longer finite at training step 20"):
        sac.phase(Line(), 0, 1, 0)


def test_a_policy_that_is_not_finite_takes_no_step():
    env, sac = Line(), learner(sac__start_steps=0)
    sac.actor.values[-2] = math.nan
    with pytest.raises(LearnerNotFinite, match="action"):
        sac.phase(env, 0, 1, 0)
    assert not env.actions


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sac_learns_a_line(seed):
    """a = x/2 in 800 updates: rms error of the mean over [-1, 1] below 0.06.

    8 seeds: 0.006-0.027; at first 0.28-0.37.
    """
    sac = learner(
        seed=seed, policy__hidden=(32, 32), sac__lr_sac=3e-3, sac__gamma=0.5,
        sac__temperature=0.01, sac__batch_size=64,
        sac__replay_capacity=1000, sac__start_steps=100, sizes=(1, 32, 32, 1),
    )  # fmt: skip
    policy = Policy(Layout((1, 32, 32, 1)), "relu", "tanh", -np.ones(1), np.ones(1))
    x = np.linspace(-1, 1, 41, dtype=np.float32)

    def error() -> float:
        policy.set(sac.theta)
        return float(
            np.sqrt(np.mean([(policy(x[i : i + 1])[0] - x[i] / 2) ** 2 for i in range(len(x))]))
        )

    before = error()
    updates = sum(sac.phase(Line(), k, 0, 100).gradient_updates for k in range(8))
    assert updates == 800
    assert error() < 0.06 < before


# --- what it costs the others


def test_importing_the_package_imports_no_torch():
    code = (
        "import sys, esac_mpi.learners, esac_mpi.play.learner_phases, esac_mpi.learners.replay; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_learners_are_made_by_name():
    config = updated(Config(), SMALL)
    layout = Layout((1, 8, 8, 1))
    for name in ("sac", "td3", "ddpg"):
        made = make(name, config, layout, layout.initial(0, 1), reserve=7)
        assert np.array_equal(made.theta, layout.initial(0, 1))
        assert made.replay.reserve == 7
