"""Bounds of single fields, declared in their type annotations; resolution.py checks values.

Three of them, as the tables have them:

    population_size: PositiveInt = 50
    winner_fraction: Fraction = 0.4
    noise_rank: Annotated[PositiveInt, at_most(1000)] = 1
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

DEEPEST = 20  # lists and tables in each other
PLAIN = "a table of texts, numbers, true and false, and lists and tables of these, all with names"
AUTO: Any = "auto"
OR_AUTO = "may be auto"  # a mark: until the first start of a run resolves it (automatic.py)


@dataclass(frozen=True)
class Bound:
    """What a value has to be."""

    holds: Callable[[Any], bool]
    words: str

    def problem(self, value: Any) -> str:
        """Return the problem of a value, to follow `name = value:`; "" for none."""
        return "" if self.holds(value) else self.words


def at_most(limit: int) -> Bound:
    """Bound a number from above."""
    return Bound(lambda value: value <= limit, f"must be at most {limit}")


def at_least(limit: float) -> Bound:
    """Bound a number from below."""
    return Bound(lambda value: value >= limit, f"must be at least {limit:g}")


def is_text(value: str) -> bool:
    """Tell whether a text can stand in a file: a path of bytes that are no UTF-8 cannot."""
    return not re.search("[\ud800-\udfff]", value)


def is_plain(value: Any, deep: int = DEEPEST) -> bool:
    """Tell whether TOML, JSON and Python write a value alike."""
    if isinstance(value, dict):
        names = all(type(name) is str and name and is_text(name) for name in value)
        return deep > 0 and names and all(is_plain(entry, deep - 1) for entry in value.values())
    if isinstance(value, list):
        return deep > 0 and all(is_plain(entry, deep - 1) for entry in value)
    if type(value) is str:
        return is_text(value)
    return type(value) in (bool, int) or (type(value) is float and not math.isnan(value))


POSITIVE = Bound(lambda value: 0 < value < math.inf, "must be positive and finite")
NON_NEGATIVE = Bound(lambda value: 0 <= value < math.inf, "must be at least 0 and finite")
INT64 = Bound(lambda value: value < 2**63, "must be below 2**63")  # as arrays and files have it
COUNT = at_most(10**12)  # beyond, an array of so many rows has no size in bytes
NAMED = Bound(lambda value: bool(str.strip(value)), "must name a task, such as Hopper-v5")
PLAIN_TABLE = Bound(lambda value: isinstance(value, dict) and is_plain(value), f"must be {PLAIN}")

FLOAT32 = at_least(1e-9)  # what float32 squares, divides by or takes the logarithm of

PositiveInt = Annotated[int, POSITIVE, INT64, COUNT]
NonNegativeInt = Annotated[int, NON_NEGATIVE, INT64]
PositiveFloat = Annotated[float, POSITIVE]
NonNegativeFloat = Annotated[float, NON_NEGATIVE]
Fraction = Annotated[float, NON_NEGATIVE, at_most(1)]
if TYPE_CHECKING:  # whatever runs has the numbers
    Standardisation = bool
    AutoInt = PositiveInt
    AutoFloat = NonNegativeFloat
    AutoRate = PositiveFloat
    AutoSizes = tuple[int, ...]
else:
    Standardisation = bool | Literal["shrink", "auto"]  # resolved by the task (task_set_up.py)
    AutoRate = Annotated[float | Literal["auto"], POSITIVE]  # likewise
    AutoSizes = tuple[PositiveInt, ...] | Literal["auto"]  # likewise
    AutoInt = Annotated[int | Literal["auto"], OR_AUTO, POSITIVE, INT64, COUNT]
    AutoFloat = Annotated[float | Literal["auto"], OR_AUTO, NON_NEGATIVE]
