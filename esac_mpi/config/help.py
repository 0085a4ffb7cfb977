"""--help of one algorithm: the fields that it reads, and no others."""

from dataclasses import fields, make_dataclass
from typing import Annotated, Any, get_type_hints

from esac_mpi.config.fields import NAMES
from esac_mpi.config.reads import reads
from esac_mpi.config.whole import Config


def read_by(algorithm: str, config: Config) -> Config:
    """Return a configuration as an object of whose fields tyro's help shows those that an algorithm reads."""
    tables: dict[str, set[str]] = {}
    for name in NAMES:
        if not reads(algorithm, name):
            table, _, key = name.rpartition(".")
            tables.setdefault(table, set()).add(key)
    whole = {
        table
        for table, hidden in tables.items()
        if hidden == {f.name for f in fields(getattr(config, table))}
    }
    parts = {
        table: without(getattr(config, table), hidden)
        for table, hidden in tables.items()
        if table not in whole
    }
    return without(config, whole, parts)


def without(config: Any, hidden: set[str], parts: dict[str, Any] | None = None) -> Any:
    """Return an object like a dataclass's, with some fields hidden from tyro's help and others replaced."""
    import tyro

    kind, parts = type(config), parts or {}
    hints = get_type_hints(kind, include_extras=True)
    types = {name: Annotated[hints[name], tyro.conf.Suppress] for name in hidden} | {
        n: type(part) for n, part in parts.items()
    }
    changed = [(name, types[name], kind.__dataclass_fields__[name]) for name in types]
    made: Any = make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True)
    made.__module__ = kind.__module__  # where tyro reads what the fields' docstrings say
    return made(**{f.name: parts.get(f.name, getattr(config, f.name)) for f in fields(kind)})
