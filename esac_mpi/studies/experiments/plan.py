"""What an experiment's file describes, and the runs that come of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from esac_mpi.config import Config, as_words
from esac_mpi.config.bounds import COUNT, Bound, PositiveFloat, PositiveInt, at_most

Settings = dict[str, Any]  # {dotted name: value}
TEXTS = Bound(lambda found: all(type(one) is str for one in found), "expected a list of str")
COUNTS = Bound(
    lambda found: all(type(one) is int and one > 0 for one in found), "must be positive numbers"
)
Texts = Annotated[list[str], TEXTS]
SEEDS = 100_000  # of a range, at most: each is a run


def as_options(settings: Settings) -> list[str]:
    """Return settings as words of the command line."""
    return [word for name, value in settings.items() for word in (f"--{name}", *as_words(value))]


@dataclass(frozen=True)
class Product:
    """A picture or table: a call of a tool, in which {runs}, {csv}, {run}, {task} are filled in."""

    tool: str  # a command, or a module of tools/
    arguments: Texts
    out: str

    @property
    def command(self) -> str:
        """The command that it calls, "" for a program of the checkout."""
        return "" if self.tool.startswith("tools.") else Path(self.tool).stem


@dataclass(frozen=True)
class Budget:
    """How much of an experiment is run. Empty lists: all that the experiment has."""

    seeds: Annotated[PositiveInt, at_most(SEEDS)] = 1
    # training time of a run [s], its budget.minutes; 0 = as its settings say
    seconds: Annotated[PositiveFloat, COUNT] = 0.0
    cores: PositiveInt = 1  # ranks of a job of an algorithm with a population; others have one
    # each run once on each of these numbers of ranks
    ranks: Annotated[list[int], COUNTS] = field(default_factory=list)
    tasks: Texts = field(default_factory=list)
    variants: Texts = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    for_task: dict[str, Settings] = field(default_factory=dict)
    for_variant: dict[str, Settings] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """One experiment as its file has it."""

    id: str
    title: str
    claim: str
    settings: Settings
    tasks: dict[str, tuple[str, Settings]]  # name: configuration file or "", settings
    variants: dict[str, Settings]
    field: str  # swept; "" = none
    values: list[Any]
    points: int  # rows that results.csv has of a run at most
    products: list[Product]
    budgets: dict[str, Budget]


@dataclass(frozen=True)
class Planned:
    """A run of an experiment."""

    task: str
    variant: str
    value: str  # of the swept field as text, "" without a sweep
    seed: int
    ranks: int  # 0 = without mpirun
    file: str  # of configuration, "" = none
    settings: Settings  # beyond it
    run_dir: Path
    config: Config

    @property
    def line(self) -> list[str]:
        """Its arguments but for its directory."""
        file = [self.file] if self.file else []
        return [*file, *as_options(self.settings), "--seed", str(self.seed)]

    @property
    def arguments(self) -> list[str]:
        """All its arguments, as esac-mpi sweep writes them, too."""
        return [*self.line, "--run-dir", str(self.run_dir)]

    @property
    def label(self) -> str:
        """The variant as results name it, with the number of ranks where there are several."""
        if not self.ranks:
            return self.variant
        return f"{self.variant}, {self.ranks} rank{'s' if self.ranks > 1 else ''}"
