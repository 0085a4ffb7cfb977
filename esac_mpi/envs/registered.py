"""Whether another process, in which the training's script does not run, finds a task by its id."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

from esac_mpi.envs import Env
from esac_mpi.envs.identity import SCRIPT, origin, registers

MODULE = "my_task"  # a name for one that is not there yet


def explain(env: Env) -> str:
    """Say how others would find a task registered in this process alone; "" for another."""
    spec = next(
        (layer.spec for layer in getattr(env, "layers", []) if getattr(layer, "spec", None)), None
    )
    if spec is None:
        return ""
    module, _, name = env.id.rpartition(":")
    maker, script = origin(spec), getattr(sys.modules.get(SCRIPT), "__file__", None) or ""
    alone = (
        f"{env.id} is registered by this process alone, and evaluate, render and the command "
        "line do not find it"
    )
    if maker == SCRIPT or (maker == module and is_file(module, script) and not registers(module)):
        where = Path(script).name if script else "this session"
        moved = (
            f"move its class and its gymnasium.register from {where} into a module, {MODULE}.py say"
        )
        return f'{alone}: {moved}, and name it so: task.id = "{MODULE}:{name}"'
    package, plugins = maker.partition(".")[0], entry_points(group="gymnasium.envs")
    if module or package in {"gymnasium", *(plugin.module.partition(".")[0] for plugin in plugins)}:
        return ""
    known = maker if registers(maker) else package
    return (
        f"{alone}: name it with the module whose import registers it, as in task.id = "
        f'"{known}:{name}"'
    )


def is_file(module: str, path: str) -> bool:
    """Say whether a loaded module is of this file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file and path) and Path(str(file)).resolve() == Path(path).resolve()
