"""Phases of learners that play: what they play, count and store, their addresses, their hold."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gradients import Breaking, Line, distance, modules, same, through
from small_learners import RIVALS, SAC_FORMS, learn, learner, perturbed, played, run_phase

from esac_mpi.algorithms import td3
from esac_mpi.config import Config, amend
from esac_mpi.envs import UnstablePhysics
from esac_mpi.host import cooperative
from esac_mpi.learners import LearnerNotFinite, cpu, updates
from esac_mpi.operators.policy import Layout, Policy

NAMES = ["sac", *RIVALS]
KINDS = [("sac", form) for form in SAC_FORMS]
COMPILED = {"learner__kernels": "compiled", "sac__automatic_temperature": True}
if cpu.KIND:
    KINDS += [("sac", {**COMPILED, "policy__linear": linear}) for linear in (False, True)]
KINDS += [(name, {"interleaved": interleaved}) for name in RIVALS for interleaved in (True, False)]
NORMED = {"policy__layer_norm": True}

# --- what is played, counted and stored


@pytest.mark.parametrize(
    ("episodes", "steps", "played"), [(2, 0, 2), (0, 41, 3), (5, 41, 5), (0, 0, 0)]
)
def test_a_phase_plays_whole_episodes_until_both_are_enough(episodes, steps, played):
    phase = run_phase(learner("sac"), Line(), 0, episodes, steps)
    assert (phase.episodes, phase.env_steps) == (played, 20 * played)
    assert phase.gradient_updates == 20 * played
    assert math.isfinite(phase.critic_loss) == (played > 0)
    assert math.isnan(phase.value_loss)


def test_cut_plays_exactly_the_steps_and_bootstraps_at_the_cut():
    sac = learner("sac")
    phase = run_phase(sac, Line(terminate=True), 0, 9, 50, cut=True)
    assert phase.env_steps == phase.gradient_updates == sac.env_steps == 50
    assert phase.episodes == 2
    rows = sac.replay.rows(0, 50)
    assert np.flatnonzero(rows["terminated"]).tolist() == [19, 39]
    assert phase.episodic_return == pytest.approx(rows["reward"][:40].sum() / 2, rel=1e-5)
    truncated = learner("sac")
    run_phase(truncated, Line(), 0, 0, 40)
    assert not truncated.replay.rows(0, 40)["terminated"].any()


def test_no_update_before_a_batch_and_no_fraction_is_lost():
    sac = learner("sac", batch_size=32, updates_per_step=0.12)
    phases = [run_phase(sac, Line(), k, 1, 0) for k in range(5)]
    # of 20 steps: 2.4 each; round(.12 * 20 k) = 2 5 7 10 12
    assert [p.gradient_updates for p in phases] == [0, 3, 2, 3, 2]
    assert math.isnan(phases[0].critic_loss)
    sac = learner("sac", batch_size=32, interleaved=True)
    updates = [run_phase(sac, Line(), k, 1, 0).gradient_updates for k in range(3)]
    assert updates == [0, 9, 20]  # from the 32nd step on


def test_a_phase_learns_after_every_so_many_steps_and_acts_by_it():
    env, whole = Line(), Line()
    made, at_end = learner("sac", start_steps=0), learner("sac", start_steps=0)
    parts = [bool(part) for part in made.begin(env, 0, 0, 50, cut=True, every=20)]
    each = [False] * 20 + [True] * 40
    assert parts == [*each, *each, *[False] * 10, *[True] * 20]
    run_phase(at_end, whole, 0, 0, 50, cut=True)
    assert env.actions[:20] == whole.actions[:20]
    assert env.actions[20] != whole.actions[20]
    stepwise, interleaved = learner("sac"), learner("sac", interleaved=True)
    run_phase(stepwise, Line(), 0, 0, 50, cut=True, every=1)
    run_phase(interleaved, Line(), 0, 0, 50, cut=True)
    assert same(stepwise.arrays(), interleaved.arrays())


@pytest.mark.parametrize("name", RIVALS)
def test_td3_and_ddpg_learn_nothing_from_their_first_steps(name):
    made = learner(name, start_steps=400, updates_per_step=0.5)
    phase = run_phase(made, Line(), 0, 0, 399, cut=True)
    assert (phase.env_steps, phase.episodes, phase.gradient_updates) == (399, 19, 0)
    assert math.isnan(phase.critic_loss)
    phases = [run_phase(made, Line(), k, 0, 7, cut=True) for k in (1, 2)]
    # of 6 and 7: round(3), round(6.5) - 3
    assert [phase.gradient_updates for phase in phases] == [3, 3]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_steps_are_uniform_and_actions_are_scaled(name):
    env, made = Line(), learner(name, start_steps=400, updates_per_step=0.0)
    made.actor.values.fill_(0.0)
    outputs = [0.4] if name in RIVALS else [0.4, -20.0]  # mean and log std of the actor's actions
    made.actor.values[-len(outputs) :] = torch.tensor(outputs)
    run_phase(made, env, 0, 0, 440)
    stored = made.replay.rows(0, 440)["action"][:, 0]
    # [-1, 1] is what is stored, [-3, 1] what the task got
    assert np.abs(env.actions - stored).max() < 1e-6
    assert np.abs(np.histogram(stored[:400], 4, (-1, 1))[0] - 100).max() < 5 * np.sqrt(75)
    noise = made.options.exploration_noise if name in RIVALS else 0.0
    assert np.abs(stored[400:] - np.tanh(0.4)).max() < 5 * noise + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_episodes_have_own_starts_and_phases_own_noise(name):
    env, made = Line(), learner(name, start_steps=1000)
    for k in (0, 1):
        run_phase(made, env, k, 2, 0)
    assert len(set(env.seeds)) == 4
    assert len(set(env.actions)) == 80


@pytest.mark.parametrize("how", ["raise", "warn", "reward", "huge", "observation"])
@pytest.mark.parametrize("name", NAMES)
def test_a_broken_transition_ends_the_episode_and_is_not_stored(name, how):
    made = learner(name)
    phase = run_phase(made, Breaking(how), 0, 2, 0)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes) == (8, 0, 2)
    assert math.isnan(phase.episodic_return)
    assert made.replay.added == 6
    assert all(np.isfinite(column).all() for column in made.replay.rows(0, 6).values())


def test_starts_that_fail_are_counted_in_a_short_phase_too():
    class Seldom(Line):
        def reset(self, seed):
            observation = super().reset(seed)
            if len(self.seeds) % 8:
                raise UnstablePhysics
            return observation

    phase = run_phase(learner("sac"), Seldom(), 0, 0, 2, cut=True)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes) == (2, 0, 7)


@pytest.mark.parametrize("name", [*NAMES, "erl"])
def test_a_learner_that_is_not_finite_says_so(name):
    for part in ("actor", "critic", *learner(name).targets):
        made = learner(name, start_steps=1000)
        network = {**made.targets, "actor": made.actor, "critic": made.critic}[part]
        network.values[3] = math.nan
        said = f"the {name.upper()} learner's .*{part}.* no longer finite at training step 20"
        with pytest.raises(LearnerNotFinite, match=said):
            played(made, 0, 20)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_is_not_finite_takes_no_step(name):
    env, made = Line(), learner(name, start_steps=0)
    made.actor.tensors[-1][:] = math.nan
    with pytest.raises(LearnerNotFinite, match="action"):
        run_phase(made, env, 0, 1, 0)
    assert not env.actions


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("how", ["raise", "huge"])
def test_episodes_that_others_played_are_taken_over_whole(name, how, world):
    """Two of 20 steps, uniform; two by the actor; one that breaks in its fourth step."""

    def collect(env, episodes, k, noise):
        config = amend(Config(), {"algorithm": "td3", "td3.episodes_per_generation": episodes})
        params = SimpleNamespace(config=config, layout=layout, horizon=20)
        state = SimpleNamespace(generation=k - 1, theta=made.theta, normaliser=lambda config: None)
        return td3.play(params, state, world, env, noise).episodes()

    env, made = Line(), learner(name, start_steps=40, interleaved=False)
    layout = Layout((1, 8, 8, 1))
    mean = Policy(layout, "relu", "tanh", -np.ones(1), np.ones(1)).set(made.theta)
    uniform, acted = collect(env, 2, 1, None), collect(env, 2, 2, 0.0)
    broken = collect(Breaking(how), 1, 3, 0.0)
    assert [(len(rows), steps) for rows, _, steps in [*uniform, *acted]] == [(20, 20)] * 4
    assert [(len(rows), steps) for rows, _, steps in broken] == [(3, 4)]
    assert np.isnan(broken[0][1])
    assert np.ptp(uniform[0][0][:, 1]) > 1.5
    means = [mean(row[:1].astype(np.float32))[0] for row in acted[1][0]]
    assert np.array_equal(acted[1][0][:, 1], means)
    x, a, reward, terminated, following = acted[0][0].T
    assert reward == pytest.approx(-((a - x / 2) ** 2), rel=1e-5, abs=1e-7)
    assert acted[0][1] == pytest.approx(-np.sum((a - x / 2) ** 2), rel=1e-5)
    assert not terminated.any()
    assert np.array_equal(following[:-1], x[1:])
    assert len(set(env.seeds)) == 4

    phase = cooperative.run(made.take(uniform, 1))
    assert (phase.env_steps, phase.episodes, phase.gradient_updates) == (40, 2, 0)
    phase = cooperative.run(made.take([*acted, *broken], 2))
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes) == (44, 2, 1)
    assert phase.gradient_updates == 44
    assert phase.episodic_return == pytest.approx((acted[0][1] + acted[1][1]) / 2)
    expected = np.vstack([rows for rows, *_ in [*uniform, *acted, *broken]]).astype(np.float32)
    stored = made.replay.rows(0, made.replay.added).values()  # by the order of a row's columns
    assert np.array_equal(np.column_stack(list(stored)), expected)


# --- bits


def grown(name, reserve=0, **form):
    """Return a learner whose ring of 60 transitions has wrapped, in the middle of TD3's delay."""
    made = learner(name, reserve=reserve, replay_capacity=60, **form)
    for k, steps in ((0, 61), (3, 61), (5, 1)):
        run_phase(made, Line(), k, 0, steps, cut=True)
    assert made.replay.added == 123
    assert made.adam["critic"].steps % 2 == 1 or name == "sac"
    return made


@pytest.mark.parametrize(("name", "form"), KINDS)
def test_what_is_drawn_for_several_updates_is_drawn_as_for_each(name, form, monkeypatch):
    """One by one, seven at once and then what is left of them, all at once."""
    sums, found = np.array([[10.0], [3.0], [9.0]]), []
    for most in (1, 7, 100):
        monkeypatch.setattr(updates, "MOST_AHEAD", most)
        made = learner(name, **form)
        assert made.update.ahead == most
        phase = run_phase(made, Line(), 1, 1, 100, sums=sums)
        assert phase.gradient_updates > 60
        found.append({**made.arrays(), "phase": np.nan_to_num(phase.vector())})
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize(("name", "form"), KINDS)
def test_a_phase_in_parts_and_one_begun_again_have_its_bits(name, form):
    """Interrupted after some of its 153 parts, held, saved, loaded and begun again elsewhere."""
    straight = grown(name, **form)
    arrays, rows = straight.arrays(), straight.replay.rows(63, 123)
    phase = run_phase(straight, Line(), 4, 0, 51, cut=True)
    assert not same(straight.arrays(), arrays)
    for pauses in (0, 45, 52, 101):
        parts = grown(name, reserve=60, **form)
        parts.hold()
        work = parts.begin(Line(), 4, 0, 51, cut=True)
        for _ in range(pauses):
            next(work)
        saved, stored = parts.arrays(), parts.stored_replay
        assert same(saved, arrays)
        assert (stored.added, stored.capacity) == (123, 60)
        assert same(stored.rows(63, 123), rows)
        rest, again = through(work)
        assert pauses + rest == 51 + 2 * 51
        assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
        assert same(parts.arrays(), arrays)
        parts.release()
        assert parts.stored_replay is parts.replay
        assert same(parts.arrays(), straight.arrays())
        assert same(parts.replay.rows(114, 174), straight.replay.rows(114, 174))

    resumed, elsewhere = (learner(name, replay_capacity=60, **form) for _ in range(2))
    for made in (resumed, elsewhere):
        made.load(saved)
        made.replay.restore(63, rows)
    torch.manual_seed(99)  # nothing hangs on torch's own generator
    again = run_phase(resumed, Line(), 4, 0, 51, cut=True)
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    assert same(resumed.arrays(), straight.arrays())
    assert np.array_equal(resumed.theta, straight.theta)
    run_phase(elsewhere, Line(), 6, 0, 51, cut=True)
    assert not np.array_equal(elsewhere.theta, straight.theta)


def test_arrays_of_another_learner_are_refused():
    names = "learner arrays must be"
    shapes = r"must be float32 \[\d+\], got float32 \[\d+\]"
    sac, td3, ddpg = (learner(name) for name in NAMES)
    for one, other, said in (
        (sac, learner("sac", value_network=True), names),
        (td3, sac, names),
        (sac, learner("sac", (1, 9, 9, 1)), shapes),
        (td3, ddpg, shapes),  # the same names, another number of critics
    ):
        with pytest.raises(ValueError, match=said):
            one.load(other.arrays())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("sac", NORMED),
        ("erl", {"critic_hidden": (32, 32), **NORMED}),
        *((name, {}) for name in NAMES),
    ],
)
def test_bfloat16_products_are_close_and_parameters_float32(name, form):
    """bfloat16 has 8 bits: gradients within a few percent; Adam steps float32 weights."""
    full, half = (
        perturbed(learner(name, (3, 32, 32, 2), batch_size=64, learner__precision=p, **form))
        for p in ("fp32", "bf16")
    )
    measured, close = learn(full), learn(half)
    assert close == pytest.approx(measured, rel=0.03, abs=0.02)
    for part in ("actor", "critic"):
        one, other = getattr(full, part), getattr(half, part)
        assert 1e-4 < distance(other.gradient, one.gradient.double()) < 0.05
        assert other.values.dtype == other.gradient.dtype == torch.float32
        rate = full.adam[part].learning_rate
        # one step of Adam each, either way
        assert torch.allclose(one.values, other.values, atol=2 * rate + 1e-6)
    for step in range(20):
        learn(full, step)
        learn(half, step)
    for part, target in full.targets.items():
        assert 0 < distance(half.targets[part].values, target.values.double()) < 1e-3
    assert distance(half.critic.values, full.critic.values.double()) < 0.02


# --- the actor


@pytest.mark.parametrize(("layer_norm", "linear"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("name", NAMES)
def test_theta_is_the_policys(name, layer_norm, linear):
    form = {"policy__layer_norm": layer_norm, "policy__linear": linear}
    layout = Layout((3, 8, 8, 2), layer_norm, 4.0 * linear)
    assert np.array_equal(learner(name, (3, 8, 8, 2), **form).theta, layout.initial(0, 1))
    made = perturbed(learner(name, (3, 8, 8, 2), **form))
    policy = Policy(layout, "relu", "tanh", -np.ones(2), np.ones(2)).set(made.theta)
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    outputs = modules(made.actor)[0](torch.from_numpy(observations).double())
    mean = outputs[:, :2].tanh().detach().numpy()
    assert np.abs(np.stack([policy(o).copy() for o in observations]) - mean).max() < 1e-6
    made.theta[:] = 0  # a copy
    assert made.theta.any()


@pytest.mark.parametrize("name", RIVALS)
def test_an_actor_plays_with_noise_of_its_size(name):
    made = perturbed(learner(name, (3, 8, 8, 2), exploration_noise=0.05))
    policy = Policy(Layout((3, 8, 8, 2)), "relu", "tanh", -np.ones(2), np.ones(2)).set(made.theta)
    observation = np.array([0.1, -0.2, 0.3], np.float32)
    random = np.random.default_rng(0)

    def draw(count):
        explorer = made._explorer(None, random)
        return np.stack([explorer(observation) for _ in range(count)])

    drawn = draw(4000)
    assert drawn.dtype == np.float32
    assert np.abs(drawn.mean(0) - policy(observation)).max() < 5 * 0.05 / math.sqrt(4000)
    assert drawn.std(0) == pytest.approx([0.05, 0.05], rel=0.06)
    made.actor.tensors[-1][:] = 30.0  # mean 1
    drawn = draw(100)
    assert drawn.max() == 1 > drawn.min() > 0.7


def test_what_ranks_without_a_learner_import_is_without_torch():
    modules = "esac_mpi.learners, esac_mpi.play.learner_phases, esac_mpi.learners.replay"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
