"""Our own steps, and episodes in the compiled loop, against the libraries' steps, bit for bit."""

import os
import signal
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import gymnasium
import kinds_of_tasks
import mujoco
import numpy as np
import pytest
from dm_control import suite
from dm_control.rl.control import PhysicsError
from dm_control.suite.cheetah import Cheetah
from dm_control.suite.cheetah import Physics as CheetahPhysics
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.registration import EnvSpec
from kinds_of_tasks import Library

from esac_mpi.envs import UnstablePhysics, closed_loop, make, mujoco_tasks, warning_counts
from esac_mpi.envs.closed_loop import Run
from esac_mpi.operators import kernels
from esac_mpi.operators.policy import Layout, Normaliser, Policy
from esac_mpi.play.rollout import SLICE, Episode, explore, play, playing
from esac_mpi.play.transitions import Recorder

NAMES = """Ant HalfCheetah Hopper Humanoid InvertedDoublePendulum InvertedPendulum Reacher Swimmer
Walker2d"""
GYMNASIUM = [f"{name}-v5" for name in NAMES.split()]
MORE = [("cartpole", "three_poles"), ("manipulator", "insert_ball"), ("point_mass", "hard")]
TASKS = [*suite.BENCHMARKING, *MORE]
SUITE = [f"dm_control/{domain}-{task}-v0" for domain, task in TASKS]
CHEETAH = "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv"
HALVED = gymnasium.wrappers.TransformReward.wrapper_spec(func=lambda r: r / 2)
OTHERS: dict[str, dict[str, Any]] = {
    "Costly-v5": {"kwargs": {"ctrl_cost_weight": 0.5}},
    "Placed-v5": {"kwargs": {"exclude_current_positions_from_observation": False}},
    "Slow-v5": {"kwargs": {"frame_skip": 2}},
    "Halved-v5": {"additional_wrappers": (HALVED,)},
}


@pytest.fixture(scope="module", autouse=True)
def other_tasks():
    for id, difference in OTHERS.items():
        gymnasium.register(id, CHEETAH, max_episode_steps=1000, **difference)
    yield
    for id in OTHERS:
        del gymnasium.registry[id]


@cache
def both(id: str) -> tuple[Any, Library]:
    return make(id), Library(id)


def pair(id: str, seed: int) -> SimpleNamespace:
    """Start the same episode in the adapter and in the library."""
    env, library = both(id)
    assert np.array_equal(env.reset(seed), library.reset(seed))
    physics = env._env.physics.data.ptr if library.suite else env._env.unwrapped.data
    return SimpleNamespace(env=env, library=library, physics=physics)


def assert_same_step(episode: SimpleNamespace, action: np.ndarray) -> bool:
    """Make one step in both; return whether the episode is over."""
    observation, *rest = episode.env.step(action)
    expected, *others = episode.library.step(action)
    assert observation.dtype == np.float32
    assert np.array_equal(observation, expected, equal_nan=True)
    assert rest == others
    assert [type(part) for part in rest] == [float, bool, bool]
    observation[:] = 9.0  # its reader's: must reach neither the physics nor the next step
    return rest[1] or rest[2]


def actions(kind: str, env: Any, seed: int, steps: int) -> np.ndarray:
    draws = kinds_of_tasks.actions(env, seed, steps)
    if kind == "saturated":
        draws = np.where(draws < 0, env.low, env.high)
    return np.float32({"small": 0.05}.get(kind, 1.0)) * draws


FALLING = ["InvertedPendulum-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "Ant-v5"]


@pytest.mark.parametrize("kind", ["random", "saturated", "small"])
@pytest.mark.parametrize("id", GYMNASIUM + SUITE)
def test_an_episode_of_our_own_step_is_the_librarys(id, kind):
    """And so is its end, which those that can fall come to."""
    ends, falls = [], id in FALLING and kind == "saturated"
    for seed in range(3):
        episode = pair(id, seed)
        assert episode.env.closed_loop is not None
        steps = actions(kind, episode.env, seed, 40 if seed else 1000 if falls else 120)
        ends.append(any(assert_same_step(episode, action) for action in steps))
        ours, theirs = episode.physics, episode.library.physics
        for field in ("time", "qpos", "qvel", "qacc_warmstart", "ctrl"):  # the state of the physics
            assert np.array_equal(getattr(ours, field), getattr(theirs, field))
        assert not episode.env.unstable
    assert any(ends) or not falls


@pytest.mark.parametrize("id", SUITE)
def test_a_reward_of_the_suite_is_the_librarys_in_any_state(id):
    """What is paid only near a target is paid in some of them."""
    ours, library = both(id)
    simulators = [(env.physics.model.ptr, env.physics.data.ptr) for env in (ours._env, library.env)]
    random, rewards = np.random.default_rng(1), set()
    for k in range(600):
        if k % 50 == 0:
            start = pair(id, k).physics.qpos.copy()
            if "ball_in_cup" in id:
                start[:] = 0, 0, 0, 0.35  # in its cup
        state = random.uniform(-1, 1, start.size) * (0.01, 0.1, 0.5, 3.0)[k % 4]
        for model, data in simulators:
            data.qpos[:] = state + start * (k % 3 > 0)
            data.qvel[:] = state[: data.qvel.size]
            mujoco.mj_step1(model, data)
        [action] = actions(("random", "small")[k % 2], ours, k, 1)
        try:
            observation, reward, *_ = ours.step(action)
        except UnstablePhysics:
            pair(id, k)
            continue
        expected, its, *_ = library.step(action)
        assert np.array_equal(observation, expected)
        assert reward == its
        rewards.add(reward)
        if k >= 100 and len(rewards) > 1:
            return
    pytest.fail(f"the reward was {rewards} throughout")


@pytest.mark.parametrize("bad", [12.0, -150.0, 1e11, np.nan, np.inf])
@pytest.mark.parametrize("part", ["qpos", "qvel"])
@pytest.mark.parametrize("id", GYMNASIUM)
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_wild_state_is_judged_as_by_the_library(id, part, bad):
    episode = pair(id, 1)
    for physics in (episode.physics, episode.library.physics):
        getattr(physics, part)[-1] = bad
    for action in actions("random", episode.env, 1, 3):
        if assert_same_step(episode, action):
            break
    assert episode.env.unstable == bool(warning_counts(episode.library.physics).any())
    assert episode.env.unstable or abs(bad) < 1e10


@pytest.mark.parametrize("id", SUITE)
def test_unstable_suite_physics_is_in_the_librarys_words(id):
    before, episode = kinds_of_tasks.play(both(id)[0], 7), pair(id, 1)
    for physics in (episode.physics, episode.library.physics):
        physics.qvel[0] = np.nan
    with pytest.raises(PhysicsError) as expected:
        episode.library.step(episode.env.high)
    with pytest.raises(UnstablePhysics) as raised:
        episode.env.step(episode.env.high)
    assert str(raised.value) == f"{id}: {expected.value}"
    assert episode.env.unstable
    assert kinds_of_tasks.play(episode.env, 7) == before
    assert not episode.env.unstable


VARIANTS = [
    "HumanoidStandup-v5",
    "HalfCheetah-v4",
    "dm_control/humanoid-run_pure_state-v0",
    "dm_control/manipulator-bring_peg-v0",
    "dm_control/quadruped-run-v0",
]


@pytest.mark.parametrize("id", [*OTHERS, *VARIANTS])
def test_anything_else_is_left_to_the_library(id):
    episode = pair(id, 2)
    assert episode.env.closed_loop is None
    for action in actions("random", episode.env, 2, 50):
        assert_same_step(episode, action)


def test_another_version_of_gymnasium_is_left_to_it(monkeypatch):
    monkeypatch.setattr(gymnasium, "__version__", "1.5.0")
    assert make("HalfCheetah-v5").closed_loop is None


def gliding() -> gymnasium.Env:
    task = HopperEnv()
    task.do_simulation = lambda ctrl, steps: None
    return task


@pytest.mark.parametrize(
    ("id", "kind", "name", "other"),
    [
        ("Hopper-v5", HopperEnv, "_get_rew", lambda self, *of: (7.0, {})),
        ("Hopper-v5", HopperEnv, "is_healthy", property(lambda self: False)),
        ("Hopper-v5", MujocoEnv, "do_simulation", lambda self, ctrl, steps: None),
        ("dm_control/cheetah-run-v0", Cheetah, "get_reward", lambda self, physics: 7.0),
        ("dm_control/cheetah-run-v0", CheetahPhysics, "speed", lambda self: 7.0),
        ("Gliding-v0", None, "", None),
    ],
)
def test_functions_that_a_users_code_replaces_are_the_tasks(id, kind, name, other, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Gliding-v0", EnvSpec("Gliding-v0", gliding))
    usual = make(id.replace("Gliding-v0", "Hopper-v5"))
    if kind:
        monkeypatch.setattr(kind, name, other)
    answers = []
    for env in (usual, make(id, 1000)):
        env.reset(0)
        answers.append([env.step(env.high)[1:] for _ in range(2)])
        assert (env.closed_loop is None) is (env is not usual)
    assert answers[0] != answers[1]


def test_warning_counts_are_those_of_the_state_and_the_control():
    episode = pair("HalfCheetah-v5", 0)
    model, physics = episode.env._env.unwrapped.model, episode.physics
    counts = warning_counts(physics)
    for i, name in enumerate(("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")):
        mujoco.mj_resetData(model, physics)
        physics.warning[getattr(mujoco.mjtWarning, f"mjWARN_{name}")].number = 1
        assert counts.tolist() == np.eye(4)[i].tolist()


ALARMS = np.zeros((2, 2), np.int32)[:, 1]


def policy_of(env: Any, seed: int = 0) -> Policy:
    """Return a policy of one hidden layer; but for seed 0 it standardises and has a linear path."""
    sizes, random = (env.observation_size, 8, env.action_size), np.random.default_rng(seed)
    if not seed:
        layout = Layout(sizes)
        return Policy(layout, "relu", "tanh", env.low, env.high).set(layout.initial(seed, 0))
    layout = Layout(sizes, linear=4.0)
    mean = random.normal(0, 0.1, env.observation_size).astype(np.float32)
    std = random.uniform(0.5, 2, env.observation_size).astype(np.float32)
    policy = Policy(layout, "relu", "tanh", env.low, env.high, Normaliser(mean, std))
    noise = random.normal(0, 0.05, layout.d).astype(np.float32)
    return policy.set(layout.initial(seed, 0) + noise)


@pytest.fixture
def full(monkeypatch):
    """Let runs take SLICE steps however long these last, also the first of an environment."""
    monkeypatch.setattr(closed_loop, "LONGEST", 1e6)
    return lambda env: monkeypatch.setattr(env.closed_loop, "_most", SLICE) or env


def played(
    env: Any, policy: Policy, one_by_one: bool, seed: int = 0, cap: int = 0
) -> tuple[Episode, np.ndarray, np.ndarray]:
    """Play an episode in the loop or step by step; return it, what was observed and transitions."""
    seen: list[np.ndarray] = []
    disturb = (lambda action: None) if one_by_one else None
    recorder = Recorder(env, env.horizon)
    episode = play(recorder, policy, seed, lambda row: seen.append(row.copy()), cap, disturb)
    return episode, np.array(seen), recorder.rows[: recorder.count]


@pytest.mark.parametrize("id", GYMNASIUM + SUITE)
def test_an_episode_in_the_loop_is_that_of_single_steps(id):
    env, _ = both(id)
    for seed in (0, 1):
        fast, *found = played(env, policy_of(env, seed), False, seed, 150)
        slow, *expected = played(env, policy_of(env, seed), True, seed, 150)
        assert fast == slow == play(env, policy_of(env, seed), seed, cap=150)
        assert fast.episodic_length == len(found[0]) == len(found[1]) <= 150
        for rows, its in zip(found, expected, strict=True):
            np.testing.assert_array_equal(rows, its)


@pytest.mark.parametrize(
    "id", ["Hopper-v5", "HalfCheetah-v5", "dm_control/walker-walk-v0", "Humanoid-v5"]
)
def test_transitions_come_from_the_loop_as_from_single_steps(id, monkeypatch):
    """But for bounds other than -1 and 1."""
    env = make(id, 150)
    for seed in (0, 1):
        policy = policy_of(env, seed)
        expected, by_steps = explore(env, lambda observation, act=policy: act(observation), seed)
        with monkeypatch.context() as patch:
            if id != "Humanoid-v5":
                patch.setattr(env, "step", None)
            found, episode = explore(env, policy, seed)
        np.testing.assert_array_equal(found, expected)
        assert episode == by_steps
        assert len(found) == episode.episodic_length <= 150


@pytest.mark.parametrize("how", ["warning", "reward", "observation"])
def test_a_broken_step_in_the_loop_ends_what_is_explored(how, full, monkeypatch):
    env = full(make("HalfCheetah-v5"))
    honest = env.closed_loop.run

    def run(drive: Any, observation: np.ndarray, most: int) -> Run:
        made = honest(drive, observation, 9 if how == "reward" else 5)
        if how == "warning":
            env._warnings[0] = 1
        if how == "reward":
            made.rewards[4] = made.rewards[6] = 1e39
        if how == "observation":
            made.observations[-1, 2] = np.inf
        return made

    monkeypatch.setattr(env.closed_loop, "run", run)
    rows, episode = explore(env, policy_of(env), 0)
    assert (episode.episodic_length, len(rows)) == (5, 4)
    assert np.isnan(episode.episodic_return)
    assert ("observation[2] is inf" in env.not_finite) == (how == "observation")


def test_an_episode_yields_and_ends_at_its_horizon_or_cap(full, monkeypatch):
    env = full(both("Swimmer-v5")[0])
    assert len(list(playing(env, policy_of(env), 0, cap=2 * SLICE + 1))) == 3
    assert play(env, policy_of(env), 0).episodic_length == env.horizon == 1000
    monkeypatch.setattr(closed_loop, "LONGEST", 0.0)  # after the next run, one step each
    assert len(list(playing(env, policy_of(env), 0, cap=SLICE + 5))) == 6


def test_a_warning_within_a_run_ends_what_is_kept(full, monkeypatch):
    steps = []

    def step(model: Any, data: Any, frames: int) -> None:
        mujoco.mj_step(model, data, frames)
        steps.append(data)
        if len(steps) % 9 == 5:
            warning_counts(data)[0] = 1

    monkeypatch.setattr(mujoco_tasks, "mj_step", step)
    env = full(make("HalfCheetah-v5"))
    found = [played(env, policy_of(env), one_by_one, cap=9) for one_by_one in (False, True)]
    assert [(episode.episodic_length, len(rows)) for episode, _, rows in found] == [(9, 4)] * 2
    assert np.isnan([episode.episodic_return for episode, *_ in found]).all()
    np.testing.assert_array_equal(found[0][2], found[1][2])


@pytest.mark.parametrize("id", ["dm_control/cheetah-run-v0", "HalfCheetah-v5"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_physics_that_fails_gives_no_return_but_its_steps(id, one_by_one, full):
    env = full(both(id)[0])
    data = env._env.physics.data.ptr if id in SUITE else env._env.unwrapped.data
    steps = []

    def break_down(row: np.ndarray) -> None:
        steps.append(row)
        if len(steps) == SLICE + 1:  # before that step, or in the loop after its run
            data.qvel[0] = np.nan

    disturb = (lambda action: None) if one_by_one else None
    recorder = Recorder(env, 3 * SLICE)
    episode = play(recorder, policy_of(env), 0, break_down, 3 * SLICE, disturb)
    assert np.isnan([episode.episodic_return, episode.sign_return]).all()
    at = SLICE + 1 if one_by_one else 2 * SLICE + 1
    # the suite raises; Gymnasium's physics is repaired and goes on
    assert episode.episodic_length == (at if id in SUITE else 3 * SLICE)
    assert recorder.count == at - 1


def test_an_observation_that_is_not_finite_is_named(monkeypatch):
    env, _ = both("HalfCheetah-v5")
    rows = np.zeros((4, env.observation_size), np.float32)
    rows[-1, 2] = np.inf
    run = Run(rows, np.zeros((3, env.action_size), np.float32), [1.0] * 3, False)
    monkeypatch.setattr(env.closed_loop, "run", lambda drive, observation, most: run)
    episode = play(env, policy_of(env), 0)
    assert np.isnan(episode.episodic_return)
    assert episode.episodic_length == 3
    assert env.not_finite == "observation[2] is inf"


def toy(advance: Any, high: float = np.inf) -> tuple[Any, np.ndarray]:
    """A loop over a point: observes two numbers, the first up to 2, and traces their product."""
    state = np.array([[1.0, 9.0], [0.5, 9.0]])  # observed: its first column
    product = np.zeros(1)
    multiply = (np.multiply, state[:1, 0], state[1:, 0], product)
    ranges = np.array([[-2.0, -np.inf, -np.inf], [2.0, np.inf, high]])
    ctrl = np.zeros(1)
    calls = (*advance(state, ctrl), multiply)
    ALARMS[:] = 0
    return kernels.Loop(ctrl, (multiply,), calls, 2, (state[:, 0], product), ranges, ALARMS), state


def arrays(n: int) -> tuple[np.ndarray, ...]:
    return np.zeros((n + 1, 2), np.float32), np.zeros((n + 1, 1)), np.zeros((n, 1), np.float32)


def pushed(state: np.ndarray, ctrl: np.ndarray) -> tuple[Any, ...]:
    return ((np.add, state[:1, 0], ctrl, state[:1, 0]),)


def test_what_a_loop_reads():
    """1 + 0.5, 2 and 3.5: times 0.5; the trace ends the run at its bound, here 1.75."""
    loop, _ = toy(pushed, high=1.75)
    observations, traces = np.zeros((5, 2), np.float32), np.zeros((5, 1))
    pushes = np.array([[0.5], [0.5], [1.5], [9.0]], np.float32)
    loop.run(None, None, None, observations, traces, pushes)
    assert (loop.steps, loop.within) == (3, False)
    assert traces.ravel().tolist() == [0.5, 0.75, 1.0, 1.75, 0.0]
    assert observations[:, 0].tolist() == [0.0, 1.5, 2.0, 2.0, 0.0]  # row 0 is the caller's
    assert observations[1:4, 1].tolist() == [0.5] * 3


def test_a_number_that_is_not_finite_ends_a_run():
    loop, state = toy(pushed)
    state[1, 0] = np.nan
    loop.run(None, None, None, *arrays(3))
    assert (loop.steps, loop.within) == (1, False)


def test_an_alarm_ends_a_run_and_no_step_observes():
    loop, _ = toy(pushed)
    rows, *others = arrays(0)
    loop.run(None, None, None, rows, *others)
    assert (loop.steps, rows[0].tolist()) == (0, [1.0, 0.5])
    ALARMS[1] = 1
    loop.run(None, None, None, *arrays(3))
    assert (loop.steps, loop.within) == (1, True)


def test_an_error_of_a_call_is_raised_and_the_steps_are_known():
    def failing(state: np.ndarray, ctrl: np.ndarray) -> tuple[Any, ...]:
        def fail() -> None:
            if ctrl[0] > 1:
                raise UnstablePhysics("no")

        return (*pushed(state, ctrl), (fail,))

    loop, _ = toy(failing)
    actions = np.array([[0.5], [2.0], [0.5]], np.float32)
    with pytest.raises(UnstablePhysics):
        loop.run(None, None, None, np.zeros((4, 2), np.float32), np.zeros((4, 1)), actions)
    assert loop.steps == 2


def test_a_signal_is_heard_within_a_run():
    class Heard(Exception):
        pass

    loop, _ = toy(lambda state, ctrl: ((os.kill, os.getpid(), signal.SIGUSR1),))
    before = signal.signal(signal.SIGUSR1, Mock(side_effect=Heard))
    try:
        with pytest.raises(Heard):
            loop.run(None, None, None, *arrays(98))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert loop.steps <= 2


def test_a_loop_refuses_arrays_that_do_not_fit():
    one, calm = np.ones(1), np.zeros(2, np.int32)
    for views in ((np.zeros(2),), (), (np.zeros(1, np.float32),)):
        with pytest.raises(ValueError, match="views"):
            kernels.Loop(one, (), (), 1, views, np.ones((2, 1)), calm)
    with pytest.raises(ValueError, match="alarms"):
        kernels.Loop(one, (), (), 1, (one,), np.ones((2, 1)), one)
    loop, _ = toy(pushed)
    rows, traces, actions = arrays(1)
    others = (rows[:1], traces, actions), (rows, traces[:1], actions), (rows, traces, traces[1:])
    for wrong in others:
        with pytest.raises(ValueError, match="must be float"):
            loop.run(None, None, None, *wrong)
    bound = np.ones(1, np.float32)
    with pytest.raises(ValueError, match="network"):
        loop.run(kernels.Perceptron((3, 1), "relu", "tanh", -bound, bound), None, None, *arrays(1))


def test_an_error_of_mujoco_is_unstable_physics(full):
    env = full(both("HalfCheetah-v5")[0])
    observation, policy = env.reset(0), policy_of(env)

    def fail(*arrays: Any) -> None:
        policy.drive(*arrays)
        raise mujoco.FatalError("stack overflow")

    run = env.closed_loop.run(fail, observation, 3)
    assert (len(run.observations), len(run.actions), run.terminated) == (3, 2, True)
    assert np.isnan(run.rewards).tolist() == [False, False, True]
