"""Many runs: which of them watch and summary show, and which first."""

import json
import os
from io import StringIO

import pytest
from commands import command
from growing_runs import make
from rich.console import Console

from esac_mpi.analysis import views
from esac_mpi.analysis.choice import ORDERS, Choice
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
    assert names(Choice().of(runs)) == "cbeda"
    broken = dict.fromkeys([next(iter(runs)).with_name("x")], "x: damaged")
    assert names(Choice().of({**runs, **broken})) == "xcbeda"


def test_runs_are_chosen_by_status_and_by_patterns_of_tasks(runs):
    assert names(Choice(statuses=("requeue", "failed")).of(runs)) == "cbe"
    assert names(Choice(tasks=("dm_control/*",)).of(runs)) == "be"
    assert (
        names(Choice(tasks=("Hopper-v5", "*-swim-*"), statuses=("complete", "requeue")).of(runs))
        == "ea"
    )
    assert (
        Choice(tasks=("hopper-v5",)).of({**runs, next(iter(runs)).with_name("x"): "x: damaged"})
        == []
    )


def test_other_orders(runs):
    assert set(ORDERS) == {"need", "task", "return", "left", "name"}
    assert names(Choice(order="name").of(runs)) == "abcde"
    assert names(Choice(order="task").of(runs)) == "daceb"
    assert names(Choice(order="return").of(runs)) == "edbac"  # the longest has the best
    assert names(Choice(order="left").of(runs)) == "edbac"  # and is nearest to its end


def shown(runs, *options, **more):
    """Return what watch --once shows, as [title, names]."""
    console = Console(file=StringIO(), width=120)
    console.print(views.many(runs, *options, **more))
    title, _, *rows = console.file.getvalue().splitlines()
    return [title.strip(), *(row.split("  ")[0].strip() for row in rows)]


def test_watch_shows_the_first_that_fit_and_counts_all(runs):
    title, *rows = shown(runs, Choice(statuses=("requeue", "complete")), lines=3)
    assert sorted(title.partition(";")[0].split(", ")) == ["1 failed", "2 complete", "2 requeue"]
    assert title.endswith("; 4 chosen")
    assert rows == ["b", "e", "and 2 more"]
    assert shown(runs)[1:] == list("cbeda")
    assert shown(runs, lines=5)[1:] == list("cbeda")
    line = command("watch").command_line().parse_args(["x", "--task", "Ant-*", "--sort", "left"])
    assert (line.status, line.task, line.sort) == ([], ["Ant-*"], "left")


def test_summary_chooses_sorts_and_counts_all(runs, capsys):
    summary, paths = command("summary"), [str(path) for path in reversed(list(runs))]
    assert summary.main([*paths, "--status", "requeue", "complete", "--sort", "need"]) == 0
    _, *rows, last = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["requeue", "requeue", "complete", "complete"]
    assert last == "5 runs: 2 complete, 1 failed, 2 requeue; 4 chosen"
    assert summary.main([*paths, "--json"]) == 0
    assert (
        "".join(json.loads(line)["run"][-1] for line in capsys.readouterr().out.splitlines())
        == "edcba"
    )  # as given
    assert summary.main([*paths, "--json", "--sort", "task", "--task", "*/*"]) == 0
    assert (
        "".join(json.loads(line)["run"][-1] for line in capsys.readouterr().out.splitlines())
        == "eb"
    )
    assert summary.main([*paths, "--resume", "--status", "failed"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert summary.main([*paths, "--task", "Nowhere-v0"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "5 runs: 2 complete, 1 failed, 2 requeue; 0 chosen"
    )
    with pytest.raises(SystemExit) as end:
        summary.main([*paths, "--status", "lost"])
    assert end.value.code == 2
