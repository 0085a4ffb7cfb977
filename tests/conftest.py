"""How tests start the program: as a user does, as a process, on a number of ranks."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import pytest

from esac_mpi.config import PRESETS

ROOT = Path(__file__).parent.parent
JOBS = ROOT / "jobs"  # the shipped job scripts
PATIENCE = 300  # for what takes seconds on an idle machine [s]

CORRECTED = {
    "esac.preset": "corrected",
    **PRESETS["corrected"],
}  # what the preset sets, for configurations that a test makes itself

# ESAC on the cyclic MDP with all that could depend on ranks in it: SAC phases, replays, copies,
# crossover, AMT
TASK = ["--task.id", "CyclicMDP-v0", "--task.horizon", 40]
POPULATION = ["--esac.population_size", 10, "--esac.sigma", 0.3, "--esac.lr_es", 0.05]
INTERVAL = ["--esac.preset", "corrected", "--esac.gradient_interval", 2, "--esac.sac_episodes", 2]
PHASES = [*INTERVAL, "--esac.sac_min_steps", 30, "--esac.resimulated", "winners"]
LEARNER = ["--sac.start_steps", 20, "--sac.batch_size", 16, "--sac.replay_capacity", 200]
ROUTINE = [
    "--policy.hidden",
    8,
    8,
    "--evaluation.every",
    3,
    "--evaluation.episodes",
    4,
    "--checkpoint.every_generations",
    5,
]
SMALL = [*POPULATION, *PHASES, *LEARNER, *ROUTINE]
CYCLIC = [*TASK, *SMALL]
TIMED = [
    *POPULATION,
    "--esac.sac_min_steps",
    30,
    "--esac.workers",
    2,
    "--esac.update_cost",
    1,
    *LEARNER,
    *ROUTINE,
]  # the default
TIMED += ["--policy.linear", "false"]  # a policy that begins at zero ends its episodes here at once
STRATEGY = [str(word).replace("--esac.", "--es.") for word in POPULATION]
SMALL_ES = [
    "--algorithm",
    "es",
    *STRATEGY,
    *ROUTINE,
]  # begins in a third of the time: it needs no torch
CYCLIC_ES = [*TASK, *SMALL_ES]
TINY = [
    *("--task.id", "CyclicMDP-v0", "--task.horizon", "9", "--policy.hidden", "4"),
]
TINY_ES = [  # two generations of ES on the cyclic MDP, the smallest run there is
    *TINY,
    *("--algorithm", "es"),
    *("--es.population_size", "4", "--budget.generations", "2", "--evaluation.episodes", "1"),
]
EAGER = (str(ROOT / "tests/support/program.py"),)  # the program as tests/support/program.py has it


LONG = (
    "test_mpis.py",
    "test_torture.py",
    "test_faults.py",
    "test_stopping.py",
    "test_run.py",
    "test_jobs.py",
    "test_start_pages.py",
)  # whole programs


def pytest_collection_modifyitems(items):
    """Begin with the long files, then those with most tests.

    So of two workers none is left alone with a long one at the end.
    """
    count = Counter(item.path.name for item in items)
    items.sort(
        key=lambda item: (item.path.name not in LONG, -count[item.path.name], item.path.name)
    )


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


def run(
    ranks: int, *arguments: object, code: int | None = 0, **options
) -> subprocess.CompletedProcess:
    """Run the program to its end; check its exit code."""
    line = command(ranks, *arguments, **options)
    done = subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert code is None or done.returncode == code, (
        f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done


class OneProcess:
    """Makes runs on one process without mpirun, one after another in the same one.

    What the program loads is loaded once.
    """

    def __init__(self):
        self._environment, self._process = environment(), None
        self._errors = TemporaryFile("w+")  # noqa: SIM115

    def __call__(self, *arguments: object) -> None:
        """Make a run to its end, in the environment of now; it must succeed."""
        if self._process is None or self._process.poll() is not None:
            line = [sys.executable, str(ROOT / "tests/support/one_process.py")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
            self._process = subprocess.Popen(line, env=self._environment, text=True, **pipes)
        limit = threading.Timer(300, self._process.kill)
        limit.start()
        self._process.stdin.write(json.dumps([list(map(str, arguments)), environment()]) + "\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline()
        limit.cancel()
        if code != "0\n":
            self._errors.seek(0)  # where the process writes next, too
            raise AssertionError(f"exit {code}\n{self._errors.read()}")

    def end(self) -> None:
        """End the process, which has nothing left to do."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="session")
def alone():
    """Return a function that makes a run on one process: `alone(*arguments)`.

    It is the one that others must equal.
    """
    process = OneProcess()
    yield process
    process.end()


class ManyRanks:
    """Makes runs on up to RANKS ranks under mpirun, one after another in the same processes."""

    RANKS = 3

    def __init__(self):
        self._environment, self._process, self._made = environment(), None, 0

    def __call__(
        self, ranks: int, *arguments: object, nodes: int = 0, code: int = 0
    ) -> subprocess.CompletedProcess:
        """Make a run to its end, on two ranks or more; check its exit code.

        It is made in the environment of now. Returns what it printed.

        nodes: over how many the ranks are dealt, with what else tests/support/program.py has;
        0 = as `run` makes it.
        """
        if self._process is None or self._process.poll() is not None:
            self._begin()
        self._made += 1
        place = Path(self._folder.name)
        answer, *streams = (place / f"{self._made}.{name}" for name in ("code", "out", "err"))
        words, texts = list(map(str, arguments)), list(map(str, streams))
        for pipe in self._pipes:
            print(
                json.dumps([words, environment(), ranks, nodes, texts, str(answer)]),
                file=pipe,
                flush=True,
            )
        codes, end = (
            [place / f"{answer.name}.{rank}" for rank in range(ranks)],
            time.monotonic() + PATIENCE,
        )
        while (
            not all(code.exists() for code in codes)
            and self._process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.005)
        output, errors = (path.read_text() if path.exists() else "" for path in streams)
        told = [code.read_text() if code.exists() else "none" for code in codes]
        if told != [str(code)] * ranks:
            self.end()
            raise AssertionError(f"exit codes {told}\n{output}\n{errors}")
        return subprocess.CompletedProcess(words, code, output, errors)

    def _begin(self):
        self.end()
        self._folder = TemporaryDirectory()
        places = [Path(self._folder.name) / str(rank) for rank in range(self.RANKS)]
        for place in places:
            os.mkfifo(place)
        self._pipes = [
            os.fdopen(os.open(place, os.O_RDWR), "w") for place in places
        ]  # which waits for no reader
        line = command(
            self.RANKS, self._folder.name, program=(str(ROOT / "tests/support/many_ranks.py"),)
        )
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
def together():
    """Return a function that makes a run on some ranks: `together(ranks, *arguments, nodes=0)`."""
    processes = ManyRanks()
    yield processes
    processes.end()


@pytest.fixture
def world():
    """A World of this process alone."""
    from mpi4py import MPI  # which initialises MPI: not in tests that do without it

    from esac_mpi.comm.world import World

    only = World(MPI.COMM_SELF)
    yield only
    only.free()


@pytest.fixture
def start():
    """Start the program in the background; what is left of it at the test's end is killed."""
    started = []

    def launch(ranks: int, *arguments: object, **options) -> subprocess.Popen:
        process = subprocess.Popen(
            command(ranks, *arguments, **options),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()
