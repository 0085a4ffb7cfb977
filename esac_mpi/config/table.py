"""What a table of the configuration says of itself beside its fields: its rules, and what an algorithm reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol


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


class OnlyWith:
    """A condition in a field's annotation: what other fields of the table must be, or one of what, for this one to matter."""

    def __init__(self, **others: Any) -> None:
        self.others = others


class OnlyWithOne(OnlyWith):
    """The same, where one of these fields suffices."""


@dataclass(frozen=True)
class OnlyIn:
    """A condition in a field's annotation: in which tasks it matters, those of discrete actions or the others."""

    discrete: bool


@dataclass(frozen=True)
class Reads:
    """What an algorithm reads beside its own table, the fields without a table and the tables that all read."""

    tables: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # single fields of other tables
    without: tuple[
        str, ...
    ] = ()  # fields of its tables, or of those that all read, that it does not read
    tables_if: Mapping[str, str] = field(
        default_factory=dict
    )  # table -> field of its own that must be this table's name
    fields_if: Mapping[str, str] = field(
        default_factory=dict
    )  # field of another table -> field of its own that must be true


class Table:
    """A table. What a single field may be stands at the field (bounds.py), rules that join fields in these methods."""

    READS: ClassVar[
        Reads
    ]  # said by every table of an algorithm; without default, so that it is not forgotten

    @property
    def follows(self) -> str | None:
        """The run directory by whose record the order of results goes; "" = it is the machine's, and is recorded.

        None = the settings decide it.
        """
        return None

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that this table, whose name is given, breaks, whatever algorithm runs."""
        yield from ()

    def problems_when_run(self, config: Whole) -> Iterator[str]:
        """Yield a message for every rule that this table breaks as that of the algorithm that runs."""
        yield from ()
