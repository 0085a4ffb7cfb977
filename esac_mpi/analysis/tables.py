"""Rows as a table: text for a terminal, Markdown, CSV or JSON; cells of results over seeds."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.host.streams import as_json

FORMATS = ("text", "markdown", "csv", "json")
Row = dict[str, Any]  # {column: text or number}; a column that a row lacks, None and nan: missing


def render(rows: Sequence[Row], form: str, about: Iterable[str] = ()) -> str:
    """Render rows in one of FORMATS. about: lines above, of CSV as comments; JSON has none."""
    if form == "json":
        return "\n".join(map(as_json, rows))
    heads = list(dict.fromkeys(name for row in rows for name in row))
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(heads)
        found = ([row.get(name) for name in heads] for row in rows)
        writer.writerows([["" if is_missing(value) else value for value in row] for row in found])
        return "".join(f"# {line}\n" for line in about) + out.getvalue().rstrip("\n")
    lines = [heads, *([format_value(row.get(name)) for name in heads] for row in rows)]
    above = [*about, ""] if about else []
    return "\n".join([*above, *(markdown(lines) if form == "markdown" else align(lines))])


def is_missing(value: Any) -> bool:
    """Whether there is no value."""
    return value is None or (isinstance(value, float) and np.isnan(value))


def four_digits(value: float, sign: str = "") -> str:
    """Format a number in four digits, without an exponent below a million."""
    return f"{float(f'{value:.4g}'):{sign},g}"


def format_value(value: Any) -> str:
    """Format a value for a person: four digits of a float, - where it is missing."""
    if is_missing(value):
        return "-"
    return four_digits(value) if isinstance(value, float) else in_line(str(value))


def in_line(text: str) -> str:
    """Write a text in one line: a name may have a line's end in it."""
    return text if text.isprintable() else repr(text)[1:-1]


def markdown(rows: list[list[str]]) -> list[str]:
    """Format rows of cells, the head first, as the lines of a Markdown table."""
    rows = [[in_line(cell).replace("|", r"\|") for cell in line] for line in rows]
    return [f"| {' | '.join(line)} |" for line in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def align(lines: list[list[str]]) -> Iterator[str]:
    """Yield rows of cells, the head first, as lines of columns: numbers flush right, words left."""
    widths, adjust = [], []
    for column in zip(*lines, strict=True):
        widths.append(max(map(len, column)))
        numbers = all(cell[:1].isdigit() or cell[:1] in "-+" for cell in column[1:])
        adjust.append(str.rjust if numbers else str.ljust)
    for line in lines:
        cells = zip(adjust, line, widths, strict=True)
        yield "  ".join(pad(cell, width) for pad, cell, width in cells).rstrip()


# ---- results over seeds


@dataclass(frozen=True)
class Cell:
    """The results of one algorithm on one task; what is not known is nan."""

    mean: float
    std: float = np.nan
    median: float = np.nan
    seeds: tuple[int, ...] = ()  # of our runs
    source: str = "these runs"


Table = dict[str, dict[str, Cell]]  # {task: {column: cell}}


def digits(c: Cell) -> int:
    """Count the decimals that show two figures of the deviation, of a single value four.

    At most two of a mean of 1 or more, six below.
    """
    size, figures = (c.std, 2) if np.isfinite(c.std) and c.std > 0 else (abs(c.mean), 4)
    most = 2 if abs(c.mean) >= 1 or not size else 6
    return int(np.clip(figures - 1 - np.floor(np.log10(max(size, 1e-9))), 0, most))


def format_cell(c: Cell, best: bool = False) -> str:
    """Format a cell: mean, std, in brackets median and number of seeds; a paper's as printed."""

    def number(value: float) -> str:
        return f"{value:,.{digits(c)}f}" if c.seeds else f"{value:,g}"

    found = f"**{number(c.mean)}**" if best else number(c.mean)
    if np.isfinite(c.std):
        found += f" ± {number(c.std)}"
    more = [number(c.median)] if np.isfinite(c.median) else []
    if c.seeds:
        more.append(f"n={len(c.seeds)}")
    return f"{found} ({', '.join(more)})" if more else found


def make_wide(table: Table, printed: Table, measure: str = "", bold: bool = True) -> list[Row]:
    """Make a row a task, a column an algorithm, the papers' after ours; measure: in the heads."""
    ours = dict.fromkeys(name for row in table.values() for name in row)
    theirs = dict.fromkeys(name for row in printed.values() for name in row)
    rows = []
    for task, row in table.items():
        best = max(c.mean for c in row.values()) if bold and len(row) > 1 else np.nan
        cells: Row = {"task": task}
        for name in ours:
            c = row.get(name)
            cells[f"{name}, {measure}" if measure else name] = c and format_cell(c, c.mean == best)
        for name in theirs:
            c = printed.get(task, {}).get(name)
            cells[name] = c and format_cell(c)
        rows.append(cells)
    return rows


def make_long(table: Table, printed: Table) -> list[Row]:
    """Return a row a cell, for other software."""
    return [
        {
            "task": task, "algorithm": name, "mean": c.mean, "std": c.std, "median": c.median,
            "n": len(c.seeds) or None, "seeds": " ".join(map(str, c.seeds)), "source": c.source,
        }
        for task, row in table.items()
        for name, c in {**row, **printed.get(task, {})}.items()
    ]  # fmt: skip
