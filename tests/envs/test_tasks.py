"""Episodes that are not the same again, tasks that have changed, and how a run tells."""

import importlib
import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import gymnasium
import mujoco
import numpy as np
import own_envs
import pytest
from in_process import started
from words import words

import esac_mpi
from esac_mpi import WrongUsage, envs
from esac_mpi.config import Config, amend
from esac_mpi.envs import identity, probe
from esac_mpi.record import Run
from esac_mpi.record.directory_check import task_changes
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
        ("Counter", "rewards"),
        ("Careless", "observations, rewards"),
        ("Observation", "observations"),
        ("Reward", "rewards"),
    ],
)
def test_what_keeps_something_between_episodes_is_named(task, named):
    env = envs.make(f"stacks:{task}-v0")
    assert f"not the same: {env.id} ({named}) keeps something from" in probe.probe(env).apart


STEADY = ["stacks:Walk-v0", "stacks:Rescaled-v0", "HalfCheetah-v5", "BipedalWalker-v3"]
STEADY += ["CartPole-v1", "CyclicMDP-v0", "dm_control/walker-walk-v0"]


@pytest.mark.parametrize("task", STEADY)
def test_an_episode_of_these_is_the_same_again(task):
    env = envs.make(task)
    found = probe.probe(env)
    assert found.apart == ""
    assert probe.probe(env) == probe.probe(envs.make(task)) == found


def gathered(task, world):
    env = envs.make(f"stacks:{task}-v0")
    return provenance.gather(env, probe.probe(env), world, 0, [], "es")


def test_a_run_warns_once_and_counts_the_steps_that_it_took(monkeypatch, world):
    warnings: list[str] = []
    monkeypatch.setattr(provenance.log, "warn", warnings.append)
    origin = gathered("Observation", world)
    (warning,) = [text for text in warnings if "not the same" in text]
    assert "stacks:Observation-v0 (observations) keeps something" in warning
    assert origin["probe_steps"] == probe.PROBE_STEPS


def test_check_has_a_line_about_it(world):
    config = amend(Config(), {"algorithm": "es", "policy.hidden": (8, 8)})

    def line(task):
        _, rank, *_ = check.ranks.look(amend(config, {"task.id": task}), world)
        *_, found = check.run.playing(config, [rank])
        return found

    apart = line("stacks:Reward-v0")
    assert (apart.subject, apart.found, apart.fatal) == ("episodes", "not repeated", False)
    assert "stacks:Reward-v0" in apart.remedy
    steady = line("stacks:Walk-v0")
    assert (steady.found, steady.remedy) == ("the same again after others", "")


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


def test_a_model_is_known_by_what_it_computes(tmp_path):
    was = identity.model([Simulated(tmp_path / "a")])
    assert identity.model([Simulated(tmp_path / "moved" / "b")]) == was
    for number, (old, new, differs) in enumerate(
        (
            ('rgb1="0 0 1"', 'rgb1="1 0 0"', False),
            ('mass="1"', 'mass="1.01"', True),
            ('timestep="0.01"', 'timestep="0.02"', True),
            ('name="arm"', 'name="leg"', True),
        )
    ):
        assert (identity.model([Simulated(tmp_path / str(number), old, new)]) != was) == differs
    assert identity.model([object.__new__(Simulated)]) == ""


@pytest.mark.parametrize(
    ("id", "wrappers"),
    [
        ("HalfCheetah-v5", "TimeLimit of OrderEnforcing of HalfCheetahEnv"),
        ("dm_control/walker-walk-v0", "Environment of PlanarWalker"),
    ],
)
def test_the_models_of_the_libraries_are_found(id, wrappers):
    made = identity.identity(envs.make(id))
    assert made == identity.identity(envs.make(id))
    assert re.fullmatch("[0-9a-f]{16}", made["model"])
    assert (made["source"], made["wrappers"]) == ("", wrappers)  # its source: the library's version


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


def write_arm(folder, name="arm", rewards=REWARDS):
    (folder / f"{name}_parts").mkdir(exist_ok=True)
    (folder / f"{name}_parts" / "rewards.py").write_text(rewards)
    (folder / f"{name}.py").write_text(ARM.format(name=name))


def test_the_source_of_a_task_is_its_own_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    write_arm(tmp_path, "arm_a")
    layers = envs.make("arm_a:Arm-v0").layers

    def source():
        return dict(entry.split() for entry in identity.source("arm_a:Arm-v0", layers).split(", "))

    was = source()
    assert list(was) == ["arm_a", "arm_a_parts.rewards", "own_envs"]
    write_arm(tmp_path, "arm_a", LOWER)
    now = source()
    assert [name for name in was if was[name] != now[name]] == ["arm_a_parts.rewards"]


def test_many_modules_are_told_in_few_characters(monkeypatch):
    for i in range(70):
        monkeypatch.setitem(sys.modules, f"part_{i:02}", sys.modules["own_envs"])
    imported = {f"part_{i:02}" for i in range(70)}
    monkeypatch.setattr(identity, "_imported_names", lambda tree, name: imported)
    entries = identity.source("stacks:Walk-v0", envs.make("stacks:Walk-v0").layers).split(", ")
    assert len(entries) == 51
    assert re.fullmatch(r"22 more [0-9a-f]{8}", entries[-1])  # and own_envs, stacks


# A run and its continuation

MADE = {"cpu": "c1", "versions": "numpy 2", "python": "3.11.9"}
TASK = {
    "task_source": "arm 1, rewards 2",
    "task_wrappers": "TimeLimit of Arm",
    "task_model": "m1",
    "task_probe": "observations 1, rewards 2, ends 3",
}
PROBED = {"task_probe": "observations 1, rewards 5, ends 3"}
NUMPY = {"versions": "numpy 3"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"task_source": "arm 1, rewards 3, more 4"}, ["its source (more, rewards)"]),
        ({"task_wrappers": "Arm"}, ["its wrappers (TimeLimit of Arm -> Arm)"]),
        ({"task_model": "m2"}, ["its MuJoCo model as compiled"]),
        (PROBED, ["what it answers in its first steps (rewards)"]),
        ({**PROBED, "cpu": "c2"}, []),
        ({**PROBED, **NUMPY, "task_model": "m2"}, []),
        ({"task_model": "", "task_probe": ""}, []),  # they would be others in any process
        ({"task_source": "arm 7, rewards 3", "cpu": "c2", **NUMPY}, ["its source (arm, rewards)"]),
        ({"task_source": "arm 7, rewards 2", "python": "3.12.1"}, ["its source (arm)"]),
    ],
)
def test_what_has_changed_of_a_task_is_named(changed, said):
    assert task_changes({**MADE, **TASK}, {**MADE, **TASK, **changed}) == said


def test_a_run_that_recorded_nothing_of_its_task_goes_on():
    assert task_changes(MADE, {**MADE, **TASK}) == []


RANK = ("host", "cpu", "digests")


def test_what_is_another_in_every_process_is_not_recorded(world):
    steady = gathered("Walk", world)
    assert steady["task_probe"] == probe.probe(envs.make("stacks:Walk-v0")).digests
    assert gathered("Careless", world)["task_probe"] == ""
    env = envs.make("HalfCheetah-v5")
    made = identity.identity(env)

    def model(found):
        return provenance.gather_compared(env, made, found, [RANK], "es")["task_model"]

    apart = probe.Probe("observations 1, rewards 2, ends 3", "not the same")
    assert model(apart) == made["model"]  # a wrapper's doing
    env._env.unwrapped.model.body_mass[1] *= 1.1  # as a task does that draws its model anew
    assert model(apart) == ""
    assert model(probe.probe(env)) == made["model"]


ARM_RUN = words("""--algorithm es --task.id arm:Arm-v0 --policy.hidden 4 --es.population_size 4
--es.start_states member --evaluation.every 2 --evaluation.episodes 2 --run-dir run
--budget.generations""")


def begin_arm(*words):
    """Make a run as a process would that imports the arm as it is now; return the exit code."""
    for name in ("arm", "arm_parts", "arm_parts.rewards"):
        sys.modules.pop(name, None)
    gymnasium.registry.pop("Arm-v0", None)
    importlib.invalidate_caches()
    return started(*ARM_RUN, *words)


def test_an_edited_reward_is_refused_or_let_be(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # a module that is edited within the second is compiled anew
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write_arm(tmp_path)
    assert begin_arm(4) == 0
    before = Run.open("run").columns["metrics/best_return"][-1]
    assert before < -20  # some forty steps of -0.7
    write_arm(tmp_path, rewards=LOWER)
    capfd.readouterr()
    assert begin_arm(8) == 2
    refused = capfd.readouterr().err
    assert refused.count("\n") == 2
    changes = "its source (arm_parts.rewards); what it answers in its first steps (rewards)"
    assert f"changed: {changes}" in refused
    assert "--task.changed warn" in refused
    assert Run.open("run").status["status"] == "complete"
    assert begin_arm(8, "--task.changed", "warn") == 0
    said = f"the task has changed: {changes}"
    assert [each.levelname for each in caplog.records if said in each.message] == ["WARNING"]
    assert "changed" not in (tmp_path / "run/config.toml").read_text()  # for one start
    found = Run.open("run")
    best = found.columns["metrics/best_return"]
    # of the old task nothing is left, and the new one is evaluated at generation 6
    assert (best[3], best[4]) == (before, -np.inf)
    assert found.policy[1]["generation"] in (6, 8)
    assert found.policy[1]["episodic_return"] == best[-1] > before / 5
    recorded = found.provenance["task_changes"]
    assert recorded == f"after generation 4: {changes}".replace(";", ",")
    caplog.clear()
    assert begin_arm(9) == 0  # with the task of the newest checkpoint
    assert "the task has changed" not in caplog.text
    assert Run.open("run").provenance["task_changes"] == recorded


SMALL = {
    **{"algorithm": "es", "task.horizon": 9, "policy.hidden": [4], "es.population_size": 4},
    **{"evaluation.episodes": 1, "budget.generations": 1},
}
EDITED = """
import gymnasium
from own_envs import Walk


class ToEdit(Walk):
    def step(self, action):
        return self.observe(), 1.0, False, False, {}


gymnasium.register("ToEdit-v0", ToEdit, max_episode_steps=5)
"""


def train(path, **given):
    return esac_mpi.train(None, {**SMALL, **given}, run_dir=path, quiet=True)


def test_a_task_edited_since_its_import_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    # a reload within the second would find that of before
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "task_to_edit.py"
    file.write_text(EDITED)
    given = {"task.id": "task_to_edit:ToEdit-v0"}
    train(tmp_path / "a", **given)
    train(tmp_path / "b", **given)
    for edited in (f"{EDITED}def (", EDITED.replace("1.0", "2.0")):
        file.write_text(edited)
        with pytest.raises(WrongUsage, match="task_to_edit was edited since it was imported here"):
            train(tmp_path / "c", **given)
    assert not (tmp_path / "c").exists()
    gymnasium.registry.pop("ToEdit-v0")
    importlib.invalidate_caches()
    importlib.reload(sys.modules["task_to_edit"])
    assert train(tmp_path / "c", **given).status["best_return"] == 2 * 5


SCRIPT = """
import gymnasium
from esac_mpi import train

class Arm(gymnasium.Env):
    pays = 1

train(None, {"budget.generations": 100})
"""


@pytest.mark.parametrize(("was", "now", "counts"), [("= 1", "= 2", True), ("100", "200", False)])
def test_of_a_script_the_tasks_class_counts(tmp_path, monkeypatch, was, now, counts):
    found = set()
    for number, text in enumerate((SCRIPT, SCRIPT.replace(was, now))):
        script = ModuleType("__main__")
        script.__file__, script.__spec__ = str(tmp_path / f"study{number}.py"), None
        (tmp_path / f"study{number}.py").write_text(text)
        monkeypatch.setitem(sys.modules, "__main__", script)
        arm = type("Arm", (gymnasium.Env,), {"__module__": "__main__"})
        found.add(identity.source("Arm-v0", [arm()]))
    assert all(each.startswith("script ") for each in found)
    assert len(found) == 1 + counts


@pytest.mark.parametrize("spec", [None, ModuleSpec("study", None)])  # python -m study has one
def test_each_class_of_a_script_is_looked_at_by_itself(tmp_path, monkeypatch, spec):
    script = ModuleType("__main__")
    script.__file__, script.__spec__ = str(tmp_path / "study.py"), spec
    monkeypatch.setitem(sys.modules, "__main__", script)
    kinds = [type(n, (gymnasium.Env,), {"__module__": "__main__"}) for n in ("Arm", "Leg")]

    def edited(text):
        (tmp_path / "study.py").write_text(text)
        tasks = [SimpleNamespace(id=f"{kind.__name__}-v0", layers=[kind()]) for kind in kinds]
        return [identity.edited_modules(task) for task in tasks]

    both = SCRIPT + SCRIPT.replace("Arm", "Leg")
    assert edited(both) == edited(both) == [[], []]
    assert edited(both.replace("= 1", "= 2", 1)) == [["__main__"], []]
    assert edited(both.replace("= 1", "= (")) == [["__main__"], ["__main__"]]
    assert edited(both) == [[], []]


def test_a_task_that_fails_as_it_is_let_go_of_fails_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(own_envs.Steep, "close", lambda env: {}["gone"])
    assert train(tmp_path / "run", **{"task.id": "own_envs:Steep-v0"}).state == "complete"


def test_a_task_of_the_current_directory_is_found(tmp_path, monkeypatch):
    made = 'gymnasium.register("Kept-v0", entry_point="kept_here:Walk", max_episode_steps=30)'
    (tmp_path / "kept_here.py").write_text(f"import gymnasium\nfrom own_envs import Walk\n{made}\n")
    monkeypatch.chdir(tmp_path)
    paths = [path for path in sys.path if path not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", paths[:])
    assert train("run", **{"task.id": "kept_here:Kept-v0"}).generation == 1
    assert sys.path == paths
