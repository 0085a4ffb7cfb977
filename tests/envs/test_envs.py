"""The contract of esac_mpi.envs, on one representative of every kind of task."""

import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import gymnasium
import numpy as np
import own_envs
import pytest
from conftest import ROOT, finish
from dm_control.rl.control import PhysicsError
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from kinds_of_tasks import CLOCKWISE, DISCRETE, SIMULATED, TASKS, Library, actions, play

from esac_mpi.envs import UnstablePhysics, is_discrete, make, transition
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.rollout import action_noise


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_action_leaves_the_tasks_own_bounds_by_rounding(dtype):
    """Greatest, least and random actions of a policy, of learners and with noise."""
    env = make(f"own_task:Bounded-{dtype}-v0")
    policy = Policy(Layout((1, env.action_size)), "relu", "clip", env.low, env.high)
    random = np.random.default_rng(1)
    disturb = action_noise(policy, 1.0, random)
    env.reset(0)
    for y in (np.ones(600), -np.ones(600), *random.uniform(-1, 1, (5, 600))):
        action = policy.set(np.concatenate([np.zeros(600), y]).astype(np.float32))(np.zeros(1))
        env.step(action)
        disturb(action)
        env.step(action)
        assert transition(env, y.astype(np.float32)) is not None


DISPLAY = """
import os
from esac_mpi import envs
env = envs.make("dm_control/cartpole-balance-v0")
print("MUJOCO_GL" in os.environ)
os.environ["MUJOCO_GL"] = "egl"
envs.make("dm_control/cartpole-balance-v0")
print(os.environ["MUJOCO_GL"])
env._env.physics.render()
"""


def test_dm_control_needs_no_display_and_a_renderer_is_put_back():
    done = finish(["env", "-u", "MUJOCO_GL", sys.executable, "-c", DISPLAY], code=None)
    assert done.stdout == "False\negl\n"
    assert "No OpenGL rendering backend is available" in done.stderr


def test_a_suite_task_gets_actions_within_its_own_bounds(monkeypatch):
    env, taken = make("dm_control/quadruped-walk-v0"), []
    assert (env.high > env._env.action_spec().maximum).any()  # float32 has rounded 1.1 up
    step = env._env.step
    monkeypatch.setattr(env._env, "step", lambda action: taken.append(action) or step(action))
    for seed, action in enumerate((env.high, env.low)):
        env.reset(seed)
        env.step(action)
    for action in taken:
        env._env.action_spec().validate(action)


@pytest.mark.parametrize("id", ["dm_control/quadruped-walk-v0", "own_task:Bounded-float64-v0"])
def test_noise_that_is_not_clipped_leaves_the_bounds(id, monkeypatch):
    env, taken = make(id), []
    step, wide = env._env.step, Box(-99, 99, (20, 30), np.float64)
    task = env._env.unwrapped if "own" in id else env
    monkeypatch.setattr(task, "action_space", wide, raising=False)
    monkeypatch.setattr(
        env._env, "step", lambda action: taken.append(np.ravel(action)) or step(action)
    )
    env.reset(0)
    action = np.linspace(-3, 3, env.action_size, dtype=np.float32)
    for bounded in (True, False):
        transition(env, action, bounded)
    centre, half = (env.high + env.low) / 2, (env.high - env.low) / 2
    np.testing.assert_allclose(taken[0], centre + half * np.clip(action, -1, 1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(taken[1], centre + half * action, rtol=0, atol=1e-6)


@pytest.mark.parametrize("id", TASKS)
def test_sizes_bounds_and_types(id):
    env = make(id)
    observation = env.reset(3)
    following, reward, terminated, truncated = env.step(env.high)
    *sizes, low, high, horizon = TASKS[id]
    assert (env.id, env.observation_size, env.action_size, env.horizon) == (id, *sizes, horizon)
    assert np.array_equal(env.low, np.resize(np.float32(low), env.action_size))
    assert np.array_equal(env.high, np.resize(np.float32(high), env.action_size))
    assert env.low.dtype == env.high.dtype == observation.dtype == following.dtype == np.float32
    assert observation.shape == following.shape == (env.observation_size,)
    assert is_discrete(env) == (id in DISCRETE)
    assert [type(reward), type(terminated), type(truncated)] == [float, bool, bool]
    assert not env.unstable


@pytest.mark.parametrize("id", TASKS)
def test_an_episode_is_the_same_after_ten_others_and_elsewhere(id):
    env = make(id)
    episode = play(env, 7)
    for seed in range(10):
        play(env, 100 + seed, 40)
    assert play(env, 7) == episode
    assert play(make(id), 7) == episode


@pytest.mark.parametrize("id", SIMULATED)
def test_an_episode_is_the_librarys_and_its_seed_the_start(id):
    env = make(id)
    assert play(env, 11) == play(Library(id), 11, player=env)
    assert len({env.reset(seed).tobytes() for seed in (1, 2, 3, 1)}) == 3


@pytest.mark.parametrize("id", [*TASKS, "own_task:Buffer-v0"])
def test_an_observation_belongs_to_its_reader(id):
    env, written = make(id), make(id)
    for reader in (env, written):
        reader.reset(5)
    for action in actions(env, 5, 3):
        first, *_ = env.step(action)
        kept = first.copy()
        following, *_ = written.step(action)
        assert np.array_equal(following, first)
        following[:] = 9.0  # must reach neither the environment nor the next episode
        env.step(action)
        written.step(action)
        assert np.array_equal(first, kept)
    assert np.array_equal(written.reset(5), env.reset(5))


@pytest.mark.parametrize("id", TASKS)
def test_requested_horizon_truncates_and_does_not_terminate(id):
    env = make(id, horizon=4)
    env.reset(0)
    action = CLOCKWISE if id == "CyclicMDP-v0" else (env.low + env.high) / 2
    assert env.horizon == 4
    assert [env.step(action)[2:] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    env.reset(1)
    assert env.step(action)[2:] == (False, False)  # the count starts again


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "Reacher-v5", "dm_control/walker-walk-v0"])
def test_own_time_limit_truncates_and_is_not_prolonged(id):
    env = make(id, horizon=5000)
    env.reset(0)
    ends = [env.step(np.zeros_like(env.low))[2:] for _ in range(env.horizon)]
    assert env.horizon == TASKS[id][4]
    assert ends == [(False, False)] * (env.horizon - 1) + [(False, True)]


def test_the_soonest_of_several_time_limits_counts(monkeypatch):
    within = lambda: gymnasium.wrappers.TimeLimit(own_envs.Walk(), 7)  # noqa: E731
    spec = EnvSpec("Within-v0", within, max_episode_steps=9)
    monkeypatch.setitem(gymnasium.registry, "Within-v0", spec)
    for env in (make("Within-v0"), make("Within-v0", kwargs={"max_episode_steps": 99})):
        assert env.horizon == 7
    assert make("Within-v0", kwargs={"max_episode_steps": 5}).horizon == 5


@pytest.mark.parametrize(("discount", "ends"), [(1.0, (False, True)), (0.0, (True, False))])
def test_the_last_discount_tells_termination_from_truncation(discount, ends, monkeypatch):
    env = make("dm_control/quadruped-walk-v0")
    env.reset(0)
    monkeypatch.setattr(env._env.task, "get_termination", lambda physics: discount)
    assert env.step(env.high)[2:] == ends


def test_a_discrete_task_takes_the_first_of_the_largest_numbers():
    env = make("own_task:Count-v0")
    starts = {tuple(env.reset(seed).tolist()) for seed in range(30)}
    assert starts == {tuple(row) for row in np.eye(6).tolist()}  # of a Discrete space: one-hot
    for action, number in (
        ((0.3, 0.2, 0.1), 5),
        ((-0.3, -0.1, -0.2), 6),
        ((-1, 0.5, 0.6), 7),
        ((0, 0, 0), 5),
        ((-1, 1, 1), 6),
    ):
        assert env.step(np.array(action, np.float32))[1] == number


@pytest.mark.parametrize(("id", "pays"), [("CyclicMDP-v0", 2000.0), ("CyclicMDPRepo-v0", 2666.0)])
def test_a_clockwise_walker_is_paid_as_paper_and_code_say(id, pays):
    env = make(id, 2000)
    env.reset(0)
    steps = [env.step(CLOCKWISE)[1:] for _ in range(2000)]
    assert sum(reward for reward, _, _ in steps) == pays
    assert [ends for _, *ends in steps] == [[False, False]] * 1999 + [[False, True]]
    assert make(id, 9000).horizon == (9000 if "Repo" in id else 2000)


def test_cyclic_mdp_transitions():
    env = make("CyclicMDPRepo-v0", 2000)
    assert env.reset(0).tolist() == [1, 0, 0]
    walked = [env.step(CLOCKWISE) for _ in range(3)]
    assert [o.tolist() for o, *_ in walked] == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert [reward for _, reward, *_ in walked] == [1, 1, 2]
    # the first of equal outputs is taken: not clockwise
    for other in ([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], [0, 0, 0]):
        env.reset(0)
        env.step(CLOCKWISE)
        observation, *rest = env.step(np.array(other, np.float32))
        assert (observation.tolist(), rest) == ([0, 1, 0], [-1.0, True, False])


def test_unstable_gymnasium_physics_is_seen_until_the_reset():
    env = make("HalfCheetah-v5")
    episode = play(env, 7)
    for bad in (np.nan, 1e11):
        env.reset(8)
        env._env.unwrapped.data.qpos[0] = bad
        env.step(env.high)
        assert env.unstable
        assert play(env, 7) == episode
        assert not env.unstable
    env.step(np.full(6, np.nan, np.float32))
    assert env.unstable  # control that is no number


def test_the_state_of_the_simulator_is_found_by_whatever_name(monkeypatch):
    env = make("HalfCheetah-v5")
    data = env._env.unwrapped.data
    layer = SimpleNamespace(unwrapped=SimpleNamespace(model=3, _state=data))
    monkeypatch.setattr(env, "_env", layer)
    assert env._data() is data


@pytest.mark.parametrize("when", ["reset", "step"])
@pytest.mark.parametrize(
    ("error", "expected"), [(PhysicsError, UnstablePhysics), (RuntimeError, RuntimeError)]
)
def test_dm_controls_error_in_a_task_of_gymnasium_is_unstable(monkeypatch, when, error, expected):
    env = make("Pendulum-v1")
    env.reset(1)
    monkeypatch.setattr(env._env.unwrapped, when, Mock(side_effect=error("diverged")))
    with pytest.raises(expected, match="diverged"):
        env.reset(1) if when == "reset" else env.step(env.high)


@pytest.mark.parametrize("id", ["own_task:Endless-v0", "dm_control/lqr-lqr_2_1-v0"])
def test_requested_horizon_is_enough_for_a_task_without_one(id):
    env = make(id, horizon=10)
    assert len(play(env, 2)) == 11
    assert play(make(id, horizon=10), 2) == play(env, 2)  # lqr draws its springs when it is built


IMPORTED = """
import sys
from esac_mpi.envs import make
env = make(sys.argv[1])
env.reset(1)
env.step(env.high)
if sys.argv[1] == "HalfCheetah-v5":
    env._env.unwrapped.data.qpos[0] = float("nan")
    env.step(env.high)
    assert env.unstable
print(*({"torch", "dm_control", "gymnasium", "mujoco", "mpi4py", "h5py"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("id", "libraries"),
    [
        ("HalfCheetah-v5", {"gymnasium", "mujoco"}),
        ("CyclicMDP-v0", set()),
        ("dm_control/walker-walk-v0", {"dm_control", "mujoco"}),
    ],
)
def test_a_task_imports_its_own_library_alone_and_leaves_no_file(id, libraries, tmp_path):
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    line = [sys.executable, "-c", IMPORTED, id]
    options = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run(line, cwd=tmp_path, env=variables, **options)
    assert done.stderr == ""
    assert set(done.stdout.split()) == libraries
    assert list(tmp_path.iterdir()) == []
