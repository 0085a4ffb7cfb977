"""Who races, for what, and with which settings: field.toml, and for ours configs/experiments/aggregate.toml."""

import math
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from esac_mpi.config import from_table, read_toml, resolved
from esac_mpi.config.fields import DEFAULTS, value_of
from esac_mpi.config.reads import unread
from esac_mpi.host.data_files import shipped

FILE = Path(__file__).with_name("field.toml")
OWN = "configs/experiments/aggregate.toml"
UNLIMITED = (
    10**12
)  # environment steps of a run that time ends; generations before our own program evaluates
CHAMPION = "ESAC"
ON_ONE = "SAC", "TD3"  # of ours those whose further ranks would only wait
SEVERAL = (
    4,
    2,
)  # environments of SB3's SAC and TD3, and updates for each step of all: its own example, docs/guide/examples.md
SPREAD = 8  # environments that a rollout of SB3's PPO is dealt to

Settings = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task, and the return that is to be reached."""

    id: str
    goal: float
    own: str = ""  # its table in OWN


@dataclass(frozen=True)
class Course:
    """What is the same for everyone on a task."""

    task: Task
    hidden: tuple[int, ...]  # units of each hidden layer, of every network
    limit: float  # of a run [s]
    episodes: int  # of an evaluation
    cores: int

    def conditions(self) -> Settings:
        """Return it as plain values."""
        return {**asdict(self), "hidden": list(self.hidden)}


class Entry(NamedTuple):
    """A competitor."""

    name: str
    program: str  # the module of this package that runs it
    settings: Callable[
        [Course], Settings | None
    ]  # None: it does not run on this task, where it would be another one
    library: str = ""  # "" = ours

    @property
    def ours(self) -> bool:
        """Whether it is one of this program's algorithms."""
        return not self.library


@cache
def table() -> dict[str, Any]:
    """Return field.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def tasks() -> list[Task]:
    """Return the tasks in their order."""
    return [Task(id, **entry) for id, entry in table()["tasks"].items()]


def hidden() -> tuple[int, ...]:
    """Return the hidden layers of everyone's networks: those of our settings."""
    return tuple(read_own()["settings"]["policy"]["hidden"])


def read_own() -> dict[str, Any]:
    """Return the experiment that has our settings."""
    return tomllib.loads((shipped() / OWN).read_text(encoding="utf-8"))


def ours(variant: str, course: Course) -> Settings:
    """Return our settings, {dotted name: value}: those of a variant on a task, for so many cores, that its algorithm reads.

    Nothing but time ends the run, and its own evaluations are left out: the race makes them.
    """
    own = read_own()
    table = dict(own["tasks"].get(course.task.own, {}))
    name = table.pop("config", "")
    file = read_toml(shipped() / f"configs/esac/{name}.toml") if name else {}
    settings = (
        file
        | from_table(own["settings"], OWN)
        | from_table(table, OWN)
        | from_table(own["variants"][variant], OWN)
    )
    settings = {key: value for key, value in settings.items() if not key.startswith("budget.")}
    settings |= {
        "task.id": course.task.id, "policy.hidden": course.hidden, "budget.env_steps": UNLIMITED,
        "evaluation.every": UNLIMITED, "evaluation.episodes": 1,
    }  # fmt: skip
    if "esac.workers" in settings:  # the ranks beside the learner's
        settings["esac.workers"] = max(1, course.cores - 1)
    evaluating = {"esac": settings.get("esac.workers", course.cores), "es": course.cores}
    for key, ranks in evaluating.items():
        settings[f"{key}.population_size"] = dealt(settings[f"{key}.population_size"], ranks)
    for key in unread(resolved({}, settings), settings):
        del settings[key]
    return settings


def effective(settings: Settings) -> Settings:
    """Return every field that one of ours reads with these settings, {dotted name: value}: defaults count too."""
    config = resolved({}, settings)
    ignored = unread(config, DEFAULTS)
    return {name: value_of(config, name) for name in DEFAULTS if name not in ignored}


def dealt(members: int, ranks: int) -> int:
    """Return the least even number of members, `members` or more, that so many ranks share evenly."""
    step = math.lcm(ranks, 2)
    return -(-members // step) * step


def zoo(algorithm: str, course: Course) -> Settings:
    """Return a peer's own settings for a task, else its defaults."""
    entries = table()[algorithm]
    return dict(entries.get(course.task.id, entries["default"]))


def of_several(algorithm: str, course: Course) -> Settings:
    """Return SB3's SAC or TD3 in several environments, as its guide has SAC."""
    environments, updates = SEVERAL
    return zoo(algorithm, course) | {
        "n_envs": environments,
        "train_freq": 1,
        "gradient_steps": updates,
    }


def ppo_spread(course: Course) -> Settings | None:
    """Return SB3's PPO with the zoo's rollout dealt to several environments, None where the zoo has several already."""
    settings = zoo("ppo", course)
    if settings.get("n_envs", 1) > 1:
        return None
    return settings | {"n_envs": SPREAD, "n_steps": settings.get("n_steps", 2048) // SPREAD}


SB3, EVOTORCH = "stable_baselines3", "evotorch"
ENTRIES = (
    *(Entry(name, "ours", partial(ours, name)) for name in (CHAMPION, "ES", *ON_ONE)),
    *(
        Entry(f"SB3 {name}", "sb3", partial(zoo, name.lower()), SB3)
        for name in ("SAC", "TD3", "PPO")
    ),
    *(
        Entry(f"SB3 {name}, {SEVERAL[0]} envs", "sb3", partial(of_several, name.lower()), SB3)
        for name in ("SAC", "TD3")
    ),
    Entry(f"SB3 PPO, {SPREAD} envs", "sb3", ppo_spread, SB3),
    Entry("EvoTorch PGPE", "pgpe", partial(zoo, "pgpe"), EVOTORCH),
)
