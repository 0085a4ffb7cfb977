"""Keyword arguments of a task: how they are said, what they change, who refuses them, and that a
run keeps them.
"""

import json
import os
import re
import tomllib

import gymnasium
import numpy as np
import pytest
from commands import command
from conftest import run
from dm_control import suite
from saved_policies import save

from esac_mpi import Policy, envs
from esac_mpi.comm import command_ranks
from esac_mpi.config import (
    Config,
    ConfigError,
    Task,
    as_words,
    check,
    differences,
    from_table,
    load,
    to_toml,
    updated,
)
from esac_mpi.record import Run

FILE = '[task]\nid = "Hopper-v5"\n[task.kwargs]\nhealthy_z_range = [0.8, inf]\nframe_skip = 2\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hopper.toml"
    path.write_text(FILE)
    return str(path)


def test_a_file_has_a_table_which_single_ones_join_and_an_object_replaces(file):
    of_file = {"healthy_z_range": [0.8, float("inf")], "frame_skip": 2}
    assert load([file])[0].task.kwargs == of_file
    line = [file, "--task.kwargs.frame-skip=3", "--task.kwargs.ctrl_cost_weight", "1e-2"]
    assert load(line)[0].task.kwargs == of_file | {"frame_skip": 3, "ctrl_cost_weight": 0.01}
    nested = load(["--task.kwargs.reset-options.low-level.x-y", "1"])[0].task.kwargs
    assert nested == {"reset_options": {"low-level": {"x-y": 1}}}
    assert load([file, "--task.kwargs", '{"frame_skip": 4}'])[0].task.kwargs == {"frame_skip": 4}
    assert load([file, "--task.kwargs={}"])[0].task == Task("Hopper-v5")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("-1", -1),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("[1, 2]", [1, 2]),
        ("a=b.xml", "a=b.xml"),
    ],
)
def test_a_word_is_a_number_a_truth_a_list_or_a_text(text, value):
    kwargs = load(["--task.kwargs.given", text])[0].task.kwargs
    assert kwargs == {"given": value}
    assert type(kwargs["given"]) is type(value)


def test_a_text_comes_back_from_a_file_or_is_refused():
    config = load(["--task.kwargs.mode", 'a\x7fb\n"c', "--task.kwargs.\x7f", "1"])[0]
    assert (
        updated(
            Config(),
            tomllib.loads(to_toml(config)) and from_table(tomllib.loads(to_toml(config)), "it"),
        )
        == config
    )
    with pytest.raises(ConfigError, match=r"task\.kwargs"):
        load(["--task.kwargs.mode", os.fsdecode(b"na\xefve")])


def test_a_value_may_be_the_name_of_a_toml_file(file):
    for words in (["--task.kwargs.robot=a.toml"], ["--task.kwargs.robot", "a.toml"]):
        assert load(words)[0].task.kwargs == {"robot": "a.toml"}
        assert load([*words, file])[0].task.kwargs["frame_skip"] == 2


def test_a_name_with_dots_is_of_a_table_inside():
    line = [
        "--task.kwargs.time_limit",
        "5",
        "--task.kwargs.environment_kwargs.control_timestep",
        "0.02",
    ]
    inner = {"time_limit": 5, "environment_kwargs": {"control_timestep": 0.02}}
    assert load(line)[0].task.kwargs == inner
    names = {"task.kwargs.time_limit": 5, "task.kwargs.environment_kwargs.control_timestep": 0.02}
    assert from_table(names, "settings") == {"task.kwargs": inner}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--task.kwargs", "[1]"], "command line: task.kwargs = '[1]': expected a JSON object"),
        (["--task.kwargs", "{"], "command line: task.kwargs = '{': expected a JSON object"),
        (["--task.kwargs.a"], "command line: --task.kwargs.a: expected a value after it"),
        (
            ["--task.kwargs.a", "--seed", "1"],
            "command line: --task.kwargs.a: expected a value after it",
        ),
        (
            ["--task.kwargs.a", "null"],
            "command line: task.kwargs = {'a': None}: expected a table of texts",
        ),
        (
            ["--task.kwargs.a", "nan"],
            "command line: task.kwargs = {'a': nan}: expected a table of texts",
        ),
        (["--task.kwargs.", "1"], "command line: task.kwargs = {'': 1}: expected a table of texts"),
    ],
)
def test_what_is_no_plain_value_is_refused(line, said):
    with pytest.raises(ConfigError) as refused:
        load(line)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value", [None, (1, 2), np.float64(1.0), object, {"a": {1: 2}}, float("nan")]
)
def test_values_that_a_file_would_not_give_back_are_refused_from_python_too(value):
    with pytest.raises(ConfigError, match="must be a table of texts"):
        check(Config(task=Task(kwargs={"a": value})))


@pytest.mark.parametrize("value", ["3", "{a = 2026-01-01}", "{a = [nan]}", "[1]"])
def test_a_file_is_named_whose_table_is_none(tmp_path, value):
    path = tmp_path / "x.toml"
    path.write_text(f"[task]\nkwargs = {value}\n")
    with pytest.raises(ConfigError, match=r"x.toml: task.kwargs = .*: expected a table of texts"):
        load([str(path), "--task.kwargs.b", "1"])


def test_without_any_nothing_is_written_and_with_some_all_of_it_is_read_back():
    assert "kwargs" not in to_toml(Config())
    assert hash(Config()) == hash(Config())
    kwargs = {
        "a": 1,
        "b": [0.5, [True, "x"]],
        "c d": 'q"\\',
        "e": {"f": {"g": float("inf")}, "h": []},
        "i": {},
    }
    config = Config(task=Task(kwargs=kwargs))
    again = updated(Config(), from_table(tomllib.loads(to_toml(config)), "x.toml"))
    assert again == config
    assert load([f"--task.kwargs={as_words(kwargs)[0]}"])[0].task.kwargs == kwargs
    assert differences(Config(), config) == {"task.kwargs": ({}, kwargs)}


def rewards(env, steps=20):
    """Return the rewards of an episode of random actions in one of ours."""
    random = np.random.default_rng(0)
    env.reset(3)
    return [env.step(random.uniform(env.low, env.high).astype(np.float32))[1] for _ in range(steps)]


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
    env, library, random = (
        envs.make(id, kwargs=kwargs),
        gymnasium.make(id, **kwargs),
        np.random.default_rng(0),
    )
    assert (env.closed_loop is not None) is own
    assert env.horizon == kwargs.get("max_episode_steps", 1000)
    library.reset(seed=3)
    expected = [
        float(library.step(random.uniform(env.low, env.high).astype(np.float32))[1])
        for _ in range(20)
    ]
    assert rewards(env) == expected
    if kwargs.get("ctrl_cost_weight") == 0.5:
        assert rewards(envs.make(id)) != expected


@pytest.mark.parametrize("inner", [{"control_timestep": 0.02}, {"flat_observation": True}])
def test_rewards_are_those_of_the_suite_made_with_them(inner):
    id, kwargs = "dm_control/cheetah-run-v0", {"time_limit": 2, "environment_kwargs": inner}
    env, random = envs.make(id, kwargs=kwargs), np.random.default_rng(0)
    library = suite.load(
        "cheetah", "run", task_kwargs={"time_limit": 2, "random": 0}, environment_kwargs=inner
    )
    assert (env.closed_loop is None) is ("flat_observation" in inner)
    assert env.horizon == round(2 / inner.get("control_timestep", 0.01))
    library.task.random.seed(3)
    library.reset()
    expected = [
        library.step(random.uniform(env.low, env.high).astype(np.float32)).reward for _ in range(20)
    ]
    assert rewards(env) == expected
    assert kwargs == {"time_limit": 2, "environment_kwargs": inner}


def test_a_task_that_is_built_anew_at_each_reset_keeps_them():
    env = envs.make("BipedalWalker-v3", kwargs={"hardcore": True})
    for seed in (1, 2):
        env.reset(seed)
        assert env._env.unwrapped.hardcore


@pytest.mark.parametrize(
    ("id", "kwargs", "said"),
    [
        (
            "HalfCheetah-v5",
            {"ctrl_cost_weigth": 0.2},
            "unexpected keyword argument",
        ),
        ("HalfCheetah-v5", {"xml_file": "no.xml"}, "no.xml does not exist"),
        ("HalfCheetah-v5", {"reset_noise_scale": [1]}, "bad operand"),  # at the first reset
        (
            "HalfCheetah-v5",
            {"render_mode": "human"},
            "render_mode cannot be set: .* esac-mpi render",
        ),
        ("dm_control/cheetah-run-v0", {"time_limt": 3}, "unexpected keyword argument"),
        ("dm_control/cheetah-run-v0", {"random": 3}, "random cannot be set"),
        ("CyclicMDP-v0", {"a": 1}, "takes no task.kwargs, and a was set"),
        ("Halfcheetah-v9", {"a": 1}, "Did you mean 'HalfCheetah-v"),
        ("own_envs:Steep-v0", {"slop": 1}, "unexpected keyword argument"),
    ],
)
def test_a_task_that_does_not_take_them_says_so_in_a_sentence(id, kwargs, said):
    with pytest.raises(envs.TaskError, match=said) as refused:
        envs.make(id, kwargs=kwargs)
    assert "\n" not in str(refused.value)


SMALL = [
    *(
        "--algorithm",
        "es",
        "--task.id",
        "HalfCheetah-v5",
        "--task.horizon",
        5,
        "--policy.hidden",
        4,
    ),
    *("--es.population_size", 4, "--evaluation.every", 1, "--evaluation.episodes", 1),
]


def test_a_run_keeps_them_and_its_policy_is_evaluated_in_the_task_that_they_make(
    tmp_path, alone, capsys
):
    where, weight = tmp_path / "run", ["--task.kwargs.ctrl_cost_weight", "0.5"]
    alone("--run-dir", where, *SMALL, *weight, "--budget.generations", 1)
    assert tomllib.loads((where / "config.toml").read_text())["task"]["kwargs"] == {
        "ctrl_cost_weight": 0.5
    }
    assert Run.open(where).config.task.kwargs == {"ctrl_cost_weight": 0.5}
    other = run(
        0,
        "--run-dir",
        where,
        *SMALL,
        "--task.kwargs.ctrl_cost_weight",
        "0.6",
        "--budget.generations",
        2,
        code=2,
    )
    assert "task.kwargs" in other.stderr + other.stdout
    alone(where / "config.toml", "--budget.generations", 2)
    assert Run.open(where).generation == 2

    policy = Policy.load(where)
    assert policy.task_kwargs == {"ctrl_cost_weight": 0.5}
    evaluate, found = command("evaluate"), []
    for task in ([], ["--task", "HalfCheetah-v5"]):
        arguments = [str(where), "--episodes", "1", "--horizon", "5", "--json", *task]
        assert evaluate.main(arguments, command_ranks.Alone()) == 0
        found.append(json.loads(capsys.readouterr().out)["mean"])
    assert found[0] < found[1]  # control costs five times as much
    assert evaluate.main([str(where), "--episodes", "1"], command_ranks.Alone()) == 0
    assert 'HalfCheetah-v5 {"ctrl_cost_weight": 0.5}, 1 episode' in capsys.readouterr().out


def test_a_policy_is_evaluated_for_as_long_as_its_training_played(tmp_path, alone, capsys):
    where, evaluate = tmp_path / "run", command("evaluate")
    alone("--run-dir", where, *SMALL, "--budget.generations", 1)
    assert Policy.load(where).horizon == 5
    for more, length in (
        ([], 5),
        (["--horizon", "7"], 7),
        (["--horizon", "0"], 1000),
        (["--task", "HalfCheetah-v5"], 1000),
    ):
        assert (
            evaluate.main([str(where), "--episodes", "1", "--json", *more], command_ranks.Alone())
            == 0
        )
        found = json.loads(capsys.readouterr().out)
        assert (found["lengths"], found["horizon"]) == ([length], length)


def test_a_policy_of_before_has_neither(tmp_path):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    assert (policy.task_kwargs, policy.horizon) == ({}, 0)


def test_nothing_is_created_where_they_are_refused(tmp_path):
    done = run(0, "--run-dir", tmp_path / "run", *SMALL, "--task.kwargs.weight", "2", code=2)
    assert re.search(r"unexpected keyword argument 'weight'", done.stderr)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
