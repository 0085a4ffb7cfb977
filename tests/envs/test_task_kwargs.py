"""Keyword arguments of a task: how they are set, what they change, and that a run keeps them."""

import json
import os
import tomllib

import gymnasium
import numpy as np
import pytest
from dm_control import suite
from saved_policies import save
from words import words

from esac_mpi import Policy, config, envs
from esac_mpi.config import Config, ConfigError, Task, amend, check, load
from esac_mpi.record import Run

FILE = '[task]\nid = "Hopper-v5"\n[task.kwargs]\nhealthy_z_range = [0.8, inf]\nframe_skip = 2\n'


def read_back(found):
    return amend(Config(), config.from_table(tomllib.loads(config.to_toml(found)), "it"))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hopper.toml"
    path.write_text(FILE)
    return str(path)


def test_a_files_table_is_joined_or_replaced(file):
    of_file = {"healthy_z_range": [0.8, float("inf")], "frame_skip": 2}
    assert load([file])[0].task.kwargs == of_file
    line = [file, "--task.kwargs.frame-skip=3", "--task.kwargs.ctrl_cost_weight", "1e-2"]
    assert load(line)[0].task.kwargs == of_file | {"frame_skip": 3, "ctrl_cost_weight": 0.01}
    inner = ["--task.kwargs.reset-options", '{"low-level": 1}']
    assert load(inner)[0].task.kwargs == {"reset_options": {"low-level": 1}}
    settings = {"task.kwargs.a": {"b": {"c": 5}}, "task.kwargs.d": 6}
    nested = {"task.kwargs": {"a": {"b": {"c": 5}}, "d": 6}}
    assert config.from_table(settings, "settings") == nested
    assert load([file, "--task.kwargs", '{"frame_skip": 4}'])[0].task.kwargs == {"frame_skip": 4}
    assert load([file, "--task.kwargs={}"])[0].task == Task("Hopper-v5")


VALUES = {"0.5": 0.5, "-1": -1, ".5": 0.5, "true": True, "False": False, "[1, 2]": [1, 2]}


@pytest.mark.parametrize(("text", "value"), [*VALUES.items(), ("a=b.xml", "a=b.xml")])
def test_a_word_is_a_number_a_truth_a_list_or_a_text(text, value):
    (given,) = load(["--task.kwargs.given", text])[0].task.kwargs.values()
    assert given == value
    assert type(given) is type(value)


def test_a_text_comes_back_from_a_file_or_is_refused():
    found = load(["--task.kwargs.mode", 'a\x7fb\n"c', "--task.kwargs.\x7f", "1"])[0]
    assert read_back(found) == found
    with pytest.raises(ConfigError, match=r"task\.kwargs"):
        load(["--task.kwargs.mode", os.fsdecode(b"na\xefve")])


def test_a_value_may_be_the_name_of_a_toml_file(file):
    for line in (["--task.kwargs.robot=a.toml"], ["--task.kwargs.robot", "a.toml"]):
        assert load(line)[0].task.kwargs == {"robot": "a.toml"}
        assert load([*line, file])[0].task.kwargs["frame_skip"] == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--task.kwargs", "[1]"], "task.kwargs = [1]: expected a table of texts"),
        (["--task.kwargs", "{"], "task.kwargs = '{': expected a table of texts"),
        (["--task.kwargs.a"], "--task.kwargs.a: expected a value after it"),
        (["--task.kwargs.a", "--seed", "1"], "--task.kwargs.a: expected a value after it"),
        (["--task.kwargs.a", "null"], "task.kwargs = {'a': None}: expected a table of texts"),
        (["--task.kwargs.a", "nan"], "task.kwargs = {'a': nan}: expected a table of texts"),
        (["--task.kwargs.", "1"], "task.kwargs = {'': 1}: expected a table of texts"),
    ],
)
def test_what_is_no_plain_value_is_refused(line, said):
    with pytest.raises(ConfigError) as refused:
        load(line)
    assert str(refused.value).startswith(f"command line: {said}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value", [None, (1, 2), np.float64(1.0), object, {"a": {1: 2}}, float("nan")]
)
def test_values_that_no_file_gives_back_are_refused(value):
    with pytest.raises(ConfigError, match="must be a table of texts"):
        check(Config(task=Task(kwargs={"a": value})))


@pytest.mark.parametrize("value", ["3", "{a = 2026-01-01}", "{a = [nan]}", "[1]"])
def test_a_file_is_named_whose_table_is_none(tmp_path, value):
    path = tmp_path / "x.toml"
    path.write_text(f"[task]\nkwargs = {value}\n")
    with pytest.raises(ConfigError, match=r"x.toml: task.kwargs = .*: expected a table of texts"):
        load([str(path), "--task.kwargs.b", "1"])


def test_all_that_is_written_is_read_back():
    assert "kwargs" not in config.to_toml(Config())
    assert hash(Config()) == hash(Config())
    kwargs = {"a": 1, "b": [0.5, [True, "x"]], "c d": 'q"\\', "i": {}}
    kwargs["e"] = {"f": {"g": float("inf")}, "h": []}
    found = Config(task=Task(kwargs=kwargs))
    assert read_back(found) == found
    assert load([f"--task.kwargs={config.as_words(kwargs)[0]}"])[0].task.kwargs == kwargs
    assert config.differences(Config(), found) == {"task.kwargs": ({}, kwargs)}


def rewards(env, reset, step):
    """Return the rewards of 20 random actions within the bounds of one of our environments."""
    random = np.random.default_rng(0)
    reset()
    return [step(random.uniform(env.low, env.high).astype(np.float32)) for _ in range(20)]


def ours(env):
    return rewards(env, lambda: env.reset(3), lambda action: env.step(action)[1])


@pytest.mark.parametrize(
    ("id", "kwargs", "own"),
    [
        ("HalfCheetah-v5", {"ctrl_cost_weight": 0.5}, False),
        ("HalfCheetah-v5", {"ctrl_cost_weight": 0.1}, True),  # its default
        ("HalfCheetah-v5", {"max_episode_steps": 50}, True),
        ("Hopper-v5", {"frame_skip": 2, "healthy_z_range": [0.9, float("inf")]}, False),
    ],
)
def test_rewards_are_those_of_gymnasium_made_with_them(id, kwargs, own):
    env, library = envs.make(id, kwargs=kwargs), gymnasium.make(id, **kwargs)
    assert (env.closed_loop is not None) is own
    assert env.horizon == kwargs.get("max_episode_steps", 1000)
    step = lambda action: float(library.step(action)[1])  # noqa: E731
    expected = rewards(env, lambda: library.reset(seed=3), step)
    assert ours(env) == expected
    assert kwargs.get("ctrl_cost_weight") != 0.5 or ours(envs.make(id)) != expected


@pytest.mark.parametrize("inner", [{"control_timestep": 0.02}, {"flat_observation": True}])
def test_rewards_are_those_of_the_suite_made_with_them(inner):
    kwargs = {"time_limit": 2, "environment_kwargs": inner}
    env = envs.make("dm_control/cheetah-run-v0", kwargs=kwargs)
    task = {"time_limit": 2, "random": 0}
    library = suite.load("cheetah", "run", task_kwargs=task, environment_kwargs=inner)
    assert (env.closed_loop is None) is ("flat_observation" in inner)
    assert env.horizon == round(2 / inner.get("control_timestep", 0.01))
    library.task.random.seed(3)
    assert ours(env) == rewards(env, library.reset, lambda action: library.step(action).reward)
    assert kwargs == {"time_limit": 2, "environment_kwargs": inner}


def test_a_task_that_is_built_anew_at_each_reset_keeps_them():
    env = envs.make("BipedalWalker-v3", kwargs={"hardcore": True})
    for seed in (1, 2):
        env.reset(seed)
        assert env._env.unwrapped.hardcore


CHEETAH, RUN = "HalfCheetah-v5", "dm_control/cheetah-run-v0"


@pytest.mark.parametrize(
    ("id", "kwargs", "said"),
    [
        (CHEETAH, {"ctrl_cost_weigth": 0.2}, "unexpected keyword argument"),
        (CHEETAH, {"xml_file": "no.xml"}, "no.xml does not exist"),
        (CHEETAH, {"reset_noise_scale": [1]}, "bad operand"),  # at the first reset
        (CHEETAH, {"render_mode": "human"}, "render_mode cannot be set: .* esac-mpi render"),
        (RUN, {"time_limt": 3}, "unexpected keyword argument"),
        (RUN, {"random": 3}, "random cannot be set"),
        (RUN, {"time_limit": 0}, "time limit of 0 steps"),
        (RUN, {"environment_kwargs": {"n_sub_steps": -1}}, "time limit of -1000 steps"),
        (CHEETAH, {"max_episode_steps": 2**63}, "time limit of 9223372036854775808 steps"),
        (CHEETAH, {"max_episode_steps": 10**18}, "time limit of 1000000000000000000 steps"),
        (CHEETAH, {"frame_skip": 0}, r"^[^;]*$"),
        ("Hopper-v5", {"healthy_z_range": [1]}, r"not enough values to unpack[^;]*$"),
        ("CyclicMDP-v0", {"a": 1}, "takes no task.kwargs, and a was set"),
        ("Halfcheetah-v9", {"a": 1}, "Did you mean 'HalfCheetah-v"),
        ("own_envs:Steep-v0", {"slop": 1}, "unexpected keyword argument"),
    ],
)
def test_a_task_that_does_not_take_them_says_so_in_a_sentence(id, kwargs, said):
    with pytest.raises(envs.TaskError, match=said) as refused:
        envs.make(id, kwargs=kwargs)
    assert "\n" not in str(refused.value)


SMALL = words("""--algorithm es --task.id HalfCheetah-v5 --task.horizon 5 --policy.hidden 4
--es.population_size 4 --evaluation.every 1 --evaluation.episodes 1 --budget.generations 1""")
WEIGHT = "--task.kwargs.ctrl_cost_weight"


@pytest.fixture
def evaluated(call):
    return lambda *line: call("evaluate --episodes 1", *line).out


def test_a_run_keeps_them_and_its_policy_is_evaluated_with_them(tmp_path, alone, evaluated):
    """For the horizon of its training, unless another one, or another task, is asked for."""
    where, kwargs = tmp_path / "run", {"ctrl_cost_weight": 0.5}
    alone("--run-dir", where, *SMALL, WEIGHT, "0.5")
    settings = tomllib.loads((where / "config.toml").read_text())
    assert settings["task"]["kwargs"] == Run.open(where).config.task.kwargs == kwargs
    more = ["--budget.generations", 2]
    other = alone("--run-dir", where, *SMALL, WEIGHT, "0.6", *more, code=2)
    assert "task.kwargs" in other.stderr + other.stdout
    alone(where / "config.toml", *more)
    assert Run.open(where).generation == 2

    policy, other = Policy.load(where), ["--task", "HalfCheetah-v5"]
    assert (policy.task_kwargs, policy.horizon) == (kwargs, 5)
    means = []
    for asked, length in (
        ([], 5), ([*other, "--horizon", 5], 5),
        (["--horizon", 7], 7), (["--horizon", 0], 1000), (other, 1000),
    ):  # fmt: skip
        found = json.loads(evaluated(where, "--json", *asked))
        assert (found["lengths"], found["horizon"]) == ([length], length)
        means.append(found["mean"])
    assert means[0] < means[1]  # control costs five times as much
    assert 'HalfCheetah-v5 {"ctrl_cost_weight": 0.5}, 1 episode' in evaluated(where)


def test_a_policy_of_before_has_neither(tmp_path):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    assert (policy.task_kwargs, policy.horizon) == ({}, 0)
