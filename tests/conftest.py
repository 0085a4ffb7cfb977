"""How tests start the program: as a user does, as a process, on a number of ranks."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from esac_mpi.config import PRESETS

ROOT = Path(__file__).parent.parent
JOBS = ROOT / "jobs"  # the shipped job scripts
PATIENCE = 300  # for what takes seconds on an idle machine [s]

# what the preset sets, for configurations that a test makes itself
CORRECTED = {"esac.preset": "corrected", **PRESETS["corrected"]}

# ESAC on the cyclic MDP with all that could depend on ranks in it: SAC phases, replays, copies,
# crossover, AMT
TASK = "--task.id CyclicMDP-v0 --task.horizon 40".split()
POPULATION = "--esac.population_size 10 --esac.sigma 0.3 --esac.lr_es 0.05".split()
INTERVAL = "--esac.preset corrected --esac.gradient_interval 2 --esac.sac_episodes 2".split()
PHASES = [*INTERVAL, *"--esac.sac_min_steps 30 --esac.resimulated winners".split()]
LEARNER = "--sac.start_steps 20 --sac.batch_size 16 --sac.replay_capacity 200".split()
EVALUATION = "--evaluation.every 3 --evaluation.episodes 4 --checkpoint.every_generations 5"
ROUTINE = ["--policy.hidden", "8", "8", *EVALUATION.split()]
SMALL = [*POPULATION, *PHASES, *LEARNER, *ROUTINE]
CYCLIC = [*TASK, *SMALL]
# the default; but a policy that begins at zero ends its episodes here at once
VIRTUAL = "--esac.sac_min_steps 30 --esac.workers 2 --esac.update_cost 1 --policy.linear false"
TIMED = [*POPULATION, *LEARNER, *ROUTINE, *VIRTUAL.split()]
STRATEGY = [word.replace("--esac.", "--es.") for word in POPULATION]
# begins in a third of the time: it needs no torch
SMALL_ES = ["--algorithm", "es", *STRATEGY, *ROUTINE]
CYCLIC_ES = [*TASK, *SMALL_ES]
TINY = "--task.id CyclicMDP-v0 --task.horizon 9 --policy.hidden 4".split()
# two generations of ES on the cyclic MDP, the smallest run there is
SMALLEST = "--algorithm es --es.population_size 4 --budget.generations 2 --evaluation.episodes 1"
TINY_ES = [*TINY, *SMALLEST.split()]
EAGER = (str(ROOT / "tests/support/program.py"),)  # the program as tests/support/program.py has it


LONG = [  # files of whole programs
    f"test_{name}.py"
    for name in "mpis torture faults stopping run jobs start_pages promises".split()
]


def pytest_configure():
    """Leave the batch job that these tests may be made in, which programs would take for theirs."""
    job = "SLURM_", "PBS_", "PMI_", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER", "OMPI_COMM_"
    for name in [name for name in os.environ if name.startswith(job)]:
        del os.environ[name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark whole programs; begin with the long files, then those with most tests.

    So of two workers none is left alone with a long one at the end.
    """
    count = Counter(item.path.name for item in items)
    items.sort(key=lambda item: ((name := item.path.name) not in LONG, -count[name], name))
    for item in items:
        if {"alone", "together", "start", "site"} & {*item.fixturenames}:
            item.add_marker(pytest.mark.slow)


def command(
    ranks: int, *arguments: object, program: tuple[str, ...] = ("-m", "esac_mpi")
) -> list[str]:
    """Return the command line of the program; 0 ranks = without mpirun."""
    ours = Path(sys.executable).parent / "mpirun"
    launcher = [str(ours) if ours.exists() else "mpirun", "-n", str(ranks)] if ranks else []
    return [*launcher, sys.executable, *program, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return what the program sees: the checkout, and the tests' own environments."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/support")))
    return {**os.environ, "PYTHONPATH": path}


def finish(
    line: Sequence[object], code: int | None = 0, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess:
    """Run a command line to its end; check its exit code, None = any."""
    done = subprocess.run(
        [*map(str, line)], cwd=folder, env=environment() | variables,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert code in (None, done.returncode), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run(
    ranks: int, *arguments: object, code: int | None = 0, **options
) -> subprocess.CompletedProcess:
    """Run the program to its end; check its exit code."""
    return finish(command(ranks, *arguments, **options), code)


class Ranks:
    """Makes runs on up to so many ranks, one after another in the same processes.

    What the program loads is loaded once; it stands where the test does. One rank is a process
    without mpirun.
    """

    def __init__(self, count: int):
        self._count, self._made = count, 0
        self._environment, self._process = environment(), None

    def __call__(
        self, ranks: int, *arguments: object, nodes: int = 0, code: int = 0
    ) -> subprocess.CompletedProcess:
        """Make a run to its end in the environment of now; check its exit code.

        nodes: over how many the ranks are dealt, with what else tests/support/program.py has;
        0 = as `run` makes it.
        """
        if self._process is None or self._process.poll() is not None:
            self._begin()
        self._made += 1
        place = Path(self._folder.name)
        answer, *streams = (place / f"{self._made}.{name}" for name in ("code", "out", "err"))
        words, texts = list(map(str, arguments)), list(map(str, streams))
        order = json.dumps([words, os.getcwd(), environment(), ranks, nodes, texts, str(answer)])
        for pipe in self._pipes:
            print(order, file=pipe, flush=True)
        codes = [place / f"{answer.name}.{rank}" for rank in range(ranks)]
        end = time.monotonic() + PATIENCE
        while not all(path.exists() for path in codes) and time.monotonic() < end:
            if self._process.poll() is not None:
                break
            time.sleep(0.005)
        output, errors = (path.read_text() if path.exists() else "" for path in streams)
        told = [path.read_text() if path.exists() else "none" for path in codes]
        if told != [str(code)] * ranks:
            self.end()
            raise AssertionError(f"exit codes {told}\n{output}\n{errors}")
        return subprocess.CompletedProcess(words, code, output, errors)

    def _begin(self):
        self.end()
        self._folder = TemporaryDirectory()
        places = [Path(self._folder.name) / str(rank) for rank in range(self._count)]
        for place in places:
            os.mkfifo(place)
        # opened so that it waits for no reader
        self._pipes = [os.fdopen(os.open(place, os.O_RDWR), "w") for place in places]
        program = (str(ROOT / "tests/support/many_ranks.py"),)
        line = command(self._count if self._count > 1 else 0, self._folder.name, program=program)
        self._process = subprocess.Popen(
            line, env=self._environment, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        """End the processes, which have nothing left to do."""
        if self._process is None:
            return
        for pipe in self._pipes:
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        self._folder.cleanup()
        self._process = None


@pytest.fixture(scope="session")
def alone():
    """Make a run on one process, `alone(*arguments)`: the one that others must equal."""
    process = Ranks(1)
    yield partial(process, 1)
    process.end()


@pytest.fixture(scope="session")
def together():
    """Make a run on up to three ranks: `together(ranks, *arguments, nodes=0, code=0)`."""
    processes = Ranks(3)
    yield processes
    processes.end()


@pytest.fixture
def call(capsys):
    """Call a command in this process, `call("NAME ...", *words, code=0)`; return its prints."""

    def called(line: str, *words: object, code: int = 0):
        from esac_mpi.commands.__main__ import call
        from esac_mpi.host.errors import RunError
        from esac_mpi.host.log import complain

        name, *first = line.split()
        capsys.readouterr()
        try:
            found = call(name, [*first, *map(str, words)])
        except SystemExit as end:
            found = end.code
        except RunError as error:  # which the program prints
            complain(error)
            found = error.code
        said = capsys.readouterr()
        assert found == code, f"exit {found}\n{said.out}\n{said.err}"
        return said

    return called


@pytest.fixture
def world():
    """A World of this process alone."""
    from mpi4py import MPI  # which initialises MPI: not in tests that do without it

    from esac_mpi.comm.world import World

    only = World(MPI.COMM_SELF)
    yield only
    only.free()


@pytest.fixture
def begin():
    """Begin a run of record alone, as short_runs.begin does; it is let go of at the test's end."""
    import short_runs

    with ExitStack() as held:
        yield lambda *given, **more: held.enter_context(closing(short_runs.begin(*given, **more)))


@pytest.fixture
def start():
    """Start the program in the background; what is left of it at the test's end is killed."""
    started = []

    def launch(ranks: int, *arguments: object, **options) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        own = {"env": environment(), "start_new_session": True}
        started.append(subprocess.Popen(command(ranks, *arguments, **options), **pipes, **own))
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()
