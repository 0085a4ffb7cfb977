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


def read_book() -> dict[str, Any]:
    """Read published.toml."""
    return tomllib.loads(BOOK.read_text(encoding="utf-8"))


def read_results() -> dict[str, Any]:
    """Read the papers' tables of results, {short name of the paper: table}."""
    return {name: entry for name, entry in read_book().items() if "results" in entry}


def times(task: str) -> tuple[Times, str]:
    """Return a paper's times of a generation on a task, and its source."""
    printed = read_book()["times"]
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


def select_results(names: Iterable[str], tasks: list[str]) -> tuple[Table, list[str]]:
    """Select the papers' results on these tasks; return also a line about each source."""
    table, sources = dict[str, dict[str, Cell]](), []
    for name in names:
        paper = read_results()[name]
        sources.append(f"[{name}] {paper['source']}: {paper['protocol']}.")
        for task in tasks:
            row = table.setdefault(task, {})
            printed = paper["results"].get(task, ())
            for algorithm, numbers in zip(paper["columns"], printed, strict=False):
                if numbers:
                    mean, std, median = [*map(float, numbers), np.nan, np.nan][:3]
                    row[f"{algorithm} [{name}]"] = Cell(mean, std, median, source=paper["source"])
    return table, sources
