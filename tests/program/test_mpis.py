"""The promises under both MPIs, on one node and on two.

The same bits, stops and losses that the run survives.

The second node is made by tests/support/fakessh. One kernel serves both: /dev/shm is shared in
truth, the network is loopback, a node's loss is a daemon's, and clocks and file systems agree. Real
networks, real node failures and RDMA are not tested here.
"""

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from functools import cache
from pathlib import Path

import launchers
import pytest
from conftest import CYCLIC, SMALL_ES
from launchers import launcher, missing, parent, pids, python
from whole_runs import assert_same_run, status, wait_for

from esac_mpi.record import read

pytestmark = pytest.mark.slow

SHORT, LONG = 20, 80  # generations; LONG is more than the interrupted parts of a run ever make
DOWN = 60.0  # within which a job must be gone, long before its generation ends [s]


@pytest.fixture(autouse=True)
def available(request):
    """Skip, with the reason, what cannot be started here."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    nodes = 2 if "two_nodes" in request.node.name else 1
    for mpi in {parameters.get("mpi", "openmpi"), parameters.get("library", "mpich")}:
        if reason := missing(mpi, nodes):
            pytest.skip(reason)


@pytest.fixture(scope="module")
def straight(tmp_path_factory, alone):
    """Return the run of so many generations on one process under MPICH, from start to end."""

    @cache
    def made(generations: int) -> Path:
        path = tmp_path_factory.mktemp("straight") / "run"
        alone(*CYCLIC, "--budget.generations", generations, "--run-dir", path)
        return path

    return made


@pytest.fixture
def begin(tmp_path):
    """Start a run without end in tmp_path/run; wait until it has made and saved generations."""
    path, jobs = tmp_path / "run", []

    def launch(mpi: str, ranks: int, nodes: int = 1) -> subprocess.Popen:
        before = generation(path)
        line = [*program(mpi, ranks, nodes), *CYCLIC, "--budget.generations", "1000000"]
        said = tmp_path / f"output-{len(jobs)}"
        with open(said, "w") as output:
            streams = {"stdout": output, "stderr": output, "env": launchers.environment()}
            job = subprocess.Popen([*line, "--run-dir", path], **streams, start_new_session=True)
        jobs.append(job)
        begun = lambda: generation(path) >= before + 5 or job.poll() is not None  # noqa: E731
        wait_for(begun)
        assert job.poll() is None, said.read_text()
        assert sorted(pids(path)) == list(range(ranks))
        return job

    yield launch
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    for pid in pids(path).values():
        os.kill(pid, signal.SIGKILL)


def program(mpi: str, ranks: int, nodes: int = 1, library: str = "") -> list[str]:
    return [*launcher(mpi, ranks, nodes), python(library or mpi), "-m", "esac_mpi"]


def finish(mpi: str, ranks: int, path: Path, nodes: int = 1, generations: int = LONG) -> str:
    words = [*CYCLIC, "--budget.generations", generations, "--run-dir", path]
    return launchers.run(program(mpi, ranks, nodes), *words).stdout


def generation(path: Path) -> int:
    return status(path)["generation"]


def assert_down(job: subprocess.Popen, path: Path) -> int:
    """Wait until launcher and ranks are gone; return the launcher's exit code."""
    gone = lambda: job.poll() is not None and not pids(path)  # noqa: E731
    wait_for(gone, DOWN)
    return job.returncode


def assert_stops(job: subprocess.Popen, path: Path, codes: set[int]) -> None:
    """Send USR1 to the launcher; the run must be saved and ended, with one of the exit codes."""
    job.send_signal(signal.SIGUSR1)
    wait_for(lambda: status(path)["status"] == "requeue")
    assert assert_down(job, path) in codes


@pytest.mark.parametrize("ranks", [1, 3])
def test_openmpi_gives_the_bits_of_mpich(straight, tmp_path, ranks):
    output = finish("openmpi", ranks, tmp_path / "run", generations=SHORT)
    assert f"  {ranks} rank(s) on 1 node(s)" in output
    assert "Open MPI v" in output
    assert_same_run(straight(SHORT), tmp_path / "run")


def test_a_run_survives_a_change_of_mpi_a_killed_rank_and_a_stop(straight, tmp_path, begin):
    job = begin("mpich", 2)
    os.killpg(job.pid, signal.SIGKILL)
    assert_down(job, tmp_path / "run")
    job = begin("openmpi", 3)
    os.kill(pids(tmp_path / "run")[2], signal.SIGKILL)
    assert assert_down(job, tmp_path / "run") != 0
    assert status(tmp_path / "run")["status"] == "running"  # as it died
    job = begin("openmpi", 2)
    assert_stops(job, tmp_path / "run", {75})
    assert "resumed at generation" in finish("mpich", 3, tmp_path / "run")
    assert_same_run(straight(LONG), tmp_path / "run")


@pytest.mark.parametrize(("mpi", "times"), [("mpich", 2), ("openmpi", 1)])
def test_ctrl_c_so_many_times_ends_the_ranks(tmp_path, monkeypatch, mpi, times):
    """What README and docs/how-to/clusters.md say of each; the checkpoint stands."""
    monkeypatch.setenv("SLOW", "1.0")  # a generation takes minutes
    path, (terminal, end) = tmp_path / "run", pty.openpty()
    line = [*program(mpi, 2), "--task.id=own_envs:Slow-v0", *SMALL_ES, "--run-dir", path]
    with open(tmp_path / "output", "w") as output:
        streams = {"stdin": end, "stdout": output, "stderr": output}
        streams |= {"env": launchers.environment(), "start_new_session": True}
        job = subprocess.Popen(line, **streams, preexec_fn=take_terminal)
    os.close(end)
    wait_for(lambda: status(path)["status"] == "running")
    for time_typed in range(times):
        assert job.poll() is None
        time.sleep(2.0 * time_typed)  # two within a second are one
        os.write(terminal, b"\x03")
    saved = assert_down(job, path) == 75  # a race: the ranks may be quicker than what kills them
    os.close(terminal)
    assert status(path)["status"] in (("requeue",) if saved else ("running", "requeue"))
    read(path / "checkpoint.h5")


def take_terminal() -> None:
    """Make stdin the terminal of this session, and hear Ctrl-C where the tests do not."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_a_run_on_two_nodes_survives_kills_and_a_stop(straight, tmp_path, begin, mpi):
    path = tmp_path / "run"
    job = begin(mpi, 4, nodes=2)
    ranks = pids(path)
    hosts = {r: os.stat(f"/proc/{pid}/ns/uts").st_ino for r, pid in ranks.items()}
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    os.kill(ranks[3], signal.SIGKILL)
    assert assert_down(job, path) != 0

    job = begin(mpi, 4, nodes=2)
    os.kill(parent(pids(path)[2]), signal.SIGKILL)
    if mpi == "openmpi":
        # its mpirun sends TERM, KILL 0.25 s later, and returns 0: status.json tells that it is not
        # finished
        assert assert_down(job, path) in (0, 1)
        assert status(path)["status"] in ("running", "requeue")  # killed, or quick enough to save
    else:
        # its ranks know nothing of it and go on; a signal to mpirun still reaches the other node,
        # and so all
        reached = generation(path)
        wait_for(lambda: generation(path) > reached)  # without the daemon
        assert job.poll() is None
        assert_stops(job, path, {75, 255})

    assert_stops(begin(mpi, 4, nodes=2), path, {75})
    output = finish(mpi, 4, path, nodes=2)
    assert "4 rank(s) on 2 node(s): node2, node3" in output
    assert "resumed at generation" in output
    assert_same_run(straight(LONG), path)


@pytest.mark.parametrize(
    ("mpi", "library", "code", "message"),
    [
        ("mpich", "openmpi", 2,
         "PMI_SIZE = 2, but this process is alone: the launcher belongs to another MPI"),
        # MPICH itself ends there, before a line of ours
        ("openmpi", "mpich", 16, "unsupported PMI version PMIx"),
    ],
)  # fmt: skip
def test_a_launcher_of_another_mpi_is_refused(tmp_path, mpi, library, code, message):
    words = [*CYCLIC, "--budget.generations=2", f"--run-dir={tmp_path / 'run'}"]
    done = launchers.run(program(mpi, 2, library=library), *words, code=code)
    assert message in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
