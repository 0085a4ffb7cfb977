"""A task that only the script of its training registers: said at the start, with the line by which a tool finds it."""

import subprocess
import sys

import gymnasium
import pytest
from conftest import environment

from esac_mpi import envs
from esac_mpi.config import ConfigError
from esac_mpi.envs import registered
from esac_mpi.training.api import resolve

MADE = """
import gymnasium
from own_envs import Walk
class Arm(Walk):
    pass
"""
REGISTERS = 'gymnasium.register("Arm-v0", entry_point={maker}, max_episode_steps=30)\n'
TRAINS = """
    from esac_mpi import train
    small = {{"algorithm": "es", "es.population_size": 4, "policy.hidden": [4], "budget.generations": 1}}
    train(None, {{**small, "evaluation.episodes": 1, "task.id": "{id}"}}, run_dir="run", quiet=True)
"""
GUARD = 'if __name__ == "__main__":\n    '
SCRIPTS = [  # the script, its task's id, whether its tools find it, and the line that is said to work
    (MADE + REGISTERS.format(maker="Arm") + GUARD + TRAINS, "Arm-v0", 'task.id = "my_task:Arm-v0"'),
    (MADE + REGISTERS.format(maker="Arm") + GUARD + TRAINS, "study:Arm-v0", ""),
    (
        MADE + GUARD + REGISTERS.format(maker="Arm") + TRAINS,
        "study:Arm-v0",
        'task.id = "my_task:Arm-v0"',
    ),
    (
        MADE + GUARD + REGISTERS.format(maker='"study:Arm"') + TRAINS,
        "study:Arm-v0",
        'task.id = "my_task:Arm-v0"',
    ),
    ("import arm\n" + GUARD + TRAINS, "Arm-v0", 'task.id = "arm:Arm-v0"'),
    ("import arm\n" + GUARD + TRAINS, "arm:Arm-v0", ""),
]


@pytest.mark.parametrize(("script", "id", "line"), SCRIPTS)
def test_a_task_that_no_tool_will_find_is_said_with_the_line_that_works(tmp_path, script, id, line):
    (tmp_path / "arm.py").write_text(MADE + REGISTERS.format(maker="Arm"))
    (tmp_path / "study.py").write_text(script.format(id=id))
    begun = subprocess.run(
        [sys.executable, "study.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert begun.returncode == 0, begun.stderr
    assert ("registered by this process alone" in begun.stdout, line in begun.stdout) == (
        bool(line),
        True,
    )
    tool = [sys.executable, "-m", "esac_mpi.commands", "evaluate", "run", "--episodes", "1"]
    played = subprocess.run(tool, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (played.returncode == 0) == (not line), played.stderr


@pytest.mark.parametrize(
    "id", ["Pendulum-v1", "CyclicMDP-v0", "dm_control/cartpole-balance-v0", "own_envs:Slow-v0"]
)
def test_of_a_task_that_is_found_anywhere_nothing_is_said(id):
    assert registered.explain(envs.make(id)) == ""


@pytest.mark.parametrize(
    "task", [gymnasium.make("Swimmer-v5"), gymnasium.spec("Swimmer-v5"), gymnasium.Env, 3]
)
def test_a_task_that_is_no_string_is_told_how_tasks_are_named(task):
    with pytest.raises(
        ConfigError, match=r"expected a string, the id by which .* 'module:EnvId'"
    ) as error:
        resolve(None, {"task.id": task})
    assert ("'Swimmer-v5', or" in str(error.value)) == (task not in (gymnasium.Env, 3))
