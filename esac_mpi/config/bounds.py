"""What the value of one field may be, declared in its type annotation; rules.py holds the values to it.

Three of them, as the tables have them:

    population_size: PositiveInt = 50
    winner_fraction: Fraction = 0.4
    length_cap: Annotated[NonNegativeFloat, OffOr(1, 1000, when_run=True)] = 0.0
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

DEEPEST = 20  # lists and tables in each other
PLAIN = "a table of texts, numbers, true and false, and lists and tables of these, all with names"


@dataclass(frozen=True)
class Bound(ABC):
    """What a value has to be."""

    when_run: bool = field(
        default=False, kw_only=True
    )  # only the table of the algorithm that runs is held to it

    @abstractmethod
    def problem(self, value: Any) -> str:
        """Return what a message says of a value after `name = value:`, empty where the value is within."""


@dataclass(frozen=True)
class Positive(Bound):
    """Above 0, and finite."""

    def problem(self, value: float) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if 0 < value < math.inf else "must be positive and finite"


@dataclass(frozen=True)
class NonNegative(Bound):
    """0 or above, and finite."""

    def problem(self, value: float) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if 0 <= value < math.inf else "must be at least 0 and finite"


@dataclass(frozen=True)
class NonNegativeOr(NonNegative):
    """That, or a word for a number that the task has."""

    word: str

    def problem(self, value: float | str) -> str:
        """Return what is wrong with a value, empty if nothing."""
        if value == self.word:
            return ""
        wrong = "must be a number" if isinstance(value, str) else super().problem(value)
        return wrong and f"{wrong}, or {self.word}"


@dataclass(frozen=True)
class Int64(Bound):
    """What fits into a signed integer of 64 bits, as the arrays and files that hold it have them."""

    def problem(self, value: int) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if value < 2**63 else "must be below 2**63"


@dataclass(frozen=True)
class AtMost(Bound):
    """The limit, or below."""

    limit: int

    def problem(self, value: float) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if value <= self.limit else f"must be at most {self.limit}"


@dataclass(frozen=True)
class OffOr(Bound):
    """0, which is off, or a multiple of a mean between two limits."""

    low: int
    high: int

    def problem(self, value: float) -> str:
        """Return what is wrong with a value, empty if nothing."""
        within = value == 0 or self.low <= value <= self.high
        return (
            "" if within else f"must be 0 (off), or from {self.low} to {self.high} times the mean"
        )


@dataclass(frozen=True)
class Plain(Bound):
    """A table of what TOML, JSON and Python write alike: texts, truths, numbers, and lists and tables of these."""

    def problem(self, value: dict[str, Any]) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if isinstance(value, dict) and _is_plain(value, DEEPEST) else f"must be {PLAIN}"


def is_text(value: str) -> bool:
    """Return whether a text can stand in a file of ours: a path of bytes that are no UTF-8 cannot."""
    return not re.search("[\ud800-\udfff]", value)


def _is_plain(value: Any, deep: int) -> bool:
    if isinstance(value, dict):
        return deep > 0 and all(
            _is_name(name) and _is_plain(entry, deep - 1) for name, entry in value.items()
        )
    if isinstance(value, list):
        return deep > 0 and all(_is_plain(entry, deep - 1) for entry in value)
    if type(value) is str:
        return is_text(value)
    return type(value) in (bool, int) or (type(value) is float and not math.isnan(value))


def _is_name(name: Any) -> bool:
    return type(name) is str and bool(name) and _is_plain(name, 0)


@dataclass(frozen=True)
class Matches(Bound):
    """A text that matches a pattern as a whole."""

    pattern: str
    form: str  # what it is in words

    def problem(self, value: str) -> str:
        """Return what is wrong with a value, empty if nothing."""
        return "" if re.fullmatch(self.pattern, value) else f"expected {self.form}"


@dataclass(frozen=True)
class OrAuto:
    """A mark: the field may be AUTO, until the first start of a run resolves it (automatic.py)."""


AUTO: Any = "auto"

PositiveInt = Annotated[int, Positive(), Int64()]
NonNegativeInt = Annotated[int, NonNegative(), Int64()]
PositiveFloat = Annotated[float, Positive()]
NonNegativeFloat = Annotated[float, NonNegative()]
Fraction = Annotated[float, NonNegative(), AtMost(1)]
if TYPE_CHECKING:  # whatever runs has the numbers
    AutoInt = PositiveInt
    AutoFloat = NonNegativeFloat
else:
    AutoInt = Annotated[int | Literal["auto"], OrAuto(), Positive(), Int64()]
    AutoFloat = Annotated[float | Literal["auto"], OrAuto(), NonNegative()]
