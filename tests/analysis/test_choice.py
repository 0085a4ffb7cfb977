"""Many runs: which of them watch and summary show, and which first."""

import json
import os
from io import StringIO

import numpy as np
import pytest
from growing_runs import make
from rich.console import Console

from esac_mpi.analysis import views
from esac_mpi.analysis.followed import by_task, choose_runs
from esac_mpi.record import Run

STATES = {"a": "complete", "b": "requeue", "c": "failed", "d": "complete", "e": "requeue"}
TASKS = {"a": "Hopper-v5", "b": "dm_control/walker-walk-v0", "c": "Hopper-v5"}
TASKS |= {"d": "Ant-v5", "e": "dm_control/fish-swim-v0"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return five runs, the later in the alphabet the longer silent, but e."""
    place = tmp_path_factory.mktemp("runs")
    for name, state in STATES.items():
        make(place / name, "esac", 0, 10 * (1 + "cabde".index(name)), TASKS[name], state)
        os.utime(place / name / "metrics.h5", (1000 - ord(name) + 90 * (name == "e"),) * 2)
    return {place / name: Run.open(place / name) for name in STATES}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "xcbeda"),  # what needs somebody is first, and of equals what is silent longest
        ({"statuses": ("requeue", "failed")}, "cbe"),
        ({"statuses": ("failed",)}, "c"),
        ({"key": by_task}, "xdaceb"),
    ],
)
def test_runs_are_chosen_by_status_and_sorted(runs, options, names):
    damaged = {next(iter(runs)).with_name("x"): "x: damaged"}
    assert "".join(path.name for path in choose_runs({**runs, **damaged}, **options)) == names


def shown(runs, *options, **more):
    """Return what watch --once shows, as [title, names]."""
    console = Console(file=StringIO(), width=120)
    console.print(views.show_runs(runs, *options, **more))
    title, _, *rows = console.file.getvalue().splitlines()
    return [title.strip(), *(row.split("  ")[0].strip() for row in rows)]


def test_watch_shows_the_first_that_fit_and_counts_all(runs):
    title, *rows = shown(runs, ("requeue", "complete"), lines=3)
    assert sorted(title.partition(";")[0].split(", ")) == ["1 failed", "2 complete", "2 requeue"]
    assert title.endswith("; 4 chosen")
    assert rows == ["b", "e", "and 2 more"]
    assert shown(runs)[1:] == list("cbeda")
    assert shown(runs, lines=5)[1:] == list("cbeda")


def test_a_constant_is_drawn_flat():
    for count in (1, 30, 563):  # means of so many differ in their last bits
        assert set(views.sparkline(np.full(count, 0.02))) == {"▁"}
    assert views.sparkline(np.array([0.02, np.nan, 0.02 + 1e-6])) == "▁█"


def test_summary_chooses_and_counts_all(runs, call):
    paths = list(reversed(list(runs)))

    def summary(line, code=0):
        return call("summary", *paths, *line.split(), code=code).out.splitlines()

    _, *rows, last = summary("--status requeue complete")
    assert [row.split()[0] for row in rows] == ["complete", "complete", "requeue", "requeue"]
    counts = "5 runs: 2 complete, 1 failed, 2 requeue"
    assert last == f"{counts}; 4 chosen"
    assert summary("--status dead")[-1] == f"{counts}; 0 chosen"
    named = [json.loads(line)["run"][-1] for line in summary("--json")]
    assert named == list("edcba")  # as given
    assert len(summary("--resume --status failed")) == 1
    summary("--status lost", code=2)
