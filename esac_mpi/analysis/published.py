"""What the papers print, from published.toml beside this file."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import note
from esac_mpi.analysis.tables import Cell, Table

Times = dict[
    tuple[str, int], dict[int, float]
]  # {(algorithm, population size): {CPUs: seconds per generation}}
BOOK = Path(__file__).with_name("published.toml")


def whole() -> dict[str, Any]:
    """Return all of the book."""
    return tomllib.loads(BOOK.read_text(encoding="utf-8"))


def book() -> dict[str, Any]:
    """Return the papers' tables by the paper's short name."""
    return {name: entry for name, entry in whole().items() if "results" in entry}


def times(task: str) -> tuple[Times, str]:
    """Return what a paper prints of the time of a generation on a task, and where."""
    printed = whole()["times"]
    if task not in printed:
        note(
            f"no paper prints how long generations on {task} take; of {', '.join(printed)} one does"
        )
        return {}, ""
    entry = printed[task]
    return {
        (name, n): dict(zip(entry["cpus"], seconds, strict=False))
        for name, n, *seconds in entry["seconds"]
    }, entry["source"]


def published(names: Iterable[str], tasks: list[str]) -> tuple[Table, list[str]]:
    """Return what the papers print on these tasks, and a line about each source."""
    papers = {name: book()[name] for name in names}
    table: Table = {task: {} for task in tasks}
    for name, paper in papers.items():
        for task in tasks:
            for algorithm, numbers in zip(
                paper["columns"], paper["results"].get(task, ()), strict=False
            ):
                if numbers:
                    mean, std, median = [*map(float, numbers), np.nan, np.nan][:3]
                    table[task][f"{algorithm} [{name}]"] = Cell(
                        mean, std, median, source=paper["source"]
                    )
    return table, [
        f"[{name}] {paper['source']}: {paper['protocol']}." for name, paper in papers.items()
    ]
