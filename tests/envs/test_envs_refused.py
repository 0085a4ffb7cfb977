"""Tasks that cannot be trained on, and those that an algorithm cannot: one sentence each."""

import re
import sys

import gymnasium
import numpy as np
import own_envs
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from esac_mpi.config import Config, amend, load
from esac_mpi.envs import TaskError, make, probe, refuse_discrete, translate_errors
from esac_mpi.training.task_set_up import make_task


@pytest.fixture
def own():
    """Return the module of tasks of one's own, which is imported with the first of them."""
    make("own_task:Push-v0")
    return sys.modules["own_task"]


def test_a_discrete_task_is_refused_by_continuous_algorithms():
    able = ("es", "ddpg", "ppo")
    cart, lander = make("CartPole-v1"), make("LunarLander-v3")
    for algorithm in ("esac", "sac", "td3"):
        with pytest.raises(TaskError, match=f"2 discrete actions; {algorithm} .*es or ddpg or ppo"):
            refuse_discrete(cart, algorithm, able)
        with pytest.raises(TaskError, match=r"Did you mean 'LunarLanderContinuous-v3'\?$"):
            refuse_discrete(lander, algorithm, able)
        refuse_discrete(make("CyclicMDP-v0"), algorithm, able)
        refuse_discrete(make("own_task:Push-v0"), algorithm, able)
    for algorithm in able:
        refuse_discrete(cart, algorithm, able)


ARGMAX = {"ppo.action": "gaussian_argmax"}


@pytest.mark.parametrize(
    ("task", "setting", "kind"),
    [
        ("Pendulum-v1", ARGMAX, "ppo.action = gaussian_argmax.* discrete"),
        ("CartPole-v1", {"ppo.initial_std": 0.5}, "ppo.initial_std = 0.5.* continuous"),
        ("CyclicMDP-v0", {"ppo.initial_std": 0.5}, "ppo.initial_std = 0.5.* continuous"),
        ("CartPole-v1", {**ARGMAX, "ppo.argmax_std": 0.3}, ""),
        ("Pendulum-v1", {"ppo.initial_std": 0.5}, ""),
    ],
)
def test_a_setting_for_the_other_kind_of_actions_is_refused(task, setting, kind):
    config = amend(Config(algorithm="ppo"), {"task.id": task, **setting})
    if kind:
        with pytest.raises(TaskError, match=f"^{task}: {kind} actions$"):
            make_task(config)
        config = amend(config, {"algorithm": "es"})  # which reads nothing of it
    assert make_task(config).id == task


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_setting_that_the_tasks_own_numbers_leave_unread_is_refused(value):
    line = ["--task.id", "Pendulum-v1", "--esac.scaled_noise", value]
    told = "^Pendulum-v1: esac.scaled_noise: not read with esac.observation_normalisation = true, "
    with pytest.raises(TaskError, match=told):
        make_task(load(line)[0])
    assert make_task(load([*line, "--esac.observation_normalisation", "false"])[0])


EYES = Dict({"joints": Box(-1, 1, (3,)), "eyes": Tuple([Box(0, 255, (64, 64, 3), np.uint8)])})


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (Box(0, 255, (96, 96, 3), np.uint8), "uint8, 96 x 96 x 3"),
        (Box(0, 255, (84, 84), np.uint8), "uint8, 84 x 84"),
        (Box(0, 1, (4, 84, 84), np.float32), "float32, 4 x 84 x 84"),
        (EYES, "uint8, 64 x 64 x 3"),
        (Box(0, 255, (7, 7, 3), np.uint8), ""),  # a grid of symbols
        (Box(-1, 1, (64, 64), np.float32), ""),  # heights of the ground
        (Box(0, 255, (128,), np.uint8), ""),
    ],
)
def test_images_are_refused_in_a_sentence(own, monkeypatch, space, image):
    monkeypatch.setattr(own.Push, "observation_space", space)
    if not image:
        assert make("own_task:Push-v0").observation_size == np.prod(space.shape)
        return
    with pytest.raises(TaskError, match=rf"images \({image}\), .* no convolutional network here"):
        make("own_task:Push-v0")


@pytest.mark.parametrize(
    ("what", "space", "said"),
    [
        ("observation", None, "^own_task:Push-v0 has the observations None; they cannot be"),
        ("observation", Box(-1, 1, (0,)), "^own_task:Push-v0 has observations of no number at all"),
        ("action", Box(-1, 1, (0,)), "^own_task:Push-v0 has actions of no number at all"),
        ("action", MultiDiscrete([2, 2]), r"has the actions MultiDiscrete\(\[2 2\]\)"),
        ("action", Box(-np.inf, np.inf, (2, 2)), "unbounded"),
        ("action", Box(-3e38, 3e38, (2, 2)), "unbounded"),
    ],
)
def test_a_space_that_no_policy_has_is_refused(own, monkeypatch, what, space, said):
    monkeypatch.setattr(own.Push, f"{what}_space", space)
    with pytest.raises(TaskError, match=said):
        make("own_task:Push-v0")


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("HalfCheeta-v5", "Did you mean 'HalfCheetah-v5'"),
        ("HalfCheetah-v9", "Did you mean 'HalfCheetah-v5'"),
        ("LunarLanderContinuous-v2", "use `LunarLanderContinuous-v3`"),
        ("Cyclic-v0", "Did you mean 'CyclicMDP-v0'"),
        ("Pusher2-v0", r"Did you mean 'Pusher-v5'\? One of your own is named module:EnvId"),
        ("Zyxomma-v0", "Unknown task 'Zyxomma-v0'. One of your own is named module:EnvId"),
        ("walker-walk", "dm_control/<domain>-<task>-v0"),
        ("robot.xml", "docs/start/own-robot.md"),
        ("own_task:Psh-v0", "Did you mean 'own_task:Push-v0'"),
        ("own_task:Nope-v0", "'own_task:Nope-v0'. own_task registers Push-v0, Buffer-v0, "),
        ("math:Nope-v0", "Unknown task 'math:Nope-v0'. One of your own is named module:EnvId"),
        ("no_such_module:Push-v0", "no_such_module"),
        ("own_task.py:Push-v0", "'own_task.py' is no module's name; that of mine.py here is mine"),
        ("./own_task:Push-v0", "'./own_task' is no module's name"),
        ("arms/own_task:Push-v0", "'arms/own_task' is no module's name"),
        (":Push-v0", "'' is no module's name"),
        ("CyclicMDPRepo-v0", "set task.horizon"),
        ("own_task:Endless-v0", "set task.horizon, or max_episode_steps in gymnasium.register."),
        ("dm_control/walker-wlak-v0", "Did you mean 'dm_control/walker-walk-v0'"),
        ("dm_control/walker-walk", "Did you mean 'dm_control/walker-walk-v0'"),
        ("dm_control/lqr-lqr_2_1-v0", r"with --horizon; to train, set task.horizon\.$"),
    ],
)
def test_a_task_that_cannot_be_trained_on_is_refused_in_one_line(id, message):
    with pytest.raises(TaskError, match=message) as error:
        make(id)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "replaced", "message"),
    [
        ("reset", lambda env: ({}, {}), r"TypeError: .*argument 'seed' \(\S+, line \d+\)$"),
        ("step", lambda env, action: (env.state, 0.0, False, {}), "expected 5, got 4"),
        ("reset", lambda env, **_: ({"b": np.zeros(3)}, {}), r"not of its space, Dict\(.*: 'a'$"),
        ("step", lambda env, action: (np.zeros(5), 0.0, False, False, {}), r"of its space, Dict\("),
        ("step", lambda env, action: (env.state, None, False, False, {}), "one number, and twice"),
        ("step", lambda env, action: (env.state, np.nan, False, False, {}), "reward of every one"),
        ("reset", lambda env, **_: None, "NoneType .* Gymnasium's reset returns observation and"),
        ("step", lambda env, action: None, "NoneType .* Gymnasium's reset returns observation and"),
        ("step", lambda env, action: next(iter(())), r"StopIteration \(.*refused.py, line \d+\)$"),
    ],
)
def test_a_task_that_breaks_in_its_first_steps_is_refused(
    own, monkeypatch, name, replaced, message
):
    monkeypatch.setattr(own.Push, name, replaced)
    with pytest.raises(TaskError, match=message):
        probe.probe(make("own_task:Push-v0"))


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (Discrete(3), -1),
        (Discrete(3, start=1), np.array([0])),
        (MultiDiscrete([2, 3]), [2, 0]),
        (Dict(a=Tuple([Discrete(2), MultiDiscrete([3])])), {"a": (1, [-1])}),
        (Dict(a=Box(-1, 1, (3,))), {"a": np.ones(3, complex)}),
        (Tuple([Box(-1, 1, (3,))]), (np.ma.masked_equal(np.ones(3), 1),)),
        (Dict(a=Box(0, 9, (2,), int)), {"a": [0.5, 1.0]}),
        (Dict(a=Box(0, 9, (2,), int)), {"a": np.array([np.nan, 1.0])}),
        (Dict(a=Box(0, 255, (2,), np.uint8)), {"a": np.array([256, 0])}),
        (Dict(a=Box(-1, 1, (3,)), b=Box(-1, 1, (2,))), {"a": np.ones(2), "b": np.ones(3)}),
        (MultiBinary(2), [0.5, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_what_is_not_of_its_space_is_nothing_else(own, monkeypatch, space, seen):
    monkeypatch.setattr(own.Push, "observation_space", space)
    monkeypatch.setattr(own.Push, "reset", lambda env, **_: (seen, {}))
    with pytest.raises(TaskError, match=r"not of its space, .* (is no choice|not) of "):
        make("own_task:Push-v0").reset(0)


def test_observations_unlike_their_space_are_refused_now_and_later(own, monkeypatch):
    task = make("own_task:Buffer-v0")
    task.reset(0)
    monkeypatch.setattr(own.Buffer, "reset", lambda env, **options: (np.zeros(5), {}))
    for begin in (probe.probe, lambda task: task.reset(1)):
        with pytest.raises(TaskError, match=r"reset .* observation has 5 numbers, its space 3"):
            begin(task)


class Odd(own_envs.Walk):
    """Answers a step with something that is not of its kind."""

    def __init__(self, **odd):
        super().__init__()
        self.odd = odd

    def step(self, action):
        kinds = ("observation", "reward", "terminated", "truncated")
        answer = dict(zip(kinds, super().step(action), strict=False)) | self.odd
        return *answer.values(), {}


gymnasium.register("Odd-v0", entry_point=Odd, max_episode_steps=30)
ODD = [{"reward": np.ones(2)}, {"reward": None}, {"terminated": np.ones(2)}]
ODD += [{"reward": 10**400}, {"observation": [10**400] * 3}]
ODD += [{"terminated": np.nan}, {"terminated": "False"}, {"truncated": None}, {"truncated": {}}]


@pytest.mark.parametrize("odd", [*ODD, {"observation": [1, [2, 3]]}, {"observation": [1.0]}])
def test_an_answer_of_another_kind_is_refused(odd):
    with pytest.raises(TaskError, match="Odd-v0: a step must answer an array of numbers"):
        probe.probe(make("Odd-v0", kwargs=odd))


@pytest.mark.parametrize("part", [np.ones(3, complex), np.ma.masked_equal(np.ones(3), 1)])
def test_numbers_of_which_a_part_would_be_lost_are_refused(own, monkeypatch, part):
    with pytest.raises(TaskError, match="the observation has complex or masked numbers"):
        probe.probe(make("Odd-v0", kwargs={"observation": part}))
    with pytest.raises(TaskError, match=re.escape(f"the last three are {part[0]!r}, ")):
        probe.probe(make("Odd-v0", kwargs={"reward": part[0]}))
    monkeypatch.setattr(own.Buffer, "reset", lambda env, **options: (part, {}))
    with pytest.raises(TaskError, match=r"reset answers .* complex or masked numbers"):
        make("own_task:Buffer-v0").reset(0)


@pytest.mark.parametrize("kind", [bool, int, float, np.bool_, np.array])
def test_true_and_false_are_of_any_kind(kind):
    env = make("Odd-v0", kwargs={"terminated": kind(False), "truncated": kind(True)})
    env.reset(0)
    *_, terminated, truncated = env.step(env.high)
    assert (terminated, truncated) == (False, True)
    assert {type(terminated), type(truncated)} == {bool}


def test_an_error_without_a_text_is_told_by_its_kind():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    with (
        pytest.raises(TaskError, match=r"mine cannot be made: Mute \("),
        translate_errors("mine", "made"),
    ):
        raise Mute
