"""Who races, for what, with which settings: field.toml, ours from aggregate.toml."""

import math
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from esac_mpi.config import from_table, read_toml, resolved
from esac_mpi.config.reads import unread
from esac_mpi.host.data_files import shipped

OWN = "configs/experiments/aggregate.toml"
# environment steps of a run that time ends; generations before our own program evaluates
UNLIMITED = 10**12
CHAMPION = "ESAC"
ON_ONE = "SAC", "TD3"  # of ours those whose further ranks would only wait
SB3, EVOTORCH = "stable_baselines3", "evotorch"

Settings = dict[str, Any]


class Entry(NamedTuple):
    """A competitor."""

    name: str
    program: str  # the function of peers.py that runs it
    settings: Callable[[str, int], Settings | None]  # of a task, cores; None: it is another's there
    library: str = ""  # "" = ours


@cache
def table() -> dict[str, Any]:
    """Read field.toml."""
    return tomllib.loads(Path(__file__).with_name("field.toml").read_text(encoding="utf-8"))


@cache
def own() -> dict[str, Any]:
    """Read the experiment that has our settings."""
    return tomllib.loads((shipped() / OWN).read_text(encoding="utf-8"))


def hidden() -> tuple[int, ...]:
    """Return the hidden layers of everyone's networks: those of our settings."""
    return tuple(own()["settings"]["policy"]["hidden"])


def ours(variant: str, task: str, cores: int) -> Settings:
    """Return our settings {dotted name: value} of a variant on a task, for so many cores.

    Nothing but time ends the run, and its own evaluations are left out: the race makes them.
    """
    of_task = dict(own()["tasks"].get(table()["tasks"][task]["own"], {}))
    name = of_task.pop("config", "")
    settings = read_toml(shipped() / f"configs/esac/{name}.toml") if name else {}
    for layer in (own()["settings"], of_task, own()["variants"][variant]):
        settings = settings | from_table(layer, OWN)
    settings = {key: value for key, value in settings.items() if not key.startswith("budget.")}
    settings |= {
        "task.id": task, "policy.hidden": hidden(),
        "budget.env_steps": UNLIMITED, "evaluation.every": UNLIMITED,
        "evaluation.episodes": 1,
    }  # fmt: skip
    if "esac.workers" in settings:  # the ranks beside the learner's
        settings["esac.workers"] = max(1, cores - 1)
    for key, ranks in (("esac", settings.get("esac.workers", cores)), ("es", cores)):
        step = math.lcm(ranks, 2)  # the least even population, as large or larger, shared evenly
        members = settings[f"{key}.population_size"]
        settings[f"{key}.population_size"] = -(-members // step) * step
    ignored = unread(resolved({}, settings), settings)
    return {key: value for key, value in settings.items() if key not in ignored}


def zoo(algorithm: str, task: str, cores: int) -> Settings:
    """Return a peer's own settings for a task, else its defaults."""
    entries = table()[algorithm]
    return dict(entries.get(task, entries["default"]))


def of_several(algorithm: str, task: str, cores: int) -> Settings:
    """Return SB3's SAC or TD3 in four environments, as in its docs/guide/examples.md."""
    return zoo(algorithm, task, cores) | {"n_envs": 4, "train_freq": 1, "gradient_steps": 2}


def ppo_spread(task: str, cores: int) -> Settings | None:
    """Return SB3's PPO, its rollout dealt to eight environments; None if it has several."""
    settings = zoo("ppo", task, cores)
    if settings.get("n_envs", 1) > 1:
        return None
    return settings | {"n_envs": 8, "n_steps": settings.get("n_steps", 2048) // 8}


ENTRIES = (
    *(Entry(name, "ours", partial(ours, name)) for name in (CHAMPION, "ES", *ON_ONE)),
    *(
        Entry(f"SB3 {name}", "sb3", partial(zoo, name.lower()), SB3)
        for name in ("SAC", "TD3", "PPO")
    ),
    Entry("SB3 SAC, 4 envs", "sb3", partial(of_several, "sac"), SB3),
    Entry("SB3 TD3, 4 envs", "sb3", partial(of_several, "td3"), SB3),
    Entry("SB3 PPO, 8 envs", "sb3", ppo_spread, SB3),
    Entry("EvoTorch PGPE", "pgpe", partial(zoo, "pgpe"), EVOTORCH),
)
