"""Configuration files: TOML in, TOML out."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from esac_mpi.config.bounds import AUTO, PLAIN, Plain
from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import DEFAULTS, NAMES, hint, takes_auto
from esac_mpi.config.kwargs import gathered
from esac_mpi.config.names import known
from esac_mpi.config.old_fields import current
from esac_mpi.config.whole import Config
from esac_mpi.config.wrong_file import no_file, other_use
from esac_mpi.host.paths import given
from esac_mpi.host.run_directory import CONFIG, is_run

# no part of a run: a directory is moved, a job has its own limit, and a change is let be once
UNSAVED = ("run_dir", "max_hours", "task.changed")


def from_table(
    table: dict[str, Any], source: str, kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Check a parsed TOML table against the fields; return {dotted name: value}.

    kwargs: the task's of what the table is set beside, which single ones join.
    Raises ConfigError naming `source`, the key and the nearest valid key, or the expected type.
    """
    given: dict[str, Any] = {}
    for key, entry in table.items():
        if not isinstance(key, str):
            raise ConfigError(f"{source}: {key!r}: expected the name of a field")
        table_of_fields = isinstance(entry, dict) and key not in NAMES
        found = {f"{key}.{k}": v for k, v in entry.items()} if table_of_fields else {key: entry}
        if twice := given.keys() & found.keys():
            raise ConfigError(f"{source}: {min(twice)} is set twice")
        given |= found
    given = current(gathered(given, kwargs or {}), source)
    return {name: _coerce(known(name, source), value, source) for name, value in given.items()}


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a configuration file; return {dotted name: value}. Raises ConfigError."""
    try:
        if Path(path).is_dir() or Path(path).suffix == ".h5":
            raise ConfigError(no_file(str(path)))
        table = tomllib.loads(
            Path(path).read_text(encoding="utf-8-sig")
        )  # editors of Windows begin a file with a mark
        if use := other_use(table, str(path)):
            raise ConfigError(use)
        return from_table(table, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # also numbers of 5,000 digits and lists in lists in lists
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def read_file(place: str | os.PathLike[str], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return what a file that a person names sets; a run's own config.toml means the directory that it is in. Raises ConfigError.

    `warn` hears what such a file sets in vain: a person wrote it there, or a former version did.
    """
    path = given(place, ConfigError)
    values = read_toml(path)
    if path.name == CONFIG and is_run(path.parent):
        for name in UNSAVED[1:]:
            if values.get(name, DEFAULTS[name]) != DEFAULTS[name]:
                warn(
                    f"{path}: {name} is no part of a run, and not read there: --{name.replace('_', '-')} beside it"
                )
        values = {name: value for name, value in values.items() if name not in UNSAVED} | {
            "run_dir": str(path.parent)
        }
    return values


def to_toml(config: Config, names: Collection[str] = NAMES) -> str:
    """Return the resolved configuration as TOML; `read_toml` of it gives the same fields, but for those of UNSAVED.

    names: of the fields to write.
    """
    tables = asdict(config)
    names = set(names).difference(UNSAVED)
    lines = [
        f"{k} = {_toml_value(v)}"
        for k, v in tables.items()
        if not isinstance(v, dict) and k in names
    ]
    for name, table in tables.items():
        if isinstance(table, dict):
            part = {key: value for key, value in table.items() if f"{name}.{key}" in names}
            inner = {
                f"{name}.{key}": part.pop(key)
                for key, value in list(part.items())
                if isinstance(value, dict)
            }
            for title, entries in {name: part, **inner}.items():
                values = [
                    f"{_toml_key(key)} = {_toml_value(value)}" for key, value in entries.items()
                ]
                lines += ["", f"[{title}]", *values] if values else []
    return "\n".join(lines) + "\n"


def _coerce(name: str, value: Any, source: str) -> Any:
    if value == AUTO and takes_auto(name):
        return value
    return _coerced(name, hint(name), value, source)


def _coerced(name: str, kind: Any, value: Any, source: str) -> Any:
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        wanted = " | ".join(repr(choice) for choice in get_args(kind))
    elif get_origin(kind) is tuple:
        entries = [_whole(v) for v in value] if isinstance(value, list) else [value]
        if isinstance(value, list) and all(type(v) is int for v in entries):
            return tuple(entries)
        wanted = "a list of integers"
    elif kind == dict[str, Any]:
        if not Plain().problem(value):
            return value
        wanted = PLAIN
    elif get_origin(kind) is Union:  # a number, or a word for one
        number, word = get_args(kind)
        if isinstance(value, str) == (value in get_args(word)):
            return value if isinstance(value, str) else _coerced(name, number, value, source)
        wanted = f"a number, or {' | '.join(map(repr, get_args(word)))}"
    else:
        value = _whole(value) if kind is int else value
        if type(value) is kind or (kind is float and type(value) is int):
            return (
                float(repr(value)) if kind is float else value
            )  # an integer beyond any float: inf, which `check` refuses
        wanted = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}[
            kind
        ]
        wanted += _whose_id(value) if name == "task.id" else ""
        wanted += ' or "auto"' if takes_auto(name) else ""
    raise ConfigError(f"{source}: {name} = {value!r}: expected {wanted}")


def _whole(value: Any) -> Any:
    """Return a float that is a whole number, as 1e6 is in TOML, as an integer; anything else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


def _whose_id(value: Any) -> str:
    """Return how a task is named, by the id of an environment or its spec if that is what stands for it."""
    known = getattr(getattr(value, "spec", value), "id", None)
    like = f"'{known}', or" if isinstance(known, str) else "'Pendulum-v1', or"
    return f", the id by which gymnasium.make finds the task: {like} 'module:EnvId' where a module of your own registers it"


def _toml_key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml_text(name)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # which JSON leaves as it is


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_toml_key(name)} = {_toml_value(v)}" for name, v in value.items())
            + "}"
        )
    return repr(value)
