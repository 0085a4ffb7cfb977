"""The contract of esac_mpi.envs, on one representative of every kind of task, and the task files of configs/esac."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Tuple

from esac_mpi.config import Config, check, flatten, read_toml, updated
from esac_mpi.envs import Env, TaskError, UnstablePhysics, is_discrete, make, refuse_discrete, transition
from esac_mpi.policy import Layout, Policy
from esac_mpi.rollout import action_noise

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "configs" / "esac").glob("*.toml"))

# id: (observation size, action size, low, high, horizon); bounds are repeated to the action size
TASKS = {
    "HalfCheetah-v5": (17, 6, -1.0, 1.0, 1000),
    "Humanoid-v5": (348, 17, -0.4, 0.4, 1000),
    "Hopper-v5": (11, 3, -1.0, 1.0, 1000),
    "Reacher-v5": (10, 2, -1.0, 1.0, 50),
    "InvertedDoublePendulum-v5": (9, 1, -1.0, 1.0, 1000),
    "LunarLanderContinuous-v3": (8, 2, -1.0, 1.0, 1000),
    "BipedalWalker-v3": (24, 4, -1.0, 1.0, 1600),
    "own_task:Push-v0": (5, 4, -2.0, 2.0, 30),
    "dm_control/walker-walk-v0": (24, 6, -1.0, 1.0, 1000),
    "dm_control/fish-upright-v0": (21, 5, -1.0, 1.0, 1000),
    "dm_control/quadruped-walk-v0": (78, 12, (-1, -1, -0.8), (1, 1.1, 0.8), 1000),
    "CartPole-v1": (4, 2, -1.0, 1.0, 500),
    "LunarLander-v3": (8, 4, -1.0, 1.0, 1000),
    "own_task:Count-v0": (6, 3, -1.0, 1.0, 20),
    "CyclicMDP-v0": (3, 3, -1.0, 1.0, 2000),
}
DISCRETE = {"CartPole-v1", "LunarLander-v3", "own_task:Count-v0", "CyclicMDP-v0"}
SIMULATED = [id for id in TASKS if id != "CyclicMDP-v0"]
CLOCKWISE = np.array([-1, 1, -1], np.float32)

OWN_TASK = '''
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete


class Push(gymnasium.Env):
    """A point that random gusts move."""

    observation_space = Dict({"b": Box(-9, 9, (3,), np.float32), "a": Box(-9, 9, (2, 1), np.float64)})
    action_space = Box(-2, 2, (2, 2), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = {"b": self.np_random.normal(size=3).astype(np.float32), "a": np.zeros((2, 1))}
        return self.state, {}

    def step(self, action):
        assert action.shape == (2, 2) and action.dtype == np.float64
        self.state["a"] += action[:, :1] + self.np_random.normal(size=(2, 1))
        return self.state, float(action[0, 1]), False, False, {}


class Buffer(Push):
    observation_space = Box(-9, 9, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.state["b"], {}

    def step(self, action):
        self.state["b"] += action[0, 0]
        return self.state["b"], 0.0, False, False, {}


class Count(gymnasium.Env):
    """Six states, wandering at random; the reward is the number of the choice: 5, 6 or 7."""

    observation_space = Discrete(6)
    action_space = Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(6), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.np_random.integers(6), float(action), False, False, {}


class Several(Count):
    action_space = MultiDiscrete([2, 2])


class Bounded(gymnasium.Env):
    """Insist on actions within random bounds of a type; the first are +-0.1."""

    observation_space = Box(-9, 9, (1,), np.float32)

    def __init__(self, dtype):
        low, high = np.sort(np.random.default_rng(0).uniform(-2, 2, (2, 20, 30)), axis=0).astype(dtype)
        low[0], high[0] = dtype("-0.1"), dtype("0.1")
        self.action_space = Box(low, high, dtype=dtype)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Unbounded(Push):
    action_space = Box(-np.inf, np.inf, (2, 2), np.float32)


class Wide(Push):
    action_space = Box(-3e38, 3e38, (2, 2), np.float32)


gymnasium.register("Push-v0", Push, max_episode_steps=30)
gymnasium.register("Buffer-v0", Buffer, max_episode_steps=30)
gymnasium.register("Count-v0", Count, max_episode_steps=20)
gymnasium.register("Several-v0", Several, max_episode_steps=20)
gymnasium.register("Endless-v0", Push)
for dtype in (np.float16, np.float32, np.float64):
    gymnasium.register(f"Bounded-{dtype.__name__}-v0", Bounded, max_episode_steps=30, kwargs={"dtype": dtype})
gymnasium.register("Wide-v0", Wide, max_episode_steps=30)
gymnasium.register("Unbounded-v0", Unbounded, max_episode_steps=30)
'''


@pytest.fixture(scope="module", autouse=True)
def own_task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_task.py").write_text(OWN_TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


def actions(env, seed: int, steps: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.uniform(env.low, env.high, (steps, env.action_size)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_action_leaves_the_tasks_own_bounds_by_rounding(dtype):
    """A task that insists on them takes greatest, least and random actions of a policy, of learners and with noise."""
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


def play(env: Env, seed: int, steps: int = 80) -> list[tuple]:
    """Play an episode of random actions; return (observation bytes, reward, terminated, truncated) of every step."""
    episode: list[tuple] = [(env.reset(seed).tobytes(), 0.0, False, False)]
    for action in actions(env, seed, steps):
        observation, reward, terminated, truncated = env.step(action)
        episode.append((observation.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            break
    return episode


def by_hand(id: str, seed: int, steps: int = 80) -> list[tuple]:
    """Play the same episode with the library itself."""
    if id.startswith("dm_control/"):
        from dm_control import suite

        domain, task = id.removeprefix("dm_control/").removesuffix("-v0").split("-")
        plain = suite.load(domain, task, task_kwargs={"random": seed})
        timestep = plain.reset()
        rows = [(timestep, 0.0)]
        for action in actions(make(id), seed, steps):
            timestep = plain.step(action)
            rows.append((timestep, timestep.reward))
        flat = [np.concatenate([np.ravel(v) for v in t.observation.values()]).astype(np.float32) for t, _ in rows]
        return [(o.tobytes(), r, False, False) for o, (_, r) in zip(flat, rows, strict=True)]
    import gymnasium

    plain = gymnasium.make(id, disable_env_checker=True)
    flatten_observation = gymnasium.spaces.flatten
    observation, _ = plain.reset(seed=seed)
    episode = [(flatten_observation(plain.observation_space, observation).astype(np.float32).tobytes(), 0.0, False, False)]
    for action in actions(make(id), seed, steps):
        if id in DISCRETE:
            action = plain.action_space.start + np.argmax(action)
        else:
            action = action.reshape(plain.action_space.shape).astype(plain.action_space.dtype)
        observation, reward, terminated, truncated, _ = plain.step(action)
        flat = flatten_observation(plain.observation_space, observation).astype(np.float32)
        episode.append((flat.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            break
    return episode


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
    assert (type(reward), type(terminated), type(truncated), env.unstable) == (float, bool, bool, False)


@pytest.mark.parametrize("id", TASKS)
def test_episode_equals_itself_after_ten_others_and_in_a_fresh_environment(id):
    env = make(id)
    episode = play(env, 7)
    for seed in range(10):
        play(env, 100 + seed, 40)
    assert play(env, 7) == episode
    assert play(make(id), 7) == episode


@pytest.mark.parametrize("id", SIMULATED)
def test_seed_decides_the_start(id):
    env = make(id)
    starts = {env.reset(seed).tobytes() for seed in (1, 2, 3, 1)}
    assert len(starts) == 3


@pytest.mark.parametrize("id", SIMULATED)
def test_episode_equals_that_of_the_library_driven_by_hand(id):
    assert play(make(id), 11) == by_hand(id, 11)


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


def test_falling_terminates():
    last = play(make("Hopper-v5"), 1, 500)[-1]
    assert last[2:] == (True, False)


@pytest.mark.parametrize(("discount", "ends"), [(1.0, (False, True)), (0.0, (True, False))])
def test_discount_of_the_last_dm_control_step_tells_termination_from_truncation(discount, ends, monkeypatch):
    env = make("dm_control/quadruped-walk-v0")
    env.reset(0)
    monkeypatch.setattr(env._env.task, "get_termination", lambda physics: discount)
    assert env.step(env.high)[2:] == ends


def test_a_discrete_task_takes_the_choice_of_the_largest_number_and_the_first_of_equals():
    env = make("own_task:Count-v0")
    starts = {tuple(env.reset(seed).tolist()) for seed in range(30)}
    assert starts == {tuple(row) for row in np.eye(6).tolist()}  # an observation of a Discrete space is one-hot
    taken = {(0.3, 0.2, 0.1): 5, (-0.3, -0.1, -0.2): 6, (-1, 0.5, 0.6): 7, (0, 0, 0): 5, (-1, 1, 1): 6}
    for action, number in taken.items():
        assert env.step(np.array(action, np.float32))[1] == number


def test_a_discrete_task_is_refused_by_those_that_need_continuous_actions_and_they_name_the_others():
    able = ("es", "ddpg", "ppo")
    cart, lander = make("CartPole-v1"), make("LunarLander-v3")
    for algorithm in ("esac", "sac", "td3"):
        message = f"CartPole-v1 has 2 discrete actions; {algorithm} needs continuous ones. Those that do not: es, ddpg, ppo."
        with pytest.raises(TaskError) as error:
            refuse_discrete(cart, algorithm, able)
        assert str(error.value) == message
        with pytest.raises(TaskError, match=r"es, ddpg, ppo\. Did you mean 'LunarLanderContinuous-v3'\?$"):
            refuse_discrete(lander, algorithm, able)
        refuse_discrete(make("CyclicMDP-v0"), algorithm, able)
        refuse_discrete(make("own_task:Push-v0"), algorithm, able)
    for algorithm in able:
        refuse_discrete(cart, algorithm, able)


def test_cyclic_mdp_pays_a_clockwise_walker_2000_and_the_public_code_2666():
    for id, expected in (("CyclicMDP-v0", 2000.0), ("CyclicMDPRepo-v0", 2666.0)):
        env = make(id, 2000)
        env.reset(0)
        steps = [env.step(CLOCKWISE)[1:] for _ in range(2000)]
        assert sum(reward for reward, _, _ in steps) == expected
        assert [ends for _, *ends in steps] == [[False, False]] * 1999 + [[False, True]]


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (Box(0, 255, (96, 96, 3), np.uint8), "uint8, 96 x 96 x 3"),
        (Box(0, 255, (84, 84), np.uint8), "uint8, 84 x 84"),
        (Box(0, 1, (4, 84, 84), np.float32), "float32, 4 x 84 x 84"),
        (Dict({"joints": Box(-1, 1, (3,)), "eyes": Tuple([Box(0, 255, (64, 64, 3), np.uint8)])}), "uint8, 64 x 64 x 3"),
        (Box(0, 255, (7, 7, 3), np.uint8), ""),  # a grid of symbols
        (Box(-1, 1, (64, 64), np.float32), ""),  # heights of the ground
        (Box(0, 255, (128,), np.uint8), ""),
    ],
)
def test_images_are_refused_in_a_sentence(monkeypatch, space, image):
    make("own_task:Push-v0")
    monkeypatch.setattr(sys.modules["own_task"].Push, "observation_space", space)
    if not image:
        assert make("own_task:Push-v0").observation_size == np.prod(space.shape)
        return
    with pytest.raises(TaskError, match=rf"Push-v0 observes images \({image}\), and there is no convolutional network here"):
        make("own_task:Push-v0")


def test_cyclic_mdp_of_the_public_code_may_go_on_for_longer():
    assert (make("CyclicMDP-v0", 9000).horizon, make("CyclicMDPRepo-v0", 9000).horizon) == (2000, 9000)


def test_cyclic_mdp_transitions():
    env = make("CyclicMDPRepo-v0", 2000)
    assert env.reset(0).tolist() == [1, 0, 0]
    walked = [env.step(CLOCKWISE) for _ in range(3)]
    assert [o.tolist() for o, *_ in walked] == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert [reward for _, reward, *_ in walked] == [1, 1, 2]
    for other in ([0.3, 0.2, 0.1], [0.1, 0.2, 0.3], [0, 0, 0]):  # the first of equal outputs is taken: not clockwise
        env.reset(0)
        env.step(CLOCKWISE)
        observation, *rest = env.step(np.array(other, np.float32))
        assert (observation.tolist(), rest) == ([0, 1, 0], [-1.0, True, False])


def test_unstable_gymnasium_physics_is_seen_and_forgotten_at_the_reset():
    env = make("HalfCheetah-v5")
    episode = play(env, 7)
    for bad in (np.nan, 1e11):
        env.reset(8)
        env._env.unwrapped.data.qpos[0] = bad
        env.step(env.high)
        assert env.unstable
        assert play(env, 7) == episode
        assert not env.unstable


def test_control_that_is_no_number_is_unstable():
    env = make("HalfCheetah-v5")
    env.reset(8)
    env.step(np.full(6, np.nan, np.float32))
    assert env.unstable


def test_unstable_dm_control_physics_is_raised_and_forgotten_at_the_reset():
    env = make("dm_control/walker-walk-v0")
    episode = play(env, 7)
    env.reset(8)
    env._env.physics.data.qpos[0] = np.nan
    with pytest.raises(UnstablePhysics, match=r"walker-walk.*BADQPOS"):
        env.step(env.high)
    assert env.unstable
    assert play(env, 7) == episode
    assert not env.unstable


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("HalfCheeta-v5", "Did you mean 'HalfCheetah-v5'"),
        ("HalfCheetah-v9", "Did you mean 'HalfCheetah-v5'"),
        ("LunarLanderContinuous-v2", "use `LunarLanderContinuous-v3`"),
        ("Cyclic-v0", "Did you mean 'CyclicMDP-v0'"),
        ("own_task:Psh-v0", "Did you mean 'own_task:Push-v0'"),
        ("no_such_module:Push-v0", "no_such_module"),
        ("own_task:Several-v0", r"has the actions MultiDiscrete\(\[2 2\]\)"),
        ("CyclicMDPRepo-v0", "set task.horizon"),
        ("own_task:Endless-v0", "set task.horizon"),
        ("own_task:Unbounded-v0", "unbounded"),
        ("own_task:Wide-v0", "unbounded"),
        ("dm_control/walker-wlak-v0", "Did you mean 'dm_control/walker-walk-v0'"),
        ("dm_control/walker-walk", "Did you mean 'dm_control/walker-walk-v0'"),
        ("dm_control/lqr-lqr_2_1-v0", "set task.horizon"),
    ],
)
def test_a_task_that_cannot_be_trained_on_is_refused_in_one_sentence(id, message):
    with pytest.raises(TaskError, match=message) as error:
        make(id)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("id", ["own_task:Endless-v0", "dm_control/lqr-lqr_2_1-v0"])
def test_requested_horizon_is_enough_for_a_task_without_one(id):
    env = make(id, horizon=10)
    assert len(play(env, 2)) == 11
    assert play(make(id, horizon=10), 2) == play(env, 2)  # lqr draws its springs when it is built


def loaded(id: str, folder: Path) -> set[str]:
    """Return the libraries that a process imports which makes and plays a task in `folder`."""
    program = f"""
import sys
from esac_mpi.envs import make
env = make({id!r})
env.reset(1)
env.step(env.high)
if {id!r} == "HalfCheetah-v5":
    env._env.unwrapped.data.qpos[0] = float("nan")
    env.step(env.high)
    assert env.unstable
print(*({{"torch", "dm_control", "gymnasium", "mujoco", "mpi4py", "h5py"}} & set(sys.modules)))
"""
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_a_task_imports_its_own_library_alone_and_leaves_no_file(tmp_path):
    assert loaded("HalfCheetah-v5", tmp_path) == {"gymnasium", "mujoco"}
    assert loaded("CyclicMDP-v0", tmp_path) == set()
    assert loaded("dm_control/walker-walk-v0", tmp_path) == {"dm_control", "mujoco"}
    assert list(tmp_path.iterdir()) == []


def test_every_task_of_the_paper_has_its_file():
    assert len(CONFIGS) == 22


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_task_file_is_accepted_and_holds_differences_only(path):
    values = read_toml(path)
    config = updated(Config(), values)
    check(config)
    same = {name for name, value in flatten(Config()) if name in values and values[name] == value}
    assert same <= {"task.id"}
    env = make(config.task.id, config.task.horizon)
    assert env.reset(0).shape == (env.observation_size,)


def test_task_files_hold_the_papers_values():
    configs = {path.stem: updated(Config(), read_toml(path)) for path in CONFIGS}
    dm_control = {name for name, config in configs.items() if config.task.id.startswith("dm_control/")}
    assert len(dm_control) == 12
    assert {(configs[n].esac.sigma, configs[n].esac.lr_es) for n in dm_control} == {(0.01, 0.01)}
    episodes = {name: config.esac.sac_episodes for name, config in configs.items() if config.algorithm == "esac"}
    assert {n for n, count in episodes.items() if count == 10} == {"ant", "walker2d", "hopper", "humanoid"}
    assert {n for n, count in episodes.items() if count == 1} == {"swimmer"} | dm_control - {
        "cartpole-swingup", "walker-walk", "walker-run",
    }  # fmt: skip
    assert configs["ant"].esac.lr_es == 1e-4
