"""What the pages of results show comes from the records beside them."""

import csv
import re
import shlex
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi.analysis.results import rowfiles

PAGES = [
    ROOT / f"docs/results/{page}.md"
    for page in ("index", "two-cores", "eight-tasks", "pderl", "aes-rl")
]


TABLES = [
    line
    for page in PAGES
    for line in page.read_text().splitlines()
    if re.match(r"esac-mpi results (table|aggregate).*\.md$", line)
]


@pytest.mark.parametrize("line", TABLES)
def test_the_tables_of_the_docs_come_from_their_records(tmp_path, call, monkeypatch, line):
    monkeypatch.chdir(ROOT)
    _, kind, table, *words = shlex.split(line)
    assert words[-2] == "--out"
    words = [found for word in words for found in (sorted(glob(word)) or [word])]
    expected = Path(words.pop()).read_text()
    call(f"{kind} {table}", *words, tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == expected


def test_the_records_of_the_docs_are_small_and_whole():
    files = sorted((ROOT / "docs/results").glob("*.csv"))
    counts = {
        "ablations": 48, "aes-fig3": 18, "aes-table1": 36, "aes-table3-es": 15, "aes-table3": 90,
        "fig2a": 12, "fig2c": 27, "fig4": 6, "fig6a": 42, "fig6b": 12, "pderl-table1": 140,
        "phases": 51, "side-by-side": 32, "sixteen": 12, "table1": 84, "transfer": 21,
        "two-cores": 30,
    }  # fmt: skip
    assert [path.stem for path in files] == list(counts)
    for path in files:
        ends = [row for row in rowfiles.read([path]) if row.complete]
        assert len(ends) == counts[path.stem]
        assert path.stat().st_size < 21_000 * len(ends)  # a run is some sixty rows
    each = {"aes-table2": [50] * 2, "aggregate": [25] * 8, "carriers": [21] * 4}
    for folder, ends in each.items():
        paths = sorted((ROOT / "docs/results" / folder).glob("*.csv"))
        assert [sum(row.complete for row in rowfiles.read([path])) for path in paths] == ends


OPERATED = {
    "crossover": ("parent 1", "n-point child", "distilled child"),
    "mutation": ("parent", "Gaussian", "proximal"),
}


@pytest.mark.parametrize("task", ["HalfCheetah", "Hopper", "Swimmer", "cartpole-swingup"])
def test_what_operators_do_to_returns_is_in_their_records(task):
    said = []
    for what, names in OPERATED.items():
        groups: dict[tuple[Path, str], dict[str, float]] = {}
        for path in (ROOT / "docs/results/operators").glob(f"{what}-{task.lower()}-seed*.csv"):
            for row in csv.DictReader(path.open()):
                groups.setdefault((path, row["group"]), {})[row["policy"]] = float(row["mean"])
        parts = [
            np.array([one[name] / one[names[0]] for one in groups.values()]) for name in names[1:]
        ]
        said += [f"{np.median(part):.3f} ({(part < 0.5).sum()})" for part in parts]
        said.append(f"{(parts[1] > parts[0]).sum()} of {len(groups)}")
    assert f"| {task} | {' | '.join(said)} |" in (ROOT / "docs/results/pderl.md").read_text()
