"""An algorithm of one's own in an installed package: a module, a table and two entry points."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
import random_search
from conftest import ROOT, ROUTINE, command, finish
from whole_runs import wait_for
from words import words

from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.record import files

pytestmark = pytest.mark.slow

SETTINGS = """
algorithm = "random_search"
[random_search]
radius = 0.3
"""
GENERATIONS = 60
PAGE = ROOT / "docs/how-to/extend.md"
POINTS = """[project.entry-points."esac_mpi.tables"]
random_search = "searches.table:RandomSearch"

[project.entry-points."esac_mpi.algorithms"]
random_search = "searches.algorithm"
"""
INIT = "import esac_mpi.config  # first: it loads searches.table\n"
COMMANDS = """
import json, sys
from esac_mpi.commands.__main__ import main
sys.exit(max(main(argv) for argv in json.loads(sys.argv[1])))
"""


def forecast():
    """Return the part of docs/how-to/extend.md that can be left out, for forecasts."""
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (found,) = [code for code in codes if "def expected(" in code]
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
        groups = tomllib.loads(POINTS)["project"]["entry-points"].items()
        lines = [f"[{name}]\nrandom_search = {one['random_search']}\n" for name, one in groups]
        self.points = installed / "entry_points.txt"
        self.points.write_text("".join(lines))
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: searches\nVersion: 1.0\n")
        (path / "settings.toml").write_text(SETTINGS)
        self.paths = os.pathsep.join([str(path), str(ROOT)])

    def line(self, ranks, *arguments):
        """Return the command line of a run: radius from the file, points from the command line."""
        task = words("--task.id Pendulum-v1 --task.horizon 20 --random_search.points 6", *ROUTINE)
        task += words("--checkpoint.every_generations 2", *arguments)
        return command(ranks, self.path / "settings.toml", *task)

    def call(self, line, code=0, installed=True):
        """Run a command line; return what it printed, with its complaints."""
        place, paths = (self.path, self.paths) if installed else (ROOT, str(ROOT))
        done = finish(line, code, place, PYTHONPATH=paths)
        return done.stdout + done.stderr

    def commands(self, *lines, **options):
        """Run commands, one after another in a process; return what they printed."""
        argv = json.dumps([list(map(str, line)) for line in lines])
        return self.call([sys.executable, "-c", COMMANDS, argv], **options)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    return Extended(tmp_path_factory.mktemp("extended"))


@pytest.fixture(scope="module")
def straight(extended):
    run = extended.path / "straight"
    extended.call(extended.line(1, "--budget.generations", GENERATIONS, "--run-dir", run))
    return run


def rows(run):
    columns = files.read(run / "metrics.h5")[0]
    return {name: column for name, column in columns.items() if name.startswith("metrics/")}


def test_it_is_short():
    assert len((ROOT / "tests/support/random_search.py").read_text().splitlines()) < 90


def test_it_is_configured_twice_over_and_finds_a_better_point(straight):
    text = (straight / "config.toml").read_text()
    for said in ('algorithm = "random_search"', "radius = 0.3", "points = 6"):
        assert said in text
    assert files.read(straight / "metrics.h5")[1]["versions"].endswith(", searches 1.0")
    columns = rows(straight)
    fitness, moved = columns["metrics/fitness"], columns["metrics/moved"]
    assert fitness.shape == (GENERATIONS, 6)
    best = np.maximum.accumulate(fitness.max(axis=1))
    assert moved.tolist() == [True, *(best[1:] > best[:-1]).tolist()]
    assert best[-1] > best[0]


def test_three_ranks_and_a_kill_leave_its_bits_as_they_are(extended, straight):
    run = extended.path / "killed"
    line = extended.line(3, "--run-dir", run, "--budget.generations")
    seen = {**os.environ, "PYTHONPATH": extended.paths}
    endless = [*line, str(10**6)]
    process = subprocess.Popen(endless, env=seen, cwd=extended.path, start_new_session=True)
    wait_for(lambda: (run / "checkpoint_prev.h5").exists() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    reached = files.read(run / "checkpoint.h5")[1]["generation"]
    last = max(GENERATIONS, reached + 1)  # on a busy machine the kill may come late
    assert f"resumed at generation {reached}" in extended.call([*line, str(last)])
    ours, theirs = rows(run), rows(straight)
    assert ours.keys() == theirs.keys()
    for name, column in theirs.items():
        np.testing.assert_array_equal(ours[name][:GENERATIONS], column, name)
    if last == GENERATIONS:
        ours, theirs = (files.read(path / "metrics.h5")[1] for path in (run, straight))
        assert ours["theta_sha256"] == theirs["theta_sha256"]
        assert ours["state_sha256"] == theirs["state_sha256"]


def test_another_run_begins_with_its_best_point(extended, straight):
    run = extended.path / "branch"
    line = words("--budget.generations 2 --seed 1 --random_search.radius 0.5 --from", straight)
    said = extended.call(extended.line(0, *line, "--run-dir", run))
    assert f"  begun from {straight}, generation {GENERATIONS}: theta, episodic_return\n" in said
    best, columns = rows(straight)["metrics/fitness"].max(), rows(run)
    bar = np.maximum.accumulate([best, *columns["metrics/fitness"].max(axis=1)])
    assert columns["metrics/moved"].tolist() == (bar[1:] > bar[:-1]).tolist()


REFUSED = {
    "--random_search.radius -1": "random_search.radius = -1.0",
    "--random_search.radios 1": "did you mean 'random_search.radius'?",
    "--random_search.sigma 1": "there are random_search.points, random_search.radius",
    "--esac.sigma 1": "esac.sigma",  # which it does not read
}
LOAD = """
import json, sys
from esac_mpi.config import ConfigError, load
for words in json.loads(sys.argv[1]):
    try:
        load(["settings.toml", *words])
    except ConfigError as error:
        print(json.dumps(str(error)))
"""


def test_a_bad_field_is_refused(extended):
    lines = json.dumps([words(line) for line in REFUSED])
    said = extended.call([sys.executable, "-c", LOAD, lines]).splitlines()
    for expected, message in zip(REFUSED.values(), said, strict=True):
        assert expected in json.loads(message)


def test_every_tool_sees_it(extended, straight):
    curve, jobs = extended.path / "curve.png", extended.path / "jobs.txt"
    grid = words("--tasks Pendulum-v1 --algorithms random_search --set radius 0.1 0.2 --out", jobs)
    said = extended.commands(
        ["summary", straight, "--json"],
        ["watch", straight, "--once"],
        ["table", straight],
        ["plot", straight, "--policy", "search", "--out", curve],
        ["sweep", *grid],
    )
    found, end = json.JSONDecoder().raw_decode(said)
    expected = ("random_search", GENERATIONS, "complete")
    assert (found["algorithm"], found["generation"], found["status"]) == expected
    steps = rows(straight)["metrics/length"].sum()
    assert found["env_steps"]["population"] == steps == GENERATIONS * 6 * 20
    assert found["final_return"] == found["last_evaluation"]["search"]
    watched, head_of_table, _ = said[end:].partition("| RANDOM_SEARCH, final |")
    assert "random_search" in watched
    assert head_of_table
    assert curve.stat().st_size > 1000
    set_by = {word for word in jobs.read_text().split() if word.startswith("--random")}
    assert set_by == {"--random_search.radius"}


def test_the_documents_forecast_needs_its_imports_alone():
    module = dict(vars(random_search))
    exec(forecast(), module)
    pieces = Pieces(np.array([1.0, 2.0]), np.array([10, 20]), 25, making=0.5)
    made = module["expected"](SimpleNamespace(random_search=SimpleNamespace(points=3)), pieces, 1)
    # the measured episodes in turn, from the second one on
    assert made.generation.members.tolist() == [2.5, 1.5, 2.5]
    assert (made.env_steps, made.nominal_steps) == (3 * 15, 25)


def test_its_runs_alone_need_its_package(extended, straight):
    run = extended.path / "elsewhere"
    line = words("--algorithm es --es.population-size 4 --task.id Pendulum-v1 --task.horizon 20")
    line += words("--policy.hidden 4 --budget.generations 1 --evaluation.episodes 1 --run-dir", run)
    extended.call(command(0, *line))
    assert "random_search" not in (run / "config.toml").read_text()
    assert "searches" not in files.read(run / "metrics.h5")[1]["versions"]
    extended.commands(["summary", run], installed=False)
    said = extended.commands(["summary", straight], code=2, installed=False)
    assert "or that of an installed package (docs/how-to/extend.md)" in said


@pytest.fixture
def edit(extended):
    """Change files of the package until the test's end, each as a function of its text says."""
    before = {}

    def edited(path, change):
        before[path] = path.read_text()
        path.write_text(change(before[path]))

    yield edited
    for path, text in before.items():
        path.write_text(text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("random_search =", "budget =", "entry point budget of esac_mpi.tables: the name is taken"),
        ("random_search =", "own =", "entry point own of esac_mpi.tables: the name is taken"),
        ("random_search =", "derl =", "entry point derl of esac_mpi.tables: the name is taken"),
        ("random_search =", "random-search =", "random-search of esac_mpi.tables: choose a name"),
        ("[esac_mpi.algorithms]", "[esac_mpi.algorithm]", "has none beside it in esac_mpi.algor"),
        ("[esac_mpi.tables]", "[esac_mpi.table]", "random_search of esac_mpi.algorithms has no"),
        ("", "es = searches.algorithm\n", "entry point es of esac_mpi.algorithms has no table"),
    ],
)
def test_no_entry_point_takes_the_place_of_a_name(extended, edit, old, new, said):
    edit(extended.points, lambda text: text.replace(old, new) if old else text + new)
    assert said in extended.call([sys.executable, "-c", "import esac_mpi.algorithms"], code=1)


@pytest.mark.parametrize(
    ("file", "group", "was", "now", "error"),
    [
        ("table.py", "tables", "", "import nowhere\n", "ModuleNotFoundError: No module named"),
        ("table.py", "tables", "(Table)", "", "TypeError: it is no dataclass"),
        ("table.py", "tables", "READS = ", "READ = ", "AttributeError: 'RandomSearch' object"),
        ("algorithm.py", "algorithms", "", "import nowhere\n", "ModuleNotFoundError: No module"),
        ("algorithm.py", "algorithms", "def board(", "def b(", "AttributeError: it has no board;"),
    ],
)
def test_a_broken_installed_algorithm_is_one_sentence(extended, edit, file, group, was, now, error):
    path = extended.path / "searches" / file
    edit(path, lambda text: text.replace(was, now, 1))
    for line in (["esac_mpi", "--help"], ["esac_mpi.commands", "summary", "x"]):
        (said,) = extended.call([sys.executable, "-m", *line], code=2).splitlines()
        assert f"entry point random_search = searches.{path.stem}" in said
        assert f"of esac_mpi.{group} cannot be loaded: {error}" in said
        assert said.endswith("; mend or uninstall its package searches")


def test_a_generation_that_is_not_counted_ends_the_run(extended, edit):
    path = extended.path / "searches/algorithm.py"
    edit(path, lambda text: text.replace("state.generation = k", "assert k", 1))
    run = extended.path / "uncounted"
    said = extended.call(extended.line(2, "--budget.generations", 3, "--run-dir", run), code=1)
    assert "BrokenAlgorithm: generation() of random_search left state.generation = 0, not 1" in said


@pytest.mark.parametrize(
    "setting",
    [
        "float | None = None",
        "float | None = 0.5",
        "float = np.sqrt(0.1)",
        "float = float('nan')",
        "tuple[float, ...] = (0.1,)",
        "Literal[1, 2] = 1",
    ],
)
def test_a_setting_that_no_file_gives_back_is_refused(extended, edit, setting):
    """A run's own config.toml could not be read again."""

    def changed(text):
        after = text.replace("radius: PositiveFloat = 0.1", f"radius: {setting}")
        return f"from typing import Literal\n\nimport numpy as np\n{after}"

    edit(extended.path / "searches/table.py", changed)
    said = extended.call([sys.executable, "-m", "esac_mpi", "--help"], code=2)
    assert "entry point random_search of esac_mpi.tables: random_search.radius = " in said


def test_help_reads_a_table_that_stands_in_a_block(extended, edit):
    def changed(text):
        head, decorated = text.split("@dataclass")
        return f"{head}if True:\n" + textwrap.indent(f"@dataclass{decorated}", "    ")

    edit(extended.path / "searches/table.py", changed)
    line = [sys.executable, "-m", "esac_mpi", "--algorithm", "random_search", "--help"]
    assert "Their standard deviation around the best so far" in extended.call(line)


def test_the_document_shows_what_this_test_does():
    text = PAGE.read_text()
    for name in ("random_search.py", "random_search_table.py"):
        assert (ROOT / "tests/support" / name).read_text() in text, name
    assert POINTS in text
    assert INIT in text
