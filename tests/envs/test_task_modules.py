"""A task's own module in a process that trains: found, edited between two trainings, and let go of at their end."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import gymnasium
import own_envs
import pytest

import esac_mpi
from esac_mpi import WrongUsage, envs
from esac_mpi.envs import identity

SMALL = {
    **{"algorithm": "es", "task.horizon": 9, "policy.hidden": [4], "es.population_size": 4},
    **{"evaluation.episodes": 1, "budget.generations": 1},
}
EDITED = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box


class ToEdit(gymnasium.Env):
    observation_space = action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


gymnasium.register("ToEdit-v0", ToEdit, max_episode_steps=5)
"""


def test_a_task_that_was_edited_since_its_import_is_refused_until_it_is_imported_anew(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # a reload within the second would find that of before
    file = tmp_path / "task_to_edit.py"
    file.write_text(EDITED)
    given = {**SMALL, "task.id": "task_to_edit:ToEdit-v0"}
    esac_mpi.train(None, given, run_dir=tmp_path / "a", quiet=True)
    file.write_text(f"# of another day\n{EDITED}")  # the same to Python
    esac_mpi.train(None, given, run_dir=tmp_path / "b", quiet=True)
    file.write_text(EDITED.replace("1.0", "2.0"))
    with pytest.raises(
        WrongUsage,
        match=r"task_to_edit was edited since it was imported here; .* start Python anew",
    ):
        esac_mpi.train(None, given, run_dir=tmp_path / "c", quiet=True)
    assert not (tmp_path / "c").exists()
    gymnasium.registry.pop("ToEdit-v0")
    importlib.invalidate_caches()
    importlib.reload(sys.modules["task_to_edit"])
    run = esac_mpi.train(None, given, run_dir=tmp_path / "c", quiet=True)
    assert run.status["best_return"] == 2 * 5


def test_a_part_that_was_imported_anew_is_not_what_a_module_has_that_imported_it_before(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "part_of_task.py").write_text("PAYS = 1.0\n")
    whole = EDITED.replace("1.0", "PAYS").replace("ToEdit", "InParts")
    (tmp_path / "task_in_parts.py").write_text(f"from part_of_task import PAYS\n{whole}")
    env = envs.make("task_in_parts:InParts-v0")
    assert identity.edited(env) == []
    (tmp_path / "part_of_task.py").write_text("PAYS = 2.0\n")
    assert identity.edited(env) == ["part_of_task"]
    importlib.reload(sys.modules["part_of_task"])
    assert identity.edited(env) == ["part_of_task"]
    gymnasium.registry.pop("InParts-v0")
    importlib.reload(sys.modules["task_in_parts"])
    assert identity.edited(envs.make("task_in_parts:InParts-v0")) == []


def arm_of(text, path, monkeypatch):
    """Return a task of the class Arm of a script, which Python was started with."""
    path.write_text(text)
    script = ModuleType("__main__")
    script.__file__, script.__spec__ = str(path), None
    monkeypatch.setitem(sys.modules, "__main__", script)
    return type("Arm", (gymnasium.Env,), {"__module__": "__main__"})()


SCRIPT = """
import os
import gymnasium
import plots_of_mine
try:
    from fast_rewards import bonus
except ImportError:
    from slow_rewards import bonus
from rewards_of_mine import *
from esac_mpi import train

SEEDS = 1, 2
PAYS = 3
FACTORS = {"a": 1}
FACTORS["a"] = 2
FACTORS.update(b=1)
WIDE = 7


def paid(seed):
    return FACTORS["a"] * PAYS + bonus()


def configure():
    global PAYS
    PAYS = 5


class Arm(gymnasium.Env):
    WIDE = WIDE

    def step(self, action, seed=0):
        return paid(seed) * SPEED


configure()
gymnasium.register("Arm-v0", "__main__:Arm", max_episode_steps=200)
for seed in SEEDS:
    plots_of_mine.draw(train(None, seed))
if __name__ == "__main__":
    SPEED = 8
    print(SEEDS, len(str(SEEDS)))
"""


@pytest.mark.parametrize(
    ("was", "now", "counts"),
    [
        ("SEEDS = 1, 2", "SEEDS = 1, 2, 3", True),
        ("import os\n", "", True),
        ("    print(SEEDS", "    print(1", False),
        ("draw(", "show(", False),
        ("fast_rewards", "faster_rewards", True),
        ("b=1", "b=2", False),
        ("WIDE = 7", "WIDE = 6", True),
        ("PAYS = 5", "PAYS = 6", True),
        ("configure()\ngym", "gym", False),
        ("=200", "=500", True),
        ("SPEED = 8", "SPEED = 9", True),
        ("PAYS = 3", "PAYS = 4", True),
        ('"a"] = 2', '"a"] = 5', True),
        ('return FACTORS["a"]', "return 2", True),
        ("import *", "import good", True),
        ("action, seed", "action, other", True),
    ],
)
def test_of_a_script_what_it_declares_counts(tmp_path, monkeypatch, was, now, counts):
    assert was in SCRIPT
    found = set()
    for text in (SCRIPT, SCRIPT.replace(was, now)):
        found.add(identity.source("Arm-v0", [arm_of(text, tmp_path / "study.py", monkeypatch)]))
    assert all(each.startswith("script ") for each in found)
    assert len(found) == 1 + counts


def test_what_a_script_does_with_its_task_after_training_is_no_part_of_it(tmp_path, monkeypatch):
    text = """
import gymnasium
from esac_mpi import Policy, train
class Arm(gymnasium.Env):
    pass
gymnasium.register("Arm-v0", entry_point=lambda: Arm())
run = train(None, {"budget.generations": 100})
policy = Policy.load(run.path)
arm = Arm()
print(policy, arm, run)
"""
    found = []
    for number in ("100", "200"):
        arm = arm_of(text.replace("100", number), tmp_path / "study.py", monkeypatch)
        arm.spec = SimpleNamespace(entry_point=eval("lambda: None", {"__name__": "__main__"}))
        found.append(identity.source("Arm-v0", [arm]))
    assert found[0] == found[1] != ""


def test_what_a_module_does_as_a_program_is_no_part_of_a_task(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    text = EDITED.replace("ToEdit", "AsProgram")
    (tmp_path / "task_and_program.py").write_text(text)
    env = envs.make("task_and_program:AsProgram-v0")
    before = identity.source(env.id, env.layers)
    (tmp_path / "task_and_program.py").write_text(
        f"{text}\nif __name__ == '__main__':\n    from esac_mpi import train\n"
    )
    assert identity.source(env.id, env.layers) == before
    (tmp_path / "task_and_program.py").write_text(
        f"{text}\nif __name__ == '__main__':\n    pass\nelse:\n    PAYS = 3\n"
    )
    assert identity.source(env.id, env.layers) != before


def test_a_task_is_let_go_of_at_the_end(tmp_path, monkeypatch):
    closed, given = [], {**SMALL, "task.id": "own_envs:Steep-v0"}
    monkeypatch.setattr(own_envs.Steep, "close", lambda env: closed.append(env))
    esac_mpi.train(None, given, run_dir=tmp_path / "run", quiet=True)
    assert closed
    monkeypatch.setattr(own_envs.Steep, "close", lambda env: {}["gone"])
    assert esac_mpi.train(None, given, run_dir=tmp_path / "other", quiet=True).state == "complete"


def test_a_task_of_the_current_directory_is_found_as_by_the_command_line(tmp_path, monkeypatch):
    made = 'gymnasium.register("Kept-v0", entry_point="kept_here:Walk", max_episode_steps=30)'
    (tmp_path / "kept_here.py").write_text(f"import gymnasium\nfrom own_envs import Walk\n{made}\n")
    monkeypatch.chdir(tmp_path)
    paths = [path for path in sys.path if path not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", paths[:])
    assert (
        esac_mpi.train(
            None, {**SMALL, "task.id": "kept_here:Kept-v0"}, run_dir="run", quiet=True
        ).generation
        == 1
    )
    assert sys.path == paths
