"""What a table says of itself beside its fields: its rules, and what an algorithm reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from esac_mpi.config.bounds import NON_NEGATIVE

SURVIVAL: Literal["survival"] = "survival"
HIDDEN = "read only with hidden layers (policy.hidden)"  # a mark: [] has nothing that it does


# fields that break a rule, of the table or, dotted, of another, "" for none; and what is wrong
Problem = tuple[str, str]


class Whole(Protocol):
    """What a table may ask of the configuration that it is part of."""

    @property
    def algorithm(self) -> str:
        """Which algorithm runs."""

    @property
    def policy(self) -> Any:
        """The table of that name."""

    @property
    def learner(self) -> Any:
        """The table of that name."""


class Above(tuple[str, ...]):
    """The values that another field of numbers must have: those above a limit; in these words."""

    limit: int

    def __new__(cls, limit: int) -> Self:
        """Say it in words."""
        found = super().__new__(cls, (f"a number above {limit}",))
        found.limit = limit
        return found

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and value > self.limit


NOT_ZERO = Above(0)


class OnlyWith:
    """A condition at a field: it matters where others of the table are this, or one of these."""

    def __init__(self, **others: Any) -> None:
        self.others = {n: v if isinstance(v, tuple) else (v,) for n, v in others.items()}


class OnlyWithOne(OnlyWith):
    """The same, where one of these fields suffices."""


@dataclass(frozen=True)
class OnlyIn:
    """A condition at a field: it matters in tasks of discrete actions, or in the others."""

    discrete: bool


@dataclass(frozen=True)
class Reads:
    """What an algorithm reads beside its own table and what all read (reads.py: COMMON)."""

    tables: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # single fields of other tables
    without: tuple[str, ...] = ()  # fields of these tables that it does not read
    # another table, or a field of it -> the field of its own, and the value, with which it is read
    only_if: Mapping[str, tuple[str, Any]] = field(default_factory=dict)


class Table:
    """A table. A field's bounds stand at the field, rules that join fields in these methods."""

    # said by every table of an algorithm; without default, so that it is not forgotten
    READS: ClassVar[Reads]

    @property
    def follows(self) -> str | None:
        """The run whose order of results is followed; "" = it is recorded, None = it is set."""
        return None

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield every rule that this table breaks in a run; table: its name."""
        yield from ()


@dataclass(frozen=True)
class Selecting(Table):
    """A table with a fitness, which all selection goes by."""

    reward_shift: Annotated[float | Literal["survival"], NON_NEGATIVE] = 0.0
    """What each step takes from the fitness: return - reward_shift * length [reward]. survival: the
    task's bonus for staying alive, or 0. Learners have the task's rewards. ARS: the bonus."""

    @property
    def shift(self) -> float:
        """What each step takes from the fitness, once the task is known."""
        assert not isinstance(self.reward_shift, str), "reward_shift is still open"
        return self.reward_shift
