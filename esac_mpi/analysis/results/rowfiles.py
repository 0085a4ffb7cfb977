"""Rows of results as CSV: a head, then a line a row; a number that a run lacks is empty."""

import csv
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import DAMAGED, Unusable, shorten
from esac_mpi.analysis.results.rows import Row
from esac_mpi.host.paths import PathLike, list_paths

FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Row)}
LATER = {"clock", "settings", "changed"}  # columns that older files lack
PARSE: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: lambda text: parse_finite(text),
    float | None: lambda text: parse_finite(text) if text else None,
    bool: lambda text: bool(("0", "1").index(text)),
}


def parse_finite(text: str) -> float:
    """Parse a finite number. Raises ValueError."""
    if not np.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def format_field(value: Any) -> str:
    """Format a field for the file."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV, a head and a line each; make the folder, replace an older file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([format_field(getattr(row, name)) for name in FIELDS] for row in rows)
    beside.replace(path)


def read(paths: PathLike | Iterable[PathLike]) -> list[Row]:
    """Return the rows of one or several files, in their order.

    Raises Unusable: not there, empty, twice, or with other settings or another core under the same
    name (code 2), damaged (65).
    """
    found = [row for path in list_paths(paths) for row in read_one(path)]
    ends: dict[Any, int] = {}
    for row in found:
        if row.generation <= ends.get(row.run, -1):
            raise Unusable(
                f"{row.name}: there twice, or its generations do not ascend;"
                " leave one of the files out, or draw it anew"
            )
        ends[row.run] = row.generation
    refuse_mixed(found)
    return found


def refuse_mixed(rows: Iterable[Row]) -> None:
    """Raise Unusable where rows of one name have other settings."""
    settings: dict[Any, set[str]] = {}
    for row in rows:
        if row.settings:
            settings.setdefault(row.run[:5], set()).add(row.settings)
    mixed = [name for name, digests in settings.items() if len(digests) > 1]
    if odd := [", ".join(filter(None, name)) for name in mixed]:
        raise Unusable(
            f"{shorten(odd)}: rows of other settings under one name: they are no seeds of the same"
        )


def read_one(path: Path) -> list[Row]:
    """Return the rows of one file. Raises Unusable."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = {*(reader.fieldnames or ()), *LATER}
            lines = list(reader)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Unusable(f"{path}: no CSV file of results: {error}", DAMAGED) from error
    if missing := [name for name in FIELDS if name not in names]:
        raise Unusable(
            f"{path}: no CSV file of results: it has no column {', '.join(missing)}", DAMAGED
        )
    if not lines:
        raise Unusable(f"{path}: no rows in it yet")
    return [parse_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 2)]


def parse_row(line: dict[str, str], where: str) -> Row:
    """Parse a line of the file. Raises Unusable."""
    values = {}
    for name, kind in FIELDS.items():
        try:
            values[name] = PARSE[kind](line.get(name, "") if name in LATER else line[name])
        except (ValueError, TypeError) as error:  # None: the line is too short
            raise Unusable(
                f"{where}: {name} is {line[name]!r}, not {getattr(kind, '__name__', kind)}", DAMAGED
            ) from error
    return Row(**values)
