"""Tables of results as Markdown, LaTeX or CSV, and rows as aligned lines for a terminal."""

import csv
import io
from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np


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
    """Return how many decimals show two figures of the standard deviation, or four of a single value; at most two."""
    size, figures = (c.std, 2) if np.isfinite(c.std) and c.std > 0 else (abs(c.mean), 4)
    return int(np.clip(figures - 1 - np.floor(np.log10(max(size, 1e-9))), 0, 2))


def text(c: Cell, form: str, best: bool) -> str:
    """Return a cell as Markdown or LaTeX has it: mean, std, in brackets median and number of seeds; the papers' as printed."""

    def number(value: float) -> str:
        return f"{value:,.{digits(c)}f}" if c.seeds else f"{value:,g}"

    more = [number(c.median)] * bool(np.isfinite(c.median)) + [f"n={len(c.seeds)}"] * bool(c.seeds)
    tail = f" ({', '.join(more)})" if more else ""
    bold, sign = ("**{}**", "±") if form == "markdown" else (r"\mathbf{{{}}}", r"\pm")
    figures = (bold.format(number(c.mean)) if best else number(c.mean)) + (
        f" {sign} {number(c.std)}" if np.isfinite(c.std) else ""
    )
    return figures + tail if form == "markdown" else f"${figures.replace(',', '{,}')}$" + tail


def rendered(
    table: Table, printed: Table, about: list[str], form: str, bold: bool = True, measure: str = ""
) -> str:
    """Return the table as text; bold: whether the best mean of a task is; measure: what the heads of our columns add."""
    if form == "csv":
        return as_csv(table, printed, about)
    columns = [
        *dict.fromkeys(name for part in (table, printed) for row in part.values() for name in row)
    ]
    ours = {name for row in table.values() for name in row} if measure else set()
    rows: list[list[str]] = [
        ["task", *(f"{name}, {measure}" if name in ours else name for name in columns)]
    ]
    for task, row in table.items():
        best = max(c.mean for c in row.values())
        both = {**row, **printed.get(task, {})}
        rows.append(
            [
                task,
                *(
                    text(both[c], form, bold and len(row) > 1 and c in row and row[c].mean == best)
                    if c in both
                    else "-"
                    for c in columns
                ),
            ]
        )
    return as_markdown(rows, about) if form == "markdown" else as_latex(rows, about)


def as_markdown(rows: list[list[str]], about: list[str]) -> str:
    """Return rows of cells, the head first, with what the table holds above."""
    return "\n".join([*about, "", *markdown(rows)])


def markdown(rows: list[list[str]]) -> list[str]:
    """Return rows of cells, the head first, as the lines of a Markdown table."""
    return [f"| {' | '.join(line)} |" for line in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def aligned(lines: list[list[str]], left: Container[str] = ()) -> Iterator[str]:
    """Yield rows of cells as lines of columns, flush right but for those whose heads, the first row, are in `left`."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    adjust = [str.ljust if name in left else str.rjust for name in lines[0]]
    for line in lines:
        yield "  ".join(
            a(cell, width) for a, cell, width in zip(adjust, line, widths, strict=True)
        ).rstrip()


def as_latex(rows: list[list[str]], about: list[str]) -> str:
    """Return rows of cells as a tabular of the package booktabs, with what the table holds as comments above."""
    escaped = [
        [
            cell if cell.startswith("$") else cell.replace("_", r"\_").replace("%", r"\%")
            for cell in row
        ]
        for row in rows
    ]
    head, *lines = [" & ".join(row) + r" \\" for row in escaped]
    begin = [rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", head, r"\midrule"]
    return "\n".join(
        [*(f"% {line}" for line in about), *begin, *lines, r"\bottomrule", r"\end{tabular}"]
    )


def as_csv(table: Table, printed: Table, about: list[str]) -> str:
    """Return one line a cell; what the table holds as comments above."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["task", "algorithm", "mean", "std", "median", "n", "seeds", "source"])
    for task, row in table.items():
        for name, c in {**row, **printed.get(task, {})}.items():
            numbers = ["" if np.isnan(v) else repr(v) for v in (c.mean, c.std, c.median)]
            writer.writerow(
                [task, name, *numbers, len(c.seeds) or "", " ".join(map(str, c.seeds)), c.source]
            )
    return "\n".join(f"# {line}" for line in about) + "\n" + out.getvalue().rstrip("\n")
