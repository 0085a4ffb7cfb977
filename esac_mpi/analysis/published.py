"""What the papers print, from published.toml beside this file."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import note
from esac_mpi.analysis.tables import Cell, Table

# {(algorithm, population size): {CPUs: seconds per generation}}
Times = dict[tuple[str, int], dict[int, float]]
BOOK = Path(__file__).with_name("published.toml")


def whole() -> dict[str, Any]:
    """Return all of the book."""
    return tomllib.loads(BOOK.read_text(encoding="utf-8"))


def book() -> dict[str, Any]:
    """Return the papers' tables by the paper's short name."""
    return {name: entry for name, entry in whole().items() if "results" in entry}


def times(task: str) -> tuple[Times, str]:
    """Return a paper's times of a generation on a task, and its source."""
    printed = whole()["times"]
    if task not in printed:
        note(
            f"no paper prints how long generations on {task} take; of {', '.join(printed)} one does"
        )
        return {}, ""
    found = {
        (name, n): dict(zip(printed[task]["cpus"], seconds, strict=False))
        for name, n, *seconds in printed[task]["seconds"]
    }
    return found, printed[task]["source"]


def published(names: Iterable[str], tasks: list[str]) -> tuple[Table, list[str]]:
    """Return the papers' results on these tasks, and a line about each source."""
    table, sources = dict[str, dict[str, Cell]](), []
    for name in names:
        paper = book()[name]
        sources.append(f"[{name}] {paper['source']}: {paper['protocol']}.")
        for task in tasks:
            row = table.setdefault(task, {})
            printed = paper["results"].get(task, ())
            for algorithm, numbers in zip(paper["columns"], printed, strict=False):
                if numbers:
                    mean, std, median = [*map(float, numbers), np.nan, np.nan][:3]
                    cell = Cell(mean, std, median, source=paper["source"])
                    row[f"{algorithm} [{name}]"] = cell
    return table, sources
