"""What the pages of results show comes from the records beside them."""

import csv
import re
import shlex
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi.analysis.results.rows import read_rows

COMMAND = re.compile(r"^esac-mpi results (?:table|aggregate).*\.md$", re.MULTILINE)
TABLES = []
for page in ("index", "two-cores", "eight-tasks", "pderl", "aes-rl"):
    TABLES += COMMAND.findall((ROOT / f"docs/results/{page}.md").read_text())


@pytest.mark.parametrize("line", TABLES)
def test_the_tables_of_the_docs_come_from_their_records(tmp_path, call, monkeypatch, line):
    monkeypatch.chdir(ROOT)
    _, kind, table, *words = shlex.split(line)
    assert words[-2] == "--out"
    words = [found for word in words for found in (sorted(glob(word)) or [word])]
    expected = Path(words.pop()).read_text()
    call(f"{kind} {table}", *words, tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == expected


FOLDERS = ("", "aes-table2", "aggregate", "carriers")
RECORDS = [path for name in FOLDERS for path in (ROOT / "docs/results" / name).glob("*.csv")]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_records_of_the_docs_are_small_and_whole(path):
    rows = read_rows([path])
    ended = [row.run for row in rows if row.complete]
    assert sorted(ended) == sorted({row.run for row in rows})
    assert path.stat().st_size < 23_000 * len(ended)  # a run is some sixty rows


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
