"""Keyword arguments of the task's maker, [task.kwargs]: a table in a file, one by one or a JSON object on the command line."""

import json
from collections.abc import Mapping
from typing import Any

from esac_mpi.config.errors import ConfigError

FIELD = "task.kwargs"
ONE = f"{FIELD}."  # begins the name of one of them


def gathered(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return {dotted name: value} in which those that are named one by one have joined their table, or else the given one."""
    found = {name: value for name, value in values.items() if not name.startswith(ONE)}
    for name, value in values.items():
        if name.startswith(ONE) and isinstance(table := found.get(FIELD, given), Mapping):
            found[FIELD] = _with(table, name[len(ONE) :], value)
    return found


def joined(argv: list[str], given: Mapping[str, Any]) -> list[str]:
    """Return a command line in which --task.kwargs NAME by NAME has become one JSON object.

    given: those of the file, which single ones join and an object replaces. Raises ConfigError.
    """
    rest, found, waiting = [], None, list(argv)
    while waiting:
        option, equals, value = waiting.pop(0).partition("=")
        name = option.replace("-", "_")
        if name != f"__{FIELD}" and not name.startswith(f"__{ONE}"):
            rest.append(option + equals + value)
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise ConfigError(f"command line: {option}: expected a value after it")
            value = waiting.pop(0)
        if name == f"__{FIELD}":
            found = _object(value)
        else:
            found = _with(
                given if found is None else found, _argument(option[len(ONE) + 2 :]), _value(value)
            )
    return rest if found is None else [*rest, f"--{FIELD}={json.dumps(found)}"]


def _with(table: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a table with a value in it, or, where the name has dots, in a table that is in it."""
    first, dot, rest = name.partition(".")
    inner = table.get(first)
    return {
        **table,
        first: _with(inner if isinstance(inner, dict) else {}, rest, value) if dot else value,
    }


def _argument(name: str) -> str:
    """Return the dotted name of a value as the maker knows it: an argument of Python's has no dashes, a table in one may."""
    first, dot, rest = name.partition(".")
    return first.replace("-", "_") + dot + rest


def _object(text: str) -> dict[str, Any]:
    """Return a JSON object. Raises ConfigError for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        wanted = f"a JSON object, as '{{\"name\": 0.5}}', or --{ONE}NAME VALUE"
        raise ConfigError(f"command line: {FIELD} = {text!r}: expected {wanted}")
    return found


def _value(text: str) -> Any:
    """Return a value as JSON has it, or Python a number or a truth; any other text is itself."""
    truths = {"True": True, "False": False}
    for read in (truths.__getitem__, json.loads, float):
        try:
            return read(text)
        except (KeyError, ValueError, RecursionError):
            continue
    return text
