"""Many runs: which of them watch and summary show, and which first."""

import json
import os
from io import StringIO

import pytest
from commands import command
from growing_runs import make
from rich.console import Console

from esac_mpi.analysis import views
from esac_mpi.analysis.choice import chosen, task
from esac_mpi.record import Run

STATES = {"a": "complete", "b": "requeue", "c": "failed", "d": "complete", "e": "requeue"}
TASKS = {
    "a": "Hopper-v5",
    "b": "dm_control/walker-walk-v0",
    "c": "Hopper-v5",
    "d": "Ant-v5",
    "e": "dm_control/fish-swim-v0",
}


@pytest.fixture
def runs(tmp_path):
    """Return five runs, the later in the alphabet the longer silent, but e."""
    for name, state in STATES.items():
        make(
            tmp_path / name,
            task=TASKS[name],
            status=state,
            generations=10 * (1 + "cabde".index(name)),
        ).close()
        os.utime(tmp_path / name / "metrics.h5", (1000 - ord(name) + 90 * (name == "e"),) * 2)
    return {tmp_path / name: Run.open(tmp_path / name) for name in STATES}


def names(paths):
    return "".join(path.name for path in paths)


def test_what_needs_somebody_is_first_and_of_equals_what_is_silent_longest(runs):
    assert names(chosen(runs)) == "cbeda"
    broken = dict.fromkeys([next(iter(runs)).with_name("x")], "x: damaged")
    assert names(chosen({**runs, **broken})) == "xcbeda"


def test_runs_are_chosen_by_status_and_sorted_by_task(runs):
    assert names(chosen(runs, ("requeue", "failed"))) == "cbe"
    assert names(chosen(runs, key=task)) == "daceb"
    broken = dict.fromkeys([next(iter(runs)).with_name("x")], "x: damaged")
    assert names(chosen({**runs, **broken}, ("failed",))) == "c"


def shown(runs, *options, **more):
    """Return what watch --once shows, as [title, names]."""
    console = Console(file=StringIO(), width=120)
    console.print(views.many(runs, *options, **more))
    title, _, *rows = console.file.getvalue().splitlines()
    return [title.strip(), *(row.split("  ")[0].strip() for row in rows)]


def test_watch_shows_the_first_that_fit_and_counts_all(runs):
    title, *rows = shown(runs, ("requeue", "complete"), lines=3)
    assert sorted(title.partition(";")[0].split(", ")) == ["1 failed", "2 complete", "2 requeue"]
    assert title.endswith("; 4 chosen")
    assert rows == ["b", "e", "and 2 more"]
    assert shown(runs)[1:] == list("cbeda")
    assert shown(runs, lines=5)[1:] == list("cbeda")


def test_summary_chooses_and_counts_all(runs, capsys):
    summary, paths = command("summary"), [str(path) for path in reversed(list(runs))]
    assert (
        summary.main(
            [
                *paths,
                "--status",
                "requeue",
                "complete",
            ]
        )
        == 0
    )
    _, *rows, last = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["complete", "complete", "requeue", "requeue"]
    assert last == "5 runs: 2 complete, 1 failed, 2 requeue; 4 chosen"
    assert summary.main([*paths, "--json"]) == 0
    assert (
        "".join(json.loads(line)["run"][-1] for line in capsys.readouterr().out.splitlines())
        == "edcba"
    )  # as given
    assert summary.main([*paths, "--resume", "--status", "failed"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert summary.main([*paths, "--status", "dead"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "5 runs: 2 complete, 1 failed, 2 requeue; 0 chosen"
    )
    with pytest.raises(SystemExit) as end:
        summary.main([*paths, "--status", "lost"])
    assert end.value.code == 2
