"""Who races, for what, with which settings: the peers' are in field.toml, ours are the defaults."""

import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from esac_mpi.config.run import NARROW

# environment steps of a run that time ends; generations before our own program evaluates
UNLIMITED = 10**12
CHAMPION = "ESAC"
ON_ONE = "SAC", "TD3"  # of ours those whose further ranks would only wait
SB3, CONTRIB, SBX, EVOTORCH = "stable_baselines3", "sb3_contrib", "sbx", "evotorch"
OWN = ", own networks"  # ends the name of a peer's run with its own layers, not ours
HIDDEN = list(NARROW)  # hidden layers of our networks, but for those of many observations

Settings = dict[str, Any]
# beside the zoo's: updates of a call as in the README of SBX, environments as in SB3's examples.md
OF_SBX: Settings = {"train_freq": 4, "gradient_steps": 4}
OF_SEVERAL: Settings = {"n_envs": 4, "train_freq": 1, "gradient_steps": 2}


class Entry(NamedTuple):
    """A competitor."""

    name: str
    program: str  # the function of peers.py that runs it
    settings: Callable[[str], Settings | None]  # of a task; None: it is another's there
    library: str = ""  # the module that has it; "" = ours

    def runs(self, task: str) -> dict[str, Settings]:
        """Return {name: settings} of its runs: a peer's with our networks, and with its own."""
        settings = self.settings(task)
        if settings is None:
            return {}
        if settings.get("net_arch") in (None, HIDDEN):
            return {self.name: settings}
        return {self.name: settings | {"net_arch": HIDDEN}, self.name + OWN: settings}


@cache
def table() -> dict[str, Any]:
    """Read field.toml."""
    return tomllib.loads(Path(__file__).with_name("field.toml").read_text(encoding="utf-8"))


def ours(algorithm: str, task: str) -> Settings:
    """Return what is said to our program: the algorithm and the task; all else is its defaults.

    Nothing but time ends the run, and its own evaluations are left out: the race makes them.
    """
    return {
        "algorithm": algorithm, "task.id": task, "budget.env_steps": UNLIMITED,
        "evaluation.every": UNLIMITED, "evaluation.episodes": 1,
    }  # fmt: skip


def zoo(algorithm: str, task: str, **more: Any) -> Settings:
    """Return a peer's own settings for a task, those of another that it names, or its defaults."""
    entries = table()[algorithm]
    found = entries.get(task, entries["default"])
    if isinstance(found, str):
        found = entries[found]
    networks = table()["net_arch"]
    return ({"net_arch": networks[algorithm]} if algorithm in networks else {}) | found | more


def ppo_spread(task: str) -> Settings | None:
    """Return SB3's PPO, its rollout dealt to eight environments; None if it has several."""
    settings = zoo("ppo", task)
    if settings.get("n_envs", 1) > 1:
        return None
    return settings | {"n_envs": 8, "n_steps": settings.get("n_steps", 2048) // 8}


ENTRIES = (
    *(Entry(name, "ours", partial(ours, name.lower())) for name in (CHAMPION, "ES", *ON_ONE)),
    *(
        Entry(f"SB3 {name}", "sb3", partial(zoo, name.lower()), SB3)
        for name in ("SAC", "TD3", "PPO")
    ),
    Entry("SB3 SAC, 4 envs", "sb3", partial(zoo, "sac", **OF_SEVERAL), SB3),
    Entry("SB3 TD3, 4 envs", "sb3", partial(zoo, "td3", **OF_SEVERAL), SB3),
    Entry("SB3 PPO, 8 envs", "sb3", ppo_spread, SB3),
    Entry("SB3 TQC", "sb3", partial(zoo, "tqc"), CONTRIB),
    *(
        Entry(f"SBX {name}", "sb3", partial(zoo, name.lower(), **OF_SBX), SBX)
        for name in ("SAC", "TQC", "CrossQ")
    ),
    Entry("EvoTorch PGPE", "pgpe", partial(zoo, "pgpe"), EVOTORCH),
)
