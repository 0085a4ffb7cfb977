"""A task's own module in a process that trains: found, edited between trainings, and closed."""

import importlib
import sys
from types import ModuleType

import gymnasium
import own_envs
import pytest

import esac_mpi
from esac_mpi import WrongUsage
from esac_mpi.envs import identity

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
    file.write_text(EDITED.replace("1.0", "2.0"))
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
