"""What a task must keep, and how a run tells: episodes that are not the same again, and tasks that
have changed.
"""

import re
import sys

import mujoco
import numpy as np
import pytest
from conftest import run

from esac_mpi import envs
from esac_mpi.config import Config, updated
from esac_mpi.envs import identity, probe
from esac_mpi.record import Run, task_identity
from esac_mpi.training import check, provenance

MODULE = """
import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RescaleAction
from own_envs import Walk


class Counter(Walk):
    '''Pay for the number of the episode.'''

    episodes = 0

    def reset(self, **options):
        self.episodes += 1
        return super().reset(**options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * self.episodes, *rest


class Careless(Walk):
    '''Draw from another generator than its own.'''

    def observe(self):
        self.observation = np.random.uniform(-1, 1, 3).astype(np.float32)
        return self.observation


def stack(*wrappers):
    def make():
        env = Walk()
        for wrapper in wrappers:
            env = wrapper(env)
        return env

    return make


def rescaled(env):
    return RescaleAction(env, -1, 1)


MAKERS = {
    "Walk": Walk, "Counter": Counter, "Careless": Careless, "Rescaled": stack(rescaled),
    "Observation": stack(NormalizeObservation), "Reward": stack(rescaled, NormalizeReward),
}
for name, maker in MAKERS.items():
    gymnasium.register(f"{name}-v0", maker, max_episode_steps=30)
"""


@pytest.fixture(scope="module", autouse=True)
def stacks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stacks")
    (folder / "stacks.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("Counter", ["rewards"]),
        ("Careless", ["observations", "rewards"]),
        ("Observation", ["observations"]),
        ("Reward", ["rewards"]),
    ],
)
def test_what_keeps_something_from_one_episode_to_the_next_is_named(task, named):
    env = envs.make(f"stacks:{task}-v0")
    sentence = probe.complaint(env, probe.probe(env).apart)
    assert f"not the same: {env.id} ({', '.join(named)}) keeps something from" in sentence


@pytest.mark.parametrize(
    "task",
    ["stacks:Walk-v0", "stacks:Rescaled-v0", "HalfCheetah-v5", "BipedalWalker-v3", "CartPole-v1",
     "CyclicMDP-v0",
     "dm_control/walker-walk-v0"],
)  # fmt: skip
def test_an_episode_of_these_is_the_same_again(task):
    env = envs.make(task)
    found = probe.probe(env)
    assert found.apart == frozenset()
    assert probe.probe(env) == probe.probe(envs.make(task)) == found


def gathered(task, world):
    """Return the provenance of a task of stacks.py."""
    env = envs.make(f"stacks:{task}-v0")
    return provenance.gather(env, probe.probe(env), world, 0, [])


def test_a_run_warns_once_and_counts_the_steps_that_it_took_to_find_out(monkeypatch, world):
    warnings: list[str] = []
    monkeypatch.setattr(provenance.log, "warn", warnings.append)
    origin = gathered("Observation", world)
    (warning,) = [text for text in warnings if "not the same" in text]
    assert "stacks:Observation-v0 (observations) keeps something" in warning
    assert origin["probe_steps"] == probe.PROBE_STEPS


def test_check_has_a_line_about_it(world, capsys):
    config = updated(
        Config(), {"algorithm": "es", "policy.hidden": (8, 8), "task.id": "stacks:Reward-v0"}
    )
    assert check.ranks.look(config, world)[1].apart.startswith(
        "an episode played again after others was not the same: stacks:Reward-v0"
    )
    *_, line = check.run.playing(config, [check.ranks.look(config, world)[1]])
    assert (line.subject, line.found, line.fatal) == ("episodes", "not repeated", False)
    assert "docs/reference/tasks.md" in line.remedy
    *_, line = check.run.playing(
        config, [check.ranks.look(updated(config, {"task.id": "stacks:Walk-v0"}), world)[1]]
    )
    assert (line.found, line.remedy) == ("the same again after others", "")


# What a task is made of

XML = """<mujoco><compiler meshdir="meshes"/><option timestep="0.01"/>\
<asset><mesh name="t" file="t.obj"/>
<texture name="sky" type="skybox" builtin="flat" rgb1="0 0 1" width="8" height="8"/></asset>
<worldbody><body name="arm"><freejoint/><geom type="mesh" mesh="t" mass="1"/></body>\
</worldbody></mujoco>"""
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


class Simulated:
    """A layer that holds a model."""

    def __init__(self, folder, *change: str) -> None:
        (folder / "meshes").mkdir(parents=True, exist_ok=True)
        (folder / "meshes" / "t.obj").write_text(MESH)
        (folder / "arm.xml").write_text(XML.replace(*change) if change else XML)
        self.compiled = mujoco.MjModel.from_xml_path(str(folder / "arm.xml"))


def test_a_model_is_known_by_what_it_computes_and_not_by_where_it_lies_or_how_it_looks(tmp_path):
    was = identity.model([Simulated(tmp_path / "a")])
    assert identity.model([Simulated(tmp_path / "moved" / "b")]) == was
    assert identity.model([Simulated(tmp_path / "c", 'rgb1="0 0 1"', 'rgb1="1 0 0"')]) == was
    assert identity.model([Simulated(tmp_path / "d", 'mass="1"', 'mass="1.01"')]) != was
    assert identity.model([Simulated(tmp_path / "e", 'timestep="0.01"', 'timestep="0.02"')]) != was
    assert identity.model([Simulated(tmp_path / "f", 'name="arm"', 'name="leg"')]) != was
    assert identity.model([object.__new__(Simulated)]) == ""


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "dm_control/walker-walk-v0"])
def test_the_models_of_the_libraries_are_found(id):
    made = identity.identity(envs.make(id))
    assert made == identity.identity(envs.make(id))
    assert re.fullmatch("[0-9a-f]{16}", made["model"])
    assert made["source"] == ""  # by the library's version
    assert (
        made["wrappers"]
        == {
            "H": "TimeLimit of OrderEnforcing of HalfCheetahEnv",
            "d": "Environment of PlanarWalker",
        }[id[0]]
    )


ARM = """import gymnasium
from own_envs import Walk
from {name}_parts.rewards import scale


class Arm(Walk):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, scale(reward), *rest


gymnasium.register("Arm-v0", Arm, max_episode_steps=30)
"""
REWARDS = "def scale(reward):\n    return reward\n"
LOWER = "def scale(reward):\n    return reward / 10\n"


def write_arm(folder, name="arm", rewards=REWARDS, arm=ARM):
    (folder / f"{name}_parts").mkdir(exist_ok=True)
    (folder / f"{name}_parts" / "rewards.py").write_text(rewards)
    (folder / f"{name}.py").write_text(arm.format(name=name))


def test_the_source_of_a_task_is_its_own_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    write_arm(tmp_path, "arm_a")
    layers = envs.make("arm_a:Arm-v0").layers
    was = dict(entry.split() for entry in identity.source("arm_a:Arm-v0", layers).split(", "))
    assert list(was) == ["arm_a", "arm_a_parts.rewards", "own_envs"]
    write_arm(tmp_path, "arm_a", LOWER)
    now = dict(entry.split() for entry in identity.source("arm_a:Arm-v0", layers).split(", "))
    assert [name for name in was if was[name] != now[name]] == ["arm_a_parts.rewards"]


def test_many_modules_are_told_in_few_characters(monkeypatch):
    for i in range(70):
        monkeypatch.setitem(sys.modules, f"part_{i:02}", sys.modules["own_envs"])
    imported = {f"part_{i:02}" for i in range(70)}
    monkeypatch.setattr(identity, "_imported", lambda tree, name: imported)
    entries = identity.source("stacks:Walk-v0", envs.make("stacks:Walk-v0").layers).split(", ")
    assert len(entries) == 51
    assert re.fullmatch(r"22 more [0-9a-f]{8}", entries[-1])  # and own_envs, stacks


# A run and its continuation

MADE = {"cpu": "c1", "versions": "numpy 2", "python": "3.11.9"}
TASK = {
    "task_source": "arm 1, rewards 2", "task_wrappers": "TimeLimit of Arm", "task_model": "m1",
    "task_probe": "observations 1, rewards 2, ends 3",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"task_source": "arm 1, rewards 3, more 4"}, ["its source (more, rewards)"]),
        ({"task_wrappers": "Arm"}, ["its wrappers (TimeLimit of Arm -> Arm)"]),
        ({"task_model": "m2"}, ["its MuJoCo model as compiled"]),
        (
            {"task_probe": "observations 1, rewards 5, ends 3"},
            ["what it answers in its first steps (rewards)"],
        ),
        ({"task_probe": "observations 1, rewards 5, ends 3", "cpu": "c2"}, []),
        (
            {
                "task_model": "m2",
                "task_probe": "observations 9, rewards 9, ends 9",
                "versions": "numpy 3",
            },
            [],
        ),
        ({"task_model": "", "task_probe": ""}, []),  # they would be others in any process
        (
            {"task_source": "arm 7, rewards 3", "cpu": "c2", "versions": "numpy 3"},
            ["its source (arm, rewards)"],
        ),
        ({"task_source": "arm 7, rewards 2", "python": "3.12.1"}, ["its source (arm)"]),
    ],
)
def test_what_has_changed_of_a_task_is_named_and_what_machines_change_is_not(changed, told):
    assert task_identity.changes({**MADE, **TASK}, {**MADE, **TASK, **changed}) == told


def test_a_run_that_recorded_nothing_of_its_task_goes_on():
    assert task_identity.changes(MADE, {**MADE, **TASK}) == []


def test_what_is_another_in_every_process_is_not_recorded(world):
    steady = gathered("Walk", world)
    assert steady["task_probe"] == probe.probe(envs.make("stacks:Walk-v0")).digests
    assert gathered("Careless", world)["task_probe"] == ""
    env = envs.make("HalfCheetah-v5")
    made = identity.identity(env)
    found = probe.Probe("observations 1, rewards 2, ends 3", frozenset({"observations"}))
    assert (
        provenance.task(env, made, found, True)["task_model"] == made["model"]
    )  # a wrapper's doing
    env._env.unwrapped.model.body_mass[1] *= 1.1  # as a task does that draws its model anew
    assert provenance.task(env, made, found, True)["task_model"] == ""
    assert provenance.task(env, made, probe.probe(env), True)["task_model"] == made["model"]


def test_an_edited_reward_is_refused_or_let_be_and_the_best_policy_begins_anew(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_arm(tmp_path)
    small = [
        "--policy.hidden",
        4,
        "--es.population_size",
        4,
        "--es.start_states",
        "member",
        "--evaluation.every",
        2,
        "--evaluation.episodes",
        2,
    ]
    line = ["--algorithm", "es", "--task.id", "arm:Arm-v0", *small, "--run-dir", "run"]
    run(0, *line, "--budget.generations", 4)
    before = Run.open("run").columns["metrics/best_return"][-1]
    assert before < -20  # some forty steps of -0.7
    write_arm(tmp_path, rewards=LOWER)
    refused = run(0, *line, "--budget.generations", 8, code=2)
    assert refused.stderr.count("\n") == 2
    assert (
        "changed: its source (arm_parts.rewards); what it answers in its first steps (rewards).\n"
        in refused.stderr
    )
    assert "--task.changed warn" in refused.stderr
    assert Run.open("run").status["status"] == "complete"
    done = run(0, *line, "--budget.generations", 8, "--task.changed", "warn")
    assert "WARNING" in done.stdout
    assert "the task has changed: its source (arm_parts.rewards); what it answers" in done.stdout
    assert (
        "changed" not in (tmp_path / "run" / "config.toml").read_text()
    )  # a permission for one start
    found = Run.open("run")
    best = found.columns["metrics/best_return"]
    assert best[3] == before
    assert (
        best[4] == -np.inf
    )  # of the old task nothing is left, and the new one is evaluated at generation 6
    assert found.policy[1]["generation"] in (6, 8)
    assert found.policy[1]["episodic_return"] == best[-1] > before / 5
    assert found.provenance["task_changes"].startswith(
        "after generation 4: its source (arm_parts.rewards), what it"
    )
    again = run(0, *line, "--budget.generations", 9)  # with the task of the newest checkpoint
    assert "the task has changed" not in again.stdout
    assert Run.open("run").provenance["task_changes"] == found.provenance["task_changes"]
