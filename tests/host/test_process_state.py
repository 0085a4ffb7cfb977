"""What a task changes of the process it lives in: put back, or refused in a sentence."""

import gc
import json
import logging
import mmap
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import command, finish
from rude_envs import LATE

from esac_mpi.envs import TaskError, make, probe
from esac_mpi.host import log, process_state, threads
from esac_mpi.host.stop import EndsRun
from esac_mpi.record import Run
from esac_mpi.training import task_set_up

RUDE = "rude_envs:Rude-v0"
ES = "--algorithm es --es.population_size 4 --policy.hidden 4 --evaluation.episodes 1"
SMALL = ["--task.id", RUDE, *ES.split()]
BUDGET = ["--budget.generations", 2]
HELD = (
    "vanish umask replaced elsewhere environment argv path warnings logging dictconfig errors "
    "random"
)
ONCE = f"{HELD} handlers blocked cores threads fork"


def umask() -> int:
    os.umask(now := os.umask(0))
    return now


# two names below our logger, the one between being no logger
FAR_BELOW = logging.getLogger("esac_mpi.between.below")


def heard_by(logger: logging.Logger) -> tuple[int, logging.Logger]:
    """Return from which level on a logger's messages are heard, and the last that hears them."""
    last = logger
    while last.parent and last.propagate:
        last = last.parent
    return logger.getEffectiveLevel(), last


LOOKS = {
    "directory": os.getcwd,
    "vanish": os.getcwd,
    "umask": umask,
    "handlers": lambda: [
        signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    ],
    "c_handler": lambda: Path("/proc/self/status").read_text().partition("SigIgn:")[2].split()[0],
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "replaced": lambda: sys.stdout,
    "elsewhere": lambda: os.fstat(1).st_ino,
    "environment": lambda: [
        os.environ.get(name) for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID")
    ],
    "argv": lambda: sys.argv[:],
    "path": lambda: sys.path[0],
    "warnings": lambda: warnings.filters[:],
    "logging": lambda: log.logger.isEnabledFor(logging.WARNING),
    "dictconfig": lambda: log.logger.disabled,
    "levels": lambda: [heard_by(each) for each in (log.logger, log.progress, FAR_BELOW)],
    "errors": np.geterr,
    "cores": lambda: os.sched_getaffinity(0),
    "threads": lambda: [get() for _, get, _ in threads.openblas()],
    "torch": lambda: (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()),
    "flush": lambda: sys.float_info.min / 2 > 0,
}


@pytest.fixture(autouse=True)
def with_a_thread():
    """Let linear algebra have one thread, as in training."""
    with threads.single_threaded():
        yield


def test_a_file_named_like_openblas_is_no_library_for_threads(tmp_path):
    """Nor are other files below a folder of that name; a name may be in any encoding."""
    before = [path for path, *_ in threads.openblas()]
    folder = os.fsdecode(b"openblas l\xe4ufe")
    (tmp_path / folder).mkdir()
    for name in ("python3", "openblas.txt"):
        path = tmp_path / folder / name
        path.write_text("text")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            assert str(path) in threads.mapped_files()
            assert [path for path, *_ in threads.openblas()] == before


def program(folder: Path, *words: object, code: int = 0, **variables: str):
    """Run the program in a folder, as a user does; check its exit code, and for tracebacks."""
    done = finish(command(0, *words), code, folder, PYTHONWARNINGS="ignore", **variables)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("what", LOOKS)
def test_what_a_task_changes_at_its_start_is_put_back(what):
    before = LOOKS[what]()
    env = make(RUDE, 0, {"what": what})
    assert LOOKS[what]() == before
    assert probe.probe(env).apart == ""
    probe.probe(make(RUDE, 0, {"what": what, "when": "first"}))  # its first step
    assert LOOKS[what]() == before


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("handlers", "handlers of signals"),
        ("c_handler", "handlers of signals"),
        ("blocked", "blocked signals"),
        ("cores", "the cores that it may run on"),
        ("threads", "the threads of BLAS"),
        ("torch", "torch's settings"),
        ("flush", "how numbers are rounded"),
    ],
)
@pytest.mark.parametrize("when", ["reset", "step"])
def test_episodes_that_change_what_a_run_needs_are_refused(what, named, when):
    if what == "cores" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core is all there is")
    before = LOOKS[what]()
    env = make(RUDE, 0, {"what": what, "when": when})
    said = f"^{RUDE}: its episodes change .*{named}; .*docs/reference/tasks.md"
    with pytest.raises(TaskError, match=said):
        probe.probe(env)
    assert LOOKS[what]() == before


@pytest.mark.slow
def test_a_run_is_what_it_would_have_been(tmp_path):
    """Whatever of HELD its task does at import, when it is made, or in every step."""
    program(tmp_path, *SMALL, *BUDGET, "--run-dir", "plain")
    program(tmp_path, *SMALL, *BUDGET, "--run-dir", "imported", RUDE=f"parse {ONCE} closed")
    for when, what in {"made": f"parse {ONCE} closed", "step": HELD}.items():
        kwargs = ["--task.kwargs.what", what, "--task.kwargs.when", when]
        told = program(tmp_path, *SMALL, *kwargs, *BUDGET, "--run-dir", when)
        assert "finished at generation 2" in told.stdout
        assert f"results {tmp_path / when}" in told.stdout
    runs = {name: Run.open(tmp_path / name) for name in ("plain", "imported", "made", "step")}
    assert len({run.provenance["theta_sha256"] for run in runs.values()}) == 1
    assert len({(path / "status.json").stat().st_mode for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("what", ["exit", "parse"])
def test_a_task_that_ends_the_program_is_refused(what, monkeypatch):
    # which no command lets it see
    monkeypatch.setattr(sys, "argv", [*sys.argv[:1], "--task.id", RUDE])
    with pytest.raises(TaskError, match=rf"^{RUDE} cannot be made with .*: SystemExit"):
        make(RUDE, 0, {"what": what})
    env = make(RUDE, 0, {"what": what, "when": "first"})
    with pytest.raises(TaskError, match="cannot be played: its code ends the program"):
        probe.probe(env)


@pytest.mark.slow
def test_a_task_that_ends_the_program_ends_in_a_sentence(tmp_path):
    late = "--task.kwargs.what exit --task.kwargs.when late --run-dir run".split()
    done = program(tmp_path, *SMALL, *late, "--budget.env_steps", 3 * LATE, code=1)
    assert "its code ends the program, sys.exit(0)" in done.stderr
    assert done.stderr.count("\n") <= 2
    assert json.loads((tmp_path / "run/status.json").read_text())["status"] == "failed"
    env = make(RUDE, 0, {"what": "exit", "when": "late"})
    env.reset(0)
    with pytest.raises(EndsRun):
        [env.step(env.high) for _ in range(LATE)]


def test_a_task_that_ends_the_program_at_its_end_ends_nothing(caplog):
    env = make(RUDE, 0, {"what": "exit directory", "when": "closed"})
    before = os.getcwd()
    task_set_up.let_go(env)
    assert "the task cannot be closed: SystemExit: 0" in caplog.text
    assert os.getcwd() == before


def test_a_child_that_a_task_has_forked_goes_on_with_nothing():
    process, (reader, writer) = os.getpid(), os.pipe()
    try:
        make(RUDE, 0, {"what": "fork"})
        probe.probe(make(RUDE, 0, {"what": "fork", "when": "first"}))
    finally:
        if os.getpid() != process:  # it says so, and goes on with no test
            os.write(writer, b"on")
            os._exit(0)
        os.close(writer)
    with open(reader) as heard:
        assert heard.read() == ""


def test_a_thread_that_a_task_leaves_does_not_keep_the_process(tmp_path):
    words = [*SMALL, *BUDGET, "--task.kwargs.what", "linger", "--run-dir", tmp_path / "run"]
    done = finish(command(2, *words))
    assert done.stderr.count("esac_mpi: ended with threads of the task at work: viewer\n") == 2
    assert json.loads((tmp_path / "run/status.json").read_text())["status"] == "complete"


@pytest.mark.parametrize("away", [os.rmdir, lambda path: path.rename(path.with_name("moved"))])
def test_a_directory_that_is_moved_or_deleted_meanwhile_ends_nothing(tmp_path, monkeypatch, away):
    """The one that a run was started in, by a person: no task's doing."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    with process_state.preserve_state(wholly=False) as changed:
        away(place)
    assert changed == ["the current directory"]


def test_loggers_that_a_thread_makes_meanwhile_are_no_error(monkeypatch):
    """As those of trackers and viewers do, also where a collection of garbage runs Python code."""
    monkeypatch.setattr(logging.root.manager, "loggerDict", {**logging.root.manager.loggerDict})
    interval, over = sys.getswitchinterval(), threading.Event()
    collected = lambda *_: sum(range(2000))  # noqa: E731

    def make_loggers():
        while not over.is_set() and (n := len(logging.root.manager.loggerDict)) < 10_000:
            logging.getLogger(f"theirs.{n}")

    thread = threading.Thread(target=make_loggers)
    try:
        sys.setswitchinterval(1e-6)
        gc.callbacks.append(collected)
        thread.start()
        while thread.is_alive():
            process_state.loggers()
    finally:
        gc.callbacks.remove(collected)
        over.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_what_a_task_sets_for_itself_stays(monkeypatch):
    monkeypatch.delenv("ITS_OWN", raising=False)
    before = sys.path[:]
    with process_state.preserve_state() as changed:
        os.environ.update(ITS_OWN="1", SLURM_JOB_ID="1")
        sys.path.insert(0, "/its/own")
        random.seed(3)
    assert (os.environ.get("ITS_OWN"), os.environ.get("SLURM_JOB_ID")) == ("1", None)
    assert sys.path == [*before, "/its/own"]  # modules of the run are looked for where they were
    assert sorted(changed) == ["environment variables", "sys.path"]
    sys.path.remove("/its/own")


def test_a_file_that_a_task_misses_is_named_with_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make(RUDE)
    missed = lambda *_, **__: Path("model.xml").read_text()  # noqa: E731
    monkeypatch.setattr(type(env.layers[-1]), "reset", missed)
    with pytest.raises(TaskError, match=f"'model.xml'.* looked for in {tmp_path}"):
        probe.probe(env)


RENDERS = """
import os
from esac_mpi.envs import TaskError, make
for id in ("Pendulum-v1", "HalfCheetah-v5", "dm_control/cartpole-balance-v0"):
    make(id).reset(0)
try:
    make("dm_control/quadruped-escape-v0")
except TaskError as error:
    print(error)
print(os.environ["MUJOCO_GL"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["osmesa", "nonsense"])
def test_a_renderer_that_is_not_there_ends_no_training(by):
    variables = {"MUJOCO_GL": by, "PATH": "", "LD_LIBRARY_PATH": ""}
    said = finish([sys.executable, "-c", RENDERS], **variables).stdout
    assert said.splitlines()[-1] == by
    assert by != "nonsense" or "cannot start an episode: No OpenGL" in said
