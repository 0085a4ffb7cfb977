"""What a table says of itself beside its fields: its rules, and what an algorithm reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

from esac_mpi.config.bounds import AUTO, NON_NEGATIVE, Bound

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


def above(limit: float) -> Bound:
    """Bound a number from below, without the limit; one that is still "auto" will be within."""
    return Bound(lambda value: value == AUTO or value > limit, f"a number above {limit}")


def below(limit: float) -> Bound:
    """Bound a number from above, without the limit."""
    return Bound(lambda value: value < limit, f"a number below {limit}")


NOT_ZERO = above(0)


Allowed = tuple[Any, ...] | Bound


def as_allowed(values: Any) -> Allowed:
    """Return what a field may be, one value among others, as values or a bound."""
    return values if isinstance(values, tuple | Bound) else (values,)


class OnlyWith:
    """A condition at a field: it matters where others of its table are this, or one of these.

    Or, for numbers, within a bound.
    """

    def __init__(self, **others: Any) -> None:
        self.others = {name: as_allowed(values) for name, values in others.items()}


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
    # another table, or a field -> the field of its own, and its values, with which it is read
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
