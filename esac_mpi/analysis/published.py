"""What the papers print, from published.toml beside this file."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.tables import Cell, Table

BOOK = Path(__file__).with_name("published.toml")


def book() -> dict[str, Any]:
    """Return the papers' tables by the paper's short name."""
    return tomllib.loads(BOOK.read_text(encoding="utf-8"))


def published(names: Iterable[str], tasks: list[str]) -> tuple[Table, list[str]]:
    """Return what the papers print on these tasks, and a line about each source."""
    papers = {name: book()[name] for name in names}
    table: Table = {task: {} for task in tasks}
    for name, paper in papers.items():
        for task in tasks:
            for algorithm, numbers in zip(paper["columns"], paper["results"].get(task, ()), strict=False):
                if numbers:
                    mean, std, median = [*map(float, numbers), np.nan, np.nan][:3]
                    table[task][f"{algorithm} [{name}]"] = Cell(mean, std, median, source=paper["source"])
    return table, [f"[{name}] {paper['source']}: {paper['protocol']}." for name, paper in papers.items()]
