"""What a run reads of the configuration: what its algorithm's table declares, and the conditions that fields declare.

Of a field that a run does not read the command line is refused, and a file's value is named in a warning.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from esac_mpi.config.fields import DEFAULTS, marks, shown, value_of
from esac_mpi.config.table import OnlyIn, OnlyWith, OnlyWithOne, Reads
from esac_mpi.config.whole import Config, table_of

COMMON = (
    "task",
    "budget",
    "policy",
    "evaluation",
    "checkpoint",
    "stop",
    "display",
)  # tables that every algorithm reads


@cache
def declared(algorithm: str) -> Reads:
    """Return what an algorithm's own table says that it reads beside it."""
    return Config(algorithm=algorithm).own.READS


def tables(algorithm: str) -> tuple[str, ...]:
    """Return the tables that an algorithm reads beside those that all read: first its own."""
    return (table_of(algorithm), *declared(algorithm).tables)


def reads(algorithm: str, name: str) -> bool:
    """Return whether an algorithm reads a field, whatever the other fields are."""
    table, own = name.rpartition(".")[0], declared(algorithm)
    return name not in own.without and (
        table in ("", *COMMON, *tables(algorithm)) or name in own.also
    )


def conditions(name: str) -> list[dict[str, tuple[Any, ...]]]:
    """Return the conditions for a field to matter, each {name: values}: one of these other fields must be one of its values."""
    table, found = name.rpartition(".")[0], []
    for mark in marks(name):
        if isinstance(mark, OnlyWith):
            others = {
                f"{table}.{key}": value if isinstance(value, tuple) else (value,)
                for key, value in mark.others.items()
            }
            found += (
                [others]
                if isinstance(mark, OnlyWithOne)
                else [{other: values} for other, values in others.items()]
            )
    return found


def conditions_of_algorithm(algorithm: str, name: str) -> list[dict[str, tuple[Any, ...]]]:
    """Return what fields of an algorithm's own table must be, as `conditions` does, for it to read a field of another."""
    table, own, declares = name.rpartition(".")[0], table_of(algorithm), declared(algorithm)
    found = (
        [{f"{own}.{declares.tables_if[table]}": (table,)}] if table in declares.tables_if else []
    )
    return found + (
        [{f"{own}.{declares.fields_if[name]}": (True,)}] if name in declares.fields_if else []
    )


def unmet(config: Config, name: str) -> dict[str, tuple[Any, ...]]:
    """Return the first condition for a field to matter that is not met; an empty one if all are."""
    needed = conditions_of_algorithm(config.algorithm, name) + conditions(name)
    return next(
        (
            one
            for one in needed
            if all(value_of(config, other) not in values for other, values in one.items())
        ),
        {},
    )


def unread(config: Config, names: Iterable[str]) -> dict[str, str]:
    """Return {name: why} of those fields that a run of `config` does not read."""
    found = {}
    for name in names:
        if not reads(config.algorithm, name):
            found[name] = f"algorithm = {config.algorithm} does not read it"
        elif missing := unmet(config, name):
            said = (
                f"{other} = {' or '.join(map(shown, values))}" for other, values in missing.items()
            )
            found[name] = f"read only with {' or '.join(said)}"
    return found


def unread_in(config: Config, discrete: bool) -> Iterator[str]:
    """Yield a message for every field other than its default that is not read in such tasks; discrete: of discrete actions."""
    for name, default in DEFAULTS.items():
        if not reads(config.algorithm, name) or value_of(config, name) == default:
            continue
        if any(isinstance(mark, OnlyIn) and mark.discrete != discrete for mark in marks(name)):
            kind = "continuous" if discrete else "discrete"
            yield f"{name} = {shown(value_of(config, name))}: read only in tasks of {kind} actions"
