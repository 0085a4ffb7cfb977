"""How a run stops: signals, the end of the batch job, hanging; and that nothing is lost by it."""

import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import CYCLIC, CYCLIC_ES, EAGER, SMALL, SMALL_ES, command, environment, finish, run
from whole_runs import assert_same_run, ended, rows_published, science, status, summary, wait_for

from esac_mpi.record import Run, read

pytestmark = pytest.mark.slow

ENDLESS = ["--budget.generations", 10**6]
EIGHT = [*"--task.id own_envs:Signalled-v0 --budget.generations 8".split(), *SMALL]
SLOW_ES = ["--task.id", "own_envs:Slow-v0", *SMALL_ES]


def stopped_at(path: Path) -> tuple[str, int]:
    said = status(path)
    return said["status"], said["generation"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, alone):
    """Eight generations of ESAC; the steps before each part of one are in its rows."""
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    alone(*EIGHT, "--run-dir", path)
    return path


def steps_before(path: Path, since: int, generation: int, part: str) -> int:
    """Return how many steps one process makes before a part of a generation.

    It begins after generation `since`. The parts: its population, its SAC phase, which begins with
    the episodes that it plays again, its evaluation.
    """
    rows, kinds = science(path), ("population", "replayed", "learner", "evaluation")
    # [1 + generations] after each
    made = {kind: np.insert(rows[f"metrics/env_steps_{kind}"], 0, 0) for kind in kinds}
    done = int(sum(steps[generation - 1] - steps[since] for steps in made.values()))
    for kind in kinds[: kinds.index(part)]:
        done += int(made[kind][generation] - made[kind][generation - 1])
    assert made[part][generation] > made[part][generation - 1]
    return done + Run.open(path).provenance["probe_steps"]


@pytest.fixture
def signalled(monkeypatch):
    """Say how often a process signals itself at which of its steps."""

    def at(step: int, signals: int) -> None:
        monkeypatch.setenv("SIGNAL_AT", str(step))
        monkeypatch.setenv("SIGNALS", str(signals))

    return at


def test_a_second_signal_gives_a_generation_up_wherever_it_is(
    uninterrupted, tmp_path, signalled, alone, together
):
    phases = np.flatnonzero(science(uninterrupted)["metrics/sac_phase"]) + 1
    learning = int(phases[phases > 2][0])
    parts = {"population": 3, "replayed": learning, "learner": learning, "evaluation": 6}
    path, stopped = tmp_path / "run", 0
    for part, generation in parts.items():
        signalled(steps_before(uninterrupted, stopped, generation, part) + 7, 2)
        done = alone(*EIGHT, "--run-dir", path, code=75)
        stopped = generation if part == "evaluation" else generation - 1
        assert f"stopped at generation {stopped} (" in done.stdout
        assert stopped_at(path) == ("requeue", stopped)
        assert len(science(path)["metrics/generation"]) == generation - 1
        pending = [n for n in read(path / "checkpoint.h5")[0] if n.startswith("pending/")]
        assert bool(pending) == (part == "evaluation")
    signalled(0, 2)
    together(2, *EIGHT, "--run-dir", path)
    assert_same_run(uninterrupted, path)


def test_one_ranks_signals_stop_all_and_a_third_ends_at_once(
    uninterrupted, tmp_path, signalled, together
):
    path = tmp_path / "run"
    # of whichever rank comes there first; each start goes on with the run
    for signals, code in ((1, 75), (2, 75), (3, 1)):
        signalled(350, signals)
        ranks = run if signals == 3 else together  # the third ends the processes
        done = ranks(3, *EIGHT, "--run-dir", path, code=code)
        wait_for(lambda said=("requeue" if code == 75 else "dead"): summary(path)["status"] == said)
        assert "ended without a word" not in done.stdout
        assert ("third signal" in done.stderr) == (signals == 3)
    signalled(0, 2)
    done = together(2, *EIGHT, "--run-dir", path)
    assert "ended without a word" in done.stdout
    assert_same_run(uninterrupted, path)


def test_sigterm_does_not_wait_for_a_long_generation(tmp_path, start, monkeypatch, alone, together):
    line = [*SLOW_ES, "--stop.grace_seconds", 0.5, "--budget.generations", 2, "--run-dir"]
    alone(*line, tmp_path / "straight")
    monkeypatch.setenv("SLOW", "10.0")  # a generation takes longer than any test
    path = tmp_path / "run"
    process = start(2, *line, path, program=EAGER)
    wait_for(lambda: status(path)["status"] == "running")
    process.send_signal(signal.SIGTERM)
    ended(process, 75)
    assert stopped_at(path) == ("requeue", 0)  # not at its end
    monkeypatch.setenv("SLOW", "0")
    together(3, *line, path)
    assert_same_run(tmp_path / "straight", path)


def test_a_terminal_that_goes_away_saves_and_ends_with_75(tmp_path):
    path = tmp_path / "run"
    line = command(0, *CYCLIC_ES, *ENDLESS, "--run-dir", path, program=EAGER)
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may be under nohup themselves
        os.execve(line[0], line, environment())
    try:
        wait_for(lambda: os.read(terminal, 1000) and rows_published(path) >= 3)
        os.close(terminal)  # the kernel sends SIGHUP, and who writes there meets an error
        wait_for(lambda: status(path)["status"] == "requeue")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 75


def test_a_signal_at_the_start_saves_all_or_nothing(tmp_path, start):
    for pause in (0.5, 1.5):
        path = tmp_path / str(pause)
        process = start(2, *CYCLIC, *ENDLESS, "--run-dir", path)
        time.sleep(pause)
        errors = signalled_until_it_ends(process)
        if process.returncode == 75:
            assert "Traceback" not in errors
            assert not path.exists() or status(path)["status"] == "requeue"
        else:
            assert not path.exists()  # the signal came before Python could hear it


def signalled_until_it_ends(process) -> str:
    """Signal a run ever more seldom, as a launcher loses early signals; return stderr."""
    for pause in (8, 60, 120, 160):  # a third signal heard would end it unsaved
        process.send_signal(signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=pause)[1]
    raise TimeoutError


def test_a_signal_that_breaks_what_a_task_starts_is_a_stop(tmp_path):
    """As the process in which glfw looks for its library: a batch system signals all of a job."""
    (tmp_path / "sudden.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nraise ImportError('no helper')\n"
    )
    done = finish(command(0, "--task.id", "sudden:Sudden-v0"), 75, tmp_path)
    assert done.stderr == "esac_mpi: stopped before it began (SIGTERM); nothing was written\n"
    assert not (tmp_path / "runs").exists()


def test_max_hours_ends_a_run_in_time_and_saved(tmp_path, monkeypatch):
    (tmp_path / "pause").write_text("0.05")  # so that no core is busy meanwhile
    monkeypatch.setenv("PACE", str(tmp_path / "pause"))

    def begun(path, seconds):
        words = ["--max-hours", seconds / 3600, "--run-dir", path]
        run(2, "--task.id", "own_envs:Paced-v0", *SMALL_ES, *ENDLESS, *words, code=75)

    path = in_a_job_that_is_long_enough(tmp_path, begun, generation=1)
    assert status(path)["status"] == "requeue"


def test_a_run_stopped_before_its_first_generation_names_no_curve(tmp_path, alone):
    """The command would have had nothing to draw."""
    line = [*CYCLIC_ES, *ENDLESS, "--max-hours", 1e-6, "--run-dir", tmp_path / "run"]
    done = alone(*line, code=75)
    assert stopped_at(tmp_path / "run") == ("requeue", 0)
    assert "saved" in done.stdout + done.stderr
    assert "plot" not in done.stdout + done.stderr


def test_a_generation_longer_than_the_job_is_given_up_everywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SLOW", "1.0")
    monkeypatch.setenv("NODES", "2")
    # minutes a generation, if a node finishes its share
    many = [*SLOW_ES, "--es.population_size", 200, *ENDLESS]

    def begun(path, seconds):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + seconds))
        run(2, *many, "--max-hours", 1, "--run-dir", path, code=75, program=EAGER)

    assert stopped_at(in_a_job_that_is_long_enough(tmp_path, begun)) == ("requeue", 0)


def in_a_job_that_is_long_enough(folder, begun, generation=0):
    """Make a run in ever longer jobs, until its start is over in time; return its directory."""
    for seconds in (7, 60, 250):
        begun(path := folder / str(seconds), seconds)
        if path.exists() and status(path)["generation"] >= generation:
            return path
    raise AssertionError("no start in 250 s")


def test_the_job_ends_when_an_environment_hangs_and_says_where(tmp_path):
    path = tmp_path / "run"
    # es: a set-up without torch is well below the limit
    own = "--task.id own_envs:Stuck-v0 --algorithm es --es.population_size 10 --policy.hidden 8 8"
    line = [*own.split(), "--stop.member_minutes", 0.2, *ENDLESS, "--run-dir", path]
    done = run(2, *line, code=None)  # the environment would sleep for longer than this waits
    assert done.returncode != 0
    hangs = r"rank \d on \S+ hangs: .* for 0.2 minutes \(stop.member_minutes\), generation \d"
    assert re.search(hangs, done.stderr)
    assert re.search(hangs, (tmp_path / "run/log.txt").read_text())
    assert re.search(r"own_envs.py\", line \d+ in step", done.stderr)
    wait_for(lambda: summary(path)["status"] == "dead")  # a launcher may end before its ranks
    read(path / "checkpoint.h5")


def test_starts_without_progress_end_as_failed(tmp_path, signalled, alone):
    path = tmp_path / "run"
    own = "--task.id own_envs:Signalled-v0 --stop.starts 2 --budget.generations 2"
    line = [*own.split(), *SMALL_ES, "--run-dir", path]
    signalled(120, 2)
    alone(*line, code=75)
    assert status(path)["status"] == "requeue"
    done = alone(*line, code=1)
    assert status(path)["status"] == "failed"
    assert "2 starts in a row" in done.stdout + done.stderr
    signalled(120, 3)  # and some that die without a word
    run(1, *line, code=1)
    run(1, *line, code=1)
    wait_for(lambda: summary(path)["status"] == "dead")  # a launcher may end before its ranks
    done = alone(*line, code=1)
    assert "2 starts in a row without a new checkpoint" in done.stderr
    assert status(path)["status"] == "failed"
    signalled(0, 0)
    alone(*line)
    assert status(path)["status"] == "complete"


@pytest.mark.parametrize("broken", ["closed", "full"])
def test_an_error_ends_the_job_also_where_nobody_reads_it(tmp_path, monkeypatch, broken):
    path = tmp_path / "run"
    monkeypatch.setenv("FAILS", "0 1000")
    reader, writer = os.pipe()
    if broken == "closed":
        os.close(reader)
    else:
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while os.write(writer, bytes(4096)):
                pass
        os.set_blocking(writer, True)
    # no launcher, which would read it
    own = ["--task.id", "own_envs:Failing-v0", *SMALL_ES, *ENDLESS, "--run-dir", path]
    streams = {"stdout": subprocess.DEVNULL, "stderr": writer}
    process = subprocess.Popen(command(0, *own), env=environment(), **streams)
    os.close(writer)
    assert process.wait(300) != 0
    assert Run.open(path).state == "failed"


def test_a_suspended_job_is_no_hanging_one(tmp_path, start):
    path = tmp_path / "run"
    line = [*CYCLIC_ES, *ENDLESS, "--stop.member_minutes", 0.1, "--run-dir", path]
    process = start(0, *line, program=EAGER)
    wait_for(lambda: rows_published(path) >= 3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(8)  # more than the 6 s that a member may take
    process.send_signal(signal.SIGCONT)
    made = rows_published(path)
    wait_for(lambda: rows_published(path) > made + 5)
    process.send_signal(signal.SIGTERM)
    ended(process, 75)
