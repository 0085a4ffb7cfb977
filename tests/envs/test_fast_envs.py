"""Our own steps of the libraries' tasks against the libraries', bit for bit."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from dm_control.rl.control import PhysicsError
from kinds_of_tasks import Library, play

from esac_mpi.envs import UnstablePhysics, make, warning_counts

NAMES = """Ant HalfCheetah Hopper Humanoid InvertedDoublePendulum InvertedPendulum Reacher Swimmer
Walker2d"""
GYMNASIUM = [f"{name}-v5" for name in NAMES.split()]
TASKS = """cartpole-swingup cartpole-three_poles cheetah-run fish-upright humanoid-run
humanoid-stand humanoid-walk walker-run walker-stand walker-walk"""
SUITE = [f"dm_control/{name}-v0" for name in TASKS.split()]
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


def actions(kind: str, env: Any, seed: int, steps: int = 300) -> np.ndarray:
    random = np.random.default_rng(seed)
    draws = random.uniform(env.low, env.high, (steps, env.action_size))
    if kind == "saturated":
        draws = np.where(draws < 0, env.low, env.high)
    return (draws * {"small": 0.05}.get(kind, 1.0)).astype(np.float32)


FALLING = ["InvertedPendulum-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "Ant-v5"]


@pytest.mark.parametrize("kind", ["random", "saturated", "small"])
@pytest.mark.parametrize("id", GYMNASIUM + SUITE)
def test_an_episode_of_our_own_step_is_the_librarys(id, kind):
    """And so is its end, which those that can fall come to."""
    ends, longest = [], 1000 if id in FALLING and kind == "saturated" else 300
    for seed in range(3):
        episode = pair(id, seed)
        assert episode.env.closed_loop is not None
        steps = actions(kind, episode.env, seed, longest if seed == 0 else 40)
        ends.append(any(assert_same_step(episode, action) for action in steps))
        ours, theirs = episode.physics, episode.library.physics
        for field in ("time", "qpos", "qvel", "qacc_warmstart", "ctrl"):  # the state of the physics
            assert np.array_equal(getattr(ours, field), getattr(theirs, field))
        assert not episode.env.unstable
    assert any(ends) or longest == 300


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
    before, episode = play(both(id)[0], 7), pair(id, 1)
    for physics in (episode.physics, episode.library.physics):
        physics.qvel[0] = np.nan
    with pytest.raises(PhysicsError) as expected:
        episode.library.step(episode.env.high)
    with pytest.raises(UnstablePhysics) as raised:
        episode.env.step(episode.env.high)
    assert str(raised.value) == f"{id}: {expected.value}"
    assert episode.env.unstable
    assert play(episode.env, 7) == before
    assert not episode.env.unstable


VARIANTS = [
    "HumanoidStandup-v5",
    "HalfCheetah-v4",
    "dm_control/acrobot-swingup-v0",
    "dm_control/humanoid-run_pure_state-v0",
]
VARIANTS += ["dm_control/cartpole-swingup_sparse-v0", "dm_control/quadruped-run-v0"]


@pytest.mark.parametrize("id", [*OTHERS, *VARIANTS])
def test_anything_else_is_left_to_the_library(id):
    episode = pair(id, 2)
    assert episode.env.closed_loop is None
    for action in actions("random", episode.env, 2, 50):
        assert_same_step(episode, action)


def test_another_version_of_gymnasium_is_left_to_it(monkeypatch):
    monkeypatch.setattr(gymnasium, "__version__", "1.5.0")
    assert make("HalfCheetah-v5").closed_loop is None


def test_warning_counts_are_those_of_the_state_and_the_control():
    episode = pair("HalfCheetah-v5", 0)
    model, physics = episode.env._env.unwrapped.model, episode.physics
    counts = warning_counts(physics)
    for i, name in enumerate(("BADQPOS", "BADQVEL", "BADQACC", "BADCTRL")):
        mujoco.mj_resetData(model, physics)
        physics.warning[getattr(mujoco.mjtWarning, f"mjWARN_{name}")].number = 1
        assert counts.tolist() == np.eye(4)[i].tolist()
