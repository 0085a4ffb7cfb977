"""The whole configuration, made of its tables, and the names of the algorithms."""

from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from keyword import iskeyword
from typing import Any, Literal, TypeVar

from esac_mpi.config import run
from esac_mpi.config.bounds import NonNegativeFloat, NonNegativeInt
from esac_mpi.config.distribution import AESRL, CEM, CEMRL
from esac_mpi.config.evolution import ES, ESAC
from esac_mpi.config.genetic import ERL, FORMS
from esac_mpi.config.off_policy import DDPG, SAC, TD3
from esac_mpi.config.ppo import PPO
from esac_mpi.config.table import Table
from esac_mpi.host.errors import BrokenAlgorithm, WrongUsage

Class = TypeVar("Class", bound=type)


class ConfigError(WrongUsage):
    """A configuration that cannot be run; the message says which key, why, and what would do."""


def load_installed(point: EntryPoint, check: Callable[[Any], object]) -> Any:
    """Load what an installed package names as its algorithm or table. Raises BrokenAlgorithm.

    check: raises an error for anything else.
    """
    try:
        found = point.load()
        check(found)
        return found
    except Exception as error:  # it is a user's own code
        package = f"{point.dist.name} " if point.dist else ""
        raise BrokenAlgorithm(
            f"entry point {point.name} = {point.value} of {point.group} cannot be loaded: "
            f"{type(error).__name__}: {error}; mend or uninstall its package {package}".strip()
        ) from error


def check_table(table: Any) -> None:
    """Raise TypeError or AttributeError unless this is a table as algorithms have it."""
    if not (isinstance(table, type) and issubclass(table, Table) and is_dataclass(table)):
        raise TypeError(f"it is no dataclass derived from {Table.__module__}.Table")
    _ = table().READS


TABLES = sorted(entry_points(group="esac_mpi.tables"), key=lambda point: point.name)
INSTALLED: dict[str, type[Table]] = {p.name: load_installed(p, check_table) for p in TABLES}
SHIPPED = "esac es sac td3 ddpg ppo erl perl derl pderl cem cem_rl aes_rl"
ALGORITHMS = (*SHIPPED.split(), *INSTALLED)
FORM_OF = {name: "erl" for name in FORMS if name != "erl"}  # algorithm -> whose form it is


def table_of(algorithm: str) -> str:
    """Name an algorithm's table in Config, which is that of its file in algorithms/ too."""
    return FORM_OF.get(algorithm, algorithm)


def with_installed(config: Class) -> Class:
    """Give Config the tables of algorithms that other packages bring: docs/how-to/extend.md."""
    names = [point.name for point in TABLES]
    for name, table in INSTALLED.items():
        where = f"entry point {name} of esac_mpi.tables"
        if hasattr(config, name) or name in FORMS or names.count(name) > 1:
            raise BrokenAlgorithm(f"{where}: the name is taken")
        if not name.isidentifier() or iskeyword(name):
            raise BrokenAlgorithm(f"{where}: choose a name of Python's, as random_search")
        config.__annotations__[name] = table
        setattr(config, name, field(default_factory=table))
    return config


@dataclass(frozen=True)
@with_installed
class Config:
    """The settings of a run. With no argument: ESAC on HalfCheetah-v5."""

    algorithm: Literal[ALGORITHMS] = "esac"  # type: ignore[valid-type]
    """Which algorithm runs; its table has the same name, but perl, derl and pderl are of [erl]."""
    seed: NonNegativeInt = 0
    """Every random number of the run is addressed by this and what it is for."""
    run_dir: str = ""
    """Run directory; default runs/<task>-<algorithm>-seed<seed>: a requeued job finds itself."""
    start_from: str = ""
    """Begin from another run's last checkpoint, or from a policy.h5 alone (--from RUN|policy.h5 for
    short). What is taken: docs/how-to/warm-start.md. It is read once, when the run begins."""
    max_hours: NonNegativeFloat = 0.0
    """Stop early enough to be saved after this time, or what SLURM or PBS leaves to the job if that
    is less [h]; 0 = no time."""
    task: run.Task = field(default_factory=run.Task)
    budget: run.Budget = field(default_factory=run.Budget)
    policy: run.PolicyNetwork = field(default_factory=run.PolicyNetwork)
    esac: ESAC = field(default_factory=ESAC)
    es: ES = field(default_factory=ES)
    sac: SAC = field(default_factory=SAC)
    td3: TD3 = field(default_factory=TD3)
    ddpg: DDPG = field(default_factory=DDPG)
    ppo: PPO = field(default_factory=PPO)
    erl: ERL = field(default_factory=ERL)
    cem: CEM = field(default_factory=CEM)
    cem_rl: CEMRL = field(default_factory=CEMRL)
    aes_rl: AESRL = field(default_factory=AESRL)
    learner: run.Learner = field(default_factory=run.Learner)
    evaluation: run.Evaluation = field(default_factory=run.Evaluation)
    checkpoint: run.Checkpoint = field(default_factory=run.Checkpoint)
    stop: run.Stop = field(default_factory=run.Stop)
    display: run.Display = field(default_factory=run.Display)
    said: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """No setting: names of those that a person said; None where nobody knows."""

    @property
    def own(self) -> Table:
        """The table of the algorithm that runs."""
        return getattr(self, table_of(self.algorithm))
