"""What is searched: a field's range or its choices, checked as the field itself is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import NAMES, as_text, as_words, from_table, hint, renew_name
from esac_mpi.config.files import check_name
from esac_mpi.studies.experiments.design import read_as

LARGEST = 2**63  # numbers of a range are below
OWN = {  # fields of every trial that the search sets: where a study says which
    "seed": "seeds = [100, 101] of the study says which",
    "run_dir": 'directory = "..." of the study says which',
    "max_hours": "`esac-mpi search run --max-hours` says when to stop",
}
# fields and tables that are the same for all trials, or they could not be compared
COMMON = {"task", "budget", "evaluation", "checkpoint", "stop", "display"}


@dataclass(frozen=True)
class Range:
    """The values of a field of numbers: from low to high, both included; by steps, if any."""

    low: float
    high: float
    step: float = 0.0  # 0 = every number
    log: bool = False  # even in the logarithm

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that are checked before a study begins."""
        return self.low, self.high

    def __str__(self) -> str:
        step = f" (step {self.step:g})" if self.step else ""
        return f"{self.low:g} to {self.high:g}{step}{' (log)' if self.log else ''}"


@dataclass(frozen=True)
class Choices:
    """The values that trials may have of any field; all are checked before a study begins."""

    ends: tuple[Any, ...]

    @property
    def named(self) -> dict[Any, Any]:
        """The values by what stands for them in a journal, which holds no lists.

        A list stands there as "(8, 8)": a study that goes on must find the same texts.
        """
        return {self._name(value): value for value in self.ends}

    @staticmethod
    def _name(value: Any) -> Any:
        if isinstance(value, str | bool | int | float):
            return value
        return str(value) if isinstance(value, tuple) else as_text(value)

    def __str__(self) -> str:
        return ", ".join(" ".join(as_words(value)) for value in self.ends)


Space = dict[str, Range | Choices]  # by dotted names


def parse_space(table: dict[str, Any], source: str) -> Space:
    """Read a [search] table. Raises Unusable naming the key."""
    found: Space = {}
    for former, entry in entries(table):
        name = renew_name(former)
        if name in found:
            raise Unusable(f"{source}: search: {former}: {name} is there, too; leave one out")
        found[name] = parse_field(name, entry, f"{source}: search")
    if not found:
        raise Unusable(
            f"{source}: search is empty: name one field or more, es.sigma = {{low = 0.01, high = "
            "0.1, log = true}, say"
        )
    return found


def entries(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, entry) of a [search] table, in which a dot may open a table, too."""
    for name, entry in table.items():
        if name not in NAMES and isinstance(entry, dict) and "low" not in entry:
            yield from ((f"{name}.{key}", inner) for key, inner in entry.items())
        else:
            yield name, entry


def parse_field(name: str, entry: Any, source: str) -> Range | Choices:
    """Read the range or the choices of a field. Raises Unusable."""
    if name in OWN:
        raise Unusable(f"{source}: {name}: {OWN[name]}")
    if name.partition(".")[0] in COMMON:
        raise Unusable(f"{source}: {name}: the same for all trials, under [settings]")
    check_name(name, source, None)
    if isinstance(entry, list):
        return parse_choices(name, entry, source)
    numbers = name in NAMES and {hint(name), *get_args(hint(name))} & {int, float}
    if isinstance(entry, dict) and numbers:
        return parse_range(name, entry, source)
    check_value(name, entry, source)  # which says what the field is
    wanted = "a list of values" + (", or {low = 0.01, high = 0.1, log = true}" if numbers else "")
    raise Unusable(f"{source}: {name} = {entry!r}: expected {wanted}")


def check_value(name: str, entry: Any, source: str) -> Any:
    """Convert a value to what its field has. Raises Unusable where it is none."""
    return from_table({name: entry}, source)[name]


def parse_choices(name: str, given: list[Any], source: str) -> Choices:
    """Read choices. Raises Unusable."""
    found = tuple(check_value(name, entry, source) for entry in given)
    if len(set(map(as_text, found))) < max(2, len(found)):
        raise Unusable(
            f"{source}: {name} = {given!r}: expected two values or more, each once; a single one "
            "is for [settings]"
        )
    return Choices(found)


def parse_range(name: str, given: dict[str, Any], source: str) -> Range:
    """Read a range. Raises Unusable."""
    for key in given.keys() & {"low", "high", "step"}:
        check_value(name, given[key], source)
    found: Range = read_as(Range, given, f"{source}: {name}")
    if not all(abs(number) < LARGEST for number in (found.low, found.high, found.step)):  # nan, too
        raise Unusable(f"{source}: {name}: low, high and step must be finite, and below 2**63")
    if found.low >= found.high:
        raise Unusable(f"{source}: {name}: low = {found.low:g} must be below high = {found.high:g}")
    if found.step < 0 or (found.step and found.log):
        raise Unusable(f"{source}: {name}: step must be positive, and goes with log = false alone")
    if found.step > found.high - found.low:
        raise Unusable(f"{source}: {name}: step = {found.step:g} is more than high - low")
    if found.log and found.low <= 0:
        raise Unusable(f"{source}: {name}: log = true needs a low above 0, and it is {found.low:g}")
    return found
