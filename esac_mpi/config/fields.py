"""The fields by their dotted names: `esac.sigma`, `seed`."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from types import GenericAlias
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from esac_mpi.config.bounds import OR_AUTO
from esac_mpi.config.whole import Config, table_of


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field."""
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from flatten(value, f"{prefix}{f.name}.")
        elif f.compare:  # Config.said is no setting
            yield prefix + f.name, value


DEFAULTS = dict(flatten(Config()))
NAMES = tuple(DEFAULTS)


def amend(config: Config, values: dict[str, Any]) -> Config:
    """Return `config` with the dotted names of `values` replaced."""
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    whole = tables.pop("")
    whole |= {table: replace(getattr(config, table), **part) for table, part in tables.items()}
    return replace(config, **whole)


def value_of(config: Config, name: str) -> Any:
    """Return the value of a field."""
    return attrgetter(name)(config)


def full_name(algorithm: str, name: str) -> str:
    """Return a field's dotted name; one without a table is of the algorithm's own."""
    return name if "." in name or name in NAMES else f"{table_of(algorithm)}.{name}"


def normalisation_of(config: Config) -> str:
    """Name the field by which the algorithm standardises observations; "" without one."""
    name = f"{table_of(config.algorithm)}.observation_normalisation"
    return name if name in NAMES else ""


def normalisation(config: Config) -> bool | str:
    """Look up how a run's policies see observations: the value of that field, False without one."""
    name = normalisation_of(config)
    found: bool | str = value_of(config, name) if name else False
    return found


def as_text(value: Any) -> str:
    """Return a value as a person writes it."""
    if isinstance(value, dict):
        return json.dumps(value, default=str, skipkeys=True)  # of what nobody has checked, too
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def hint(name: str) -> Any:
    """Return the type of a field alone; of one that may be "auto", that of its number."""
    found = get_type_hints(_owner(name))[name.rpartition(".")[2]]
    return get_args(found)[0] if takes_auto(name) else found


@cache
def choices(name: str) -> tuple[str, ...]:
    """List the words that a field may be: all that it may, or those in place of a number."""
    kind = get_type_hints(_owner(name))[name.rpartition(".")[2]]
    parts = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return tuple(word for part in parts for word in get_args(part))


def is_list(name: str) -> bool:
    """Tell whether a field is a list of numbers, as policy.hidden is."""
    if name not in NAMES:
        return False
    kind = hint(name)
    return tuple in {get_origin(each) for each in (kind, *get_args(kind))}


def takes_auto(name: str) -> bool:
    """Tell whether a field may be "auto" until a run begins."""
    return name in NAMES and OR_AUTO in marks(name)


@cache
def marks(name: str) -> tuple[Any, ...]:
    """Return the bounds and conditions in a field's annotation; of a list, those of an entry."""
    annotation = get_type_hints(_owner(name), include_extras=True)[name.rpartition(".")[2]]
    own = getattr(annotation, "__metadata__", ())
    kind = annotation.__origin__ if own else annotation
    if get_origin(kind) is Union:  # with a word in place of it
        kind = get_args(kind)[0]
    if isinstance(kind, GenericAlias):  # tuple[PositiveInt, ...]
        own += getattr(get_args(kind)[0], "__metadata__", ())
    return own


def _owner(name: str) -> Any:
    table = name.rpartition(".")[0]
    return get_type_hints(Config)[table] if table else Config
