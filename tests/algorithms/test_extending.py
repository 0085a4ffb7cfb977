"""An algorithm of one's own is a module, a table and two entry points of an installed package.

The whole program knows it then, and every tool.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
import random_search
from conftest import ROOT, ROUTINE, command

from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.record import files
from esac_mpi.record.reading import Columns

pytestmark = pytest.mark.slow

SETTINGS = """
algorithm = "random_search"
[random_search]
radius = 0.3
"""
PAGE = ROOT / "docs/how-to/extend.md"
POINTS = """[project.entry-points."esac_mpi.tables"]
random_search = "searches.table:RandomSearch"

[project.entry-points."esac_mpi.algorithms"]
random_search = "searches.algorithm"
"""
INIT = "import esac_mpi.config  # first: it loads searches.table\n"


def forecast():
    """Return the part of docs/how-to/extend.md that can be left out, for forecasts."""
    (found,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        if "def expected(" in code
    ]
    return found


class Extended:
    """An installed package with the algorithm, beside the checkout as it is, and its programs."""

    def __init__(self, path):
        self.path = path
        package, installed = path / "searches", path / "searches-1.0.dist-info"
        package.mkdir()
        installed.mkdir()
        module = (ROOT / "tests/support/random_search.py").read_text()
        (package / "__init__.py").write_text(INIT)
        (package / "algorithm.py").write_text(f"{module}\n\n{forecast()}")
        shutil.copy(ROOT / "tests/support/random_search_table.py", package / "table.py")
        groups = tomllib.loads(POINTS)["project"]["entry-points"]
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: searches\nVersion: 1.0\n")
        (installed / "entry_points.txt").write_text(
            "".join(
                f"[{group}]\nrandom_search = {one['random_search']}\n"
                for group, one in groups.items()
            )
        )
        (path / "settings.toml").write_text(SETTINGS)
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}

    def line(self, ranks, *arguments):
        """Return the command line of a run: radius from the file, points from the command line."""
        task = ["--task.id", "Pendulum-v1", "--task.horizon", 20]
        options = [
            "--random_search.points",
            6,
            *task,
            *ROUTINE,
            "--checkpoint.every_generations",
            2,
            *arguments,
        ]
        return command(ranks, self.path / "settings.toml", *options)

    def call(self, line, code=0):
        """Run a command line; return what it printed, with its complaints."""
        done = subprocess.run(
            [str(word) for word in line],
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def tool(self, name, *arguments):
        """Run a command."""
        return self.call([sys.executable, "-m", "esac_mpi.commands", name, *arguments])


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    return Extended(tmp_path_factory.mktemp("extended"))


@pytest.fixture(scope="module")
def straight(extended):
    run = extended.path / "straight"
    extended.call(extended.line(1, "--budget.generations", 120, "--run-dir", run))
    return run


def rows(run):
    """Return the metrics of every generation, and the hashes of the policy and of the state."""
    columns, attributes = Columns(run / "metrics.h5"), files.read(run / "metrics.h5")[1]
    return (
        {n: columns[n] for n in columns if n.startswith("metrics/")},
        attributes["theta_sha256"],
        attributes["state_sha256"],
    )


def assert_same(run, other):
    ours, theirs = rows(run), rows(other)
    assert ours[1:] == theirs[1:]
    assert ours[0].keys() == theirs[0].keys()
    for name, column in ours[0].items():
        np.testing.assert_array_equal(column, theirs[0][name], name)


def test_it_is_short():
    assert len((ROOT / "tests/support/random_search.py").read_text().splitlines()) < 90


def test_it_is_configured_by_file_and_command_line_and_finds_a_better_point(extended, straight):
    text = (straight / "config.toml").read_text()
    assert 'algorithm = "random_search"' in text
    assert "radius = 0.3" in text
    assert "points = 6" in text
    columns = rows(straight)[0]
    fitness, moved = columns["metrics/fitness"], columns["metrics/moved"]
    assert fitness.shape == (120, 6)
    best = np.maximum.accumulate(fitness.max(axis=1))
    assert moved.tolist() == [True, *(best[1:] > best[:-1]).tolist()]
    assert best[-1] > best[0]


def test_three_ranks_and_a_kill_leave_its_bits_as_they_are(extended, straight):
    run = extended.path / "killed"
    line = extended.line(3, "--budget.generations", 120, "--run-dir", run)
    process = subprocess.Popen(
        line, env=extended.environment, cwd=extended.path, start_new_session=True
    )
    end = time.monotonic() + 300
    while (
        not (run / "checkpoint_prev.h5").exists()
        and process.poll() is None
        and time.monotonic() < end
    ):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    said = extended.call(line)
    assert "resumed at generation" in said
    assert_same(run, straight)


def test_another_run_begins_with_its_best_point_without_a_word_of_its_module(extended, straight):
    run = extended.path / "branch"
    words = [
        "--budget.generations",
        2,
        "--seed",
        1,
        "--random_search.radius",
        0.5,
        "--from",
        straight,
        "--run-dir",
        run,
    ]
    assert f"  begun from {straight}, generation 120: theta, episodic_return\n" in extended.call(
        extended.line(0, *words)
    )
    best, columns = rows(straight)[0]["metrics/fitness"].max(), rows(run)[0]
    bar = np.maximum.accumulate([best, *columns["metrics/fitness"].max(axis=1)])
    assert columns["metrics/moved"].tolist() == (bar[1:] > bar[:-1]).tolist()


def test_a_bad_field_is_refused(extended):
    said = extended.call(extended.line(0, "--random_search.radius", "-1"), code=2)
    assert "random_search.radius = -1.0" in said
    said = extended.call(extended.line(0, "--random_search.radios", "1"), code=2)
    assert "unknown key 'random_search.radios'; did you mean 'random_search.radius'?" in said
    said = extended.call(extended.line(0, "--random_search.sigma", "1"), code=2)
    assert (
        "unknown key 'random_search.sigma'; there are random_search.points, random_search.radius"
        in said
    )
    assert "esac.sigma" in extended.call(
        extended.line(0, "--esac.sigma", "1"), code=2
    )  # which it does not read


def test_every_tool_sees_it(extended, straight):
    found = json.loads(extended.tool("summary", straight, "--json"))
    assert (found["algorithm"], found["generation"], found["status"]) == (
        "random_search",
        120,
        "complete",
    )
    assert (
        found["env_steps"]["population"]
        == rows(straight)[0]["metrics/length"].sum()
        == 120 * 6 * 20
    )
    assert found["final_return"] == found["last_evaluation"]["search"]
    assert "random_search" in extended.tool("watch", straight, "--once")
    assert "| RANDOM_SEARCH, final |" in extended.tool("table", straight)
    extended.tool("plot", straight, "--policy", "search", "--out", extended.path / "curve.png")
    assert (extended.path / "curve.png").stat().st_size > 1000
    grid = [
        "--tasks",
        "Pendulum-v1",
        "--algorithms",
        "random_search",
        "--set",
        "radius",
        "0.1",
        "0.2",
    ]
    extended.tool("sweep", *grid, "--out", extended.path / "jobs.txt")
    lines = (extended.path / "jobs.txt").read_text().splitlines()
    assert sorted(
        {word for line in lines for word in line.split() if word.startswith("--random")}
    ) == ["--random_search.radius"]


def test_the_forecast_of_the_document_needs_the_modules_imports_and_its_own_alone():
    module = dict(vars(random_search))
    exec(forecast(), module)
    pieces = Pieces(np.array([1.0, 2.0]), np.array([10, 20]), 25, making=0.5)
    made = module["expected"](SimpleNamespace(random_search=SimpleNamespace(points=3)), pieces, 1)
    assert made.generation.members.tolist() == [
        2.5,
        1.5,
        2.5,
    ]  # the measured episodes in turn, from the second one on
    assert (made.env_steps, made.nominal_steps) == (3 * 15, 25)


def test_its_package_is_named_where_versions_are(straight):
    versions = files.read(straight / "metrics.h5")[1]["versions"]
    assert versions.endswith(", searches 1.0")


def test_its_runs_alone_need_its_package(extended, straight):
    run = extended.path / "elsewhere"
    words = ["--task.id", "Pendulum-v1", "--task.horizon", "20", "--policy.hidden", "4"]
    words += ["--budget.generations", "1", "--evaluation.episodes", "1", "--run-dir", run]
    extended.call(command(0, "--algorithm", "es", "--es.population-size", "4", *words))
    assert "random_search" not in (run / "config.toml").read_text()
    environment = {**extended.environment, "PYTHONPATH": str(ROOT)}

    def summary(path):
        return subprocess.run(
            [sys.executable, "-m", "esac_mpi.commands", "summary", path],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    assert summary(run).returncode == 0
    told = summary(straight)
    assert told.returncode == 2
    assert "or that of an installed package (docs/how-to/extend.md)" in told.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("random_search =", "budget =", "entry point budget of esac_mpi.tables: the name is taken"),
        ("random_search =", "own =", "entry point own of esac_mpi.tables: the name is taken"),
        ("random_search =", "derl =", "entry point derl of esac_mpi.tables: the name is taken"),
        ("random_search =", "random-search =", "random-search of esac_mpi.tables: choose a name"),
        ("[esac_mpi.algorithms]", "[esac_mpi.algorithm]", "has none beside it in esac_mpi.algor"),
    ],
)
def test_entry_points_that_cannot_be_are_refused(extended, old, new, told):
    points = extended.path / "searches-1.0.dist-info/entry_points.txt"
    before = points.read_text()
    assert old in before
    points.write_text(before.replace(old, new))
    try:
        said = extended.call([sys.executable, "-c", "import esac_mpi.algorithms"], code=1)
    finally:
        points.write_text(before)
    assert told in said


def test_no_package_takes_the_place_of_an_algorithm(extended):
    points = extended.path / "searches-1.0.dist-info/entry_points.txt"
    before = points.read_text()
    points.write_text(f"{before}es = searches.algorithm\n")
    try:
        code = "from esac_mpi.algorithms import ALGORITHMS; print(ALGORITHMS['es'].__name__)"
        said = extended.call([sys.executable, "-c", code])
    finally:
        points.write_text(before)
    assert "esac_mpi.algorithms.es\n" in said


def test_the_document_shows_what_this_test_does():
    text = PAGE.read_text()
    for name in ("random_search.py", "random_search_table.py"):
        assert (ROOT / "tests/support" / name).read_text() in text, name
    assert POINTS in text
    assert INIT in text
