"""How a run stops: signals, the end of the batch job, hanging; and that nothing is lost by it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import (
    CYCLIC,
    CYCLIC_ES,
    EAGER,
    LEARNER,
    PATIENCE,
    ROUTINE,
    SMALL,
    SMALL_ES,
    command,
    environment,
    run,
)
from whole_runs import assert_same_run, rows_published, science, summary, wait_for

from esac_mpi.record import Run, read

pytestmark = pytest.mark.slow


def status(path: Path) -> dict:
    return json.loads((path / "status.json").read_text())


SIGNALLED = ["--task.id", "own_envs:Signalled-v0", *SMALL]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, alone):
    """Eight generations of ESAC; the steps before each part of one are in its rows."""
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    alone(*SIGNALLED, "--budget.generations", 8, "--run-dir", path)
    return path


def steps_before(path: Path, since: int, generation: int, part: str) -> int:
    """Return how many steps one process that begins after generation `since` makes before a part of
    another: its population, its SAC phase, which begins with the episodes that it plays again, its
    evaluation.
    """
    rows, kinds = science(path), ("population", "replayed", "learner", "evaluation")
    # [1 + generations] after each
    made = {kind: np.insert(rows[f"metrics/env_steps_{kind}"], 0, 0) for kind in kinds}
    done = int(sum(steps[generation - 1] - steps[since] for steps in made.values()))
    for kind in kinds[: kinds.index(part)]:
        done += int(made[kind][generation] - made[kind][generation - 1])
    assert made[part][generation] > made[part][generation - 1]
    return done + Run.open(path).provenance["probe_steps"]


def test_a_second_signal_gives_a_generation_up_wherever_it_is_and_it_is_made_again(
    uninterrupted, tmp_path, monkeypatch, together
):
    phases = np.flatnonzero(science(uninterrupted)["metrics/sac_phase"]) + 1
    path, stopped = tmp_path / "run", 0
    monkeypatch.setenv("SIGNALS", "2")
    learning = int(phases[phases > 2][0])
    for part, generation in (
        ("population", 3),
        ("replayed", learning),
        ("learner", learning),
        ("evaluation", 6),
    ):
        monkeypatch.setenv(
            "SIGNAL_AT", str(steps_before(uninterrupted, stopped, generation, part) + 7)
        )
        done = run(1, *SIGNALLED, "--budget.generations", 8, "--run-dir", path, code=75)
        stopped = generation if part == "evaluation" else generation - 1
        assert f"stopped at generation {stopped} (" in done.stdout
        assert (status(path)["status"], status(path)["generation"]) == ("requeue", stopped)
        assert len(science(path)["metrics/generation"]) == generation - 1
        assert any(name.startswith("pending/") for name in read(path / "checkpoint.h5")[0]) == (
            part == "evaluation"
        )
    monkeypatch.delenv("SIGNAL_AT")
    together(2, *SIGNALLED, "--budget.generations", 8, "--run-dir", path)
    assert_same_run(uninterrupted, path)


def test_a_sac_run_gives_its_phase_up_too(tmp_path, monkeypatch, alone, together):
    halves = [
        "--algorithm=sac",
        "--task.id=own_envs:Signalled-v0",
        *LEARNER,
        *ROUTINE,
        "--sac.steps_per_generation=70",
    ]
    alone(*halves, "--budget.generations", 5, "--run-dir", tmp_path / "straight")
    monkeypatch.setenv("SIGNALS", "2")
    monkeypatch.setenv("SIGNAL_AT", str(100 + 70 * 3 + 4 * 30 + 20))  # in the fourth or fifth phase
    done = run(1, *halves, "--budget.generations", 5, "--run-dir", tmp_path / "run", code=75)
    assert re.search("stopped at generation [34]", done.stdout)
    monkeypatch.delenv("SIGNAL_AT")
    together(2, *halves, "--budget.generations", 5, "--run-dir", tmp_path / "run")
    assert_same_run(tmp_path / "straight", tmp_path / "run")


def test_one_ranks_signals_stop_all_and_a_third_ends_at_once(
    uninterrupted, tmp_path, monkeypatch, together
):
    path = tmp_path / "run"
    monkeypatch.setenv("SIGNAL_AT", "350")
    # of whichever rank comes there first; each start goes on with the run
    for signals, code in ((1, 75), (2, 75), (3, 1)):
        monkeypatch.setenv("SIGNALS", str(signals))
        done = run(3, *SIGNALLED, "--budget.generations", 8, "--run-dir", path, code=code)
        wait_for(lambda said=("requeue" if code == 75 else "dead"): summary(path)["status"] == said)
        assert "ended without a word" not in done.stdout
        assert ("third signal" in done.stderr) == (signals == 3)
    monkeypatch.delenv("SIGNAL_AT")
    done = together(2, *SIGNALLED, "--budget.generations", 8, "--run-dir", path)
    assert "ended without a word" in done.stdout
    assert_same_run(uninterrupted, path)


def test_sigterm_does_not_wait_for_a_long_generation(tmp_path, start, monkeypatch, alone, together):
    arguments = [
        "--task.id=own_envs:Slow-v0",
        *SMALL_ES,
        "--stop.grace_seconds=0.5",
        "--budget.generations=2",
    ]
    alone(*arguments, "--run-dir", tmp_path / "straight")
    monkeypatch.setenv("SLOW", "10.0")  # a generation takes longer than any test
    process = start(2, *arguments, "--run-dir", tmp_path / "run", program=EAGER)
    wait_for(
        lambda: (
            (tmp_path / "run/status.json").exists()
            and status(tmp_path / "run")["status"] == "running"
        )
    )
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, errors
    assert (status(tmp_path / "run")["status"], status(tmp_path / "run")["generation"]) == (
        "requeue",
        0,
    )  # not at its end
    monkeypatch.setenv("SLOW", "0")
    together(3, *arguments, "--run-dir", tmp_path / "run")
    assert_same_run(tmp_path / "straight", tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGXCPU, signal.SIGHUP])
def test_what_batch_systems_and_terminals_send_saves_and_ends_with_75(tmp_path, number):
    path = tmp_path / "run"
    line = command(0, *CYCLIC_ES, "--budget.generations", 100_000, "--run-dir", path, program=EAGER)
    pid, terminal = pty.fork()  # the terminal of a person who goes away
    if pid == 0:
        signal.signal(number, signal.SIG_DFL)  # these tests may be under nohup themselves
        os.execve(line[0], line, environment())
    try:
        wait_for(lambda: os.read(terminal, 1000) and rows_published(path) >= 3)
        if number != signal.SIGHUP:
            os.kill(pid, number)
        os.close(terminal)  # the kernel sends SIGHUP, and who writes there meets an error
        wait_for(lambda: status(path)["status"] == "requeue", 60)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 75


def test_a_signal_before_the_first_generation_writes_a_whole_state_or_nothing(tmp_path, start):
    for number, pause in enumerate((0.5, 1.0, 1.5)):
        path = tmp_path / str(number)
        process = start(2, *CYCLIC, "--budget.generations", 100_000, "--run-dir", path)
        time.sleep(pause)
        errors = signalled_until_it_ends(process)
        if process.returncode == 75:
            assert "Traceback" not in errors
            assert not path.exists() or status(path)["status"] == "requeue"
        else:
            assert not path.exists()  # the signal came before Python could hear it


def signalled_until_it_ends(process) -> str:
    """Signal a run, ever more seldom; a launcher loses what comes before it has started its
    processes. Return stderr.
    """
    for pause in (8, 60, 120, 160):  # a third signal heard would end it unsaved
        process.send_signal(signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=pause)[1]
    raise TimeoutError


def test_max_hours_ends_a_run_in_time_and_saved(tmp_path):
    for seconds in (6, 60, 250):  # on a busy machine the start alone may take the first of them
        path = tmp_path / str(seconds)
        run(
            2,
            *CYCLIC_ES,
            f"--budget.generations={10**6}",
            f"--max-hours={seconds / 3600}",
            f"--run-dir={path}",
            code=75,
        )
        if not path.exists():
            continue
        assert status(path)["status"] == "requeue"
        if status(path)["generation"] > 0:
            return
    raise AssertionError("no generation in 250 s")


def test_a_generation_that_outlasts_the_job_is_given_up_whatever_max_hours_says(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SLOW", "10.0")
    slow = ["--task.id", "own_envs:Slow-v0", *SMALL_ES, "--budget.generations", 5]

    def begun(path, seconds):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + seconds))
        run(1, *slow, "--max-hours", 1, "--run-dir", path, code=75)

    path = in_a_job_that_is_long_enough(tmp_path, begun)
    assert (status(path)["status"], status(path)["generation"]) == ("requeue", 0)


def in_a_job_that_is_long_enough(folder, begun):
    """Make a run in ever longer jobs, until its start is over in time; return its directory."""
    for seconds in (9, 60, 250):
        begun(path := folder / str(seconds), seconds)
        if path.exists():
            return path
    raise AssertionError("no start in 250 s")


def test_the_job_ends_when_an_environment_hangs_and_says_where(tmp_path):
    path = tmp_path / "run"
    arguments = [
        "--task.id=own_envs:Stuck-v0",
        "--algorithm=es",
        "--es.population_size=10",
        "--policy.hidden",
        8,
        8,
    ]
    # es: a set-up without torch is well below
    arguments += ["--stop.member_minutes=0.2", f"--budget.generations={10**5}"]
    # the environment would sleep for longer than this waits
    done = run(2, *arguments, f"--run-dir={path}", code=None)
    assert done.returncode != 0
    assert re.search(
        r"rank \d on \S+ hangs: .* for 0.2 minutes \(stop.member_minutes\), generation \d",
        done.stderr,
    )
    assert re.search(r"own_envs.py\", line \d+ in step", done.stderr)
    wait_for(lambda: summary(path)["status"] == "dead")  # a launcher may end before its ranks
    read(path / "checkpoint.h5")


def test_starts_without_progress_end_as_failed_and_a_person_may_try_again(tmp_path, monkeypatch):
    path = tmp_path / "run"
    arguments = [
        "--task.id=own_envs:Signalled-v0",
        *SMALL_ES,
        "--stop.starts=2",
        f"--run-dir={path}",
    ]
    arguments += ["--budget.generations", 2]
    monkeypatch.setenv("SIGNALS", "2")
    monkeypatch.setenv("SIGNAL_AT", "120")
    run(1, *arguments, code=75)
    assert status(path)["status"] == "requeue"
    done = run(1, *arguments, code=1)
    assert status(path)["status"] == "failed"
    assert "2 starts in a row" in done.stdout + done.stderr
    monkeypatch.setenv("SIGNALS", "3")  # and some that die without a word
    run(1, *arguments, code=1)
    run(1, *arguments, code=1)
    wait_for(lambda: summary(path)["status"] == "dead")  # a launcher may end before its ranks
    done = run(1, *arguments, code=1)
    assert "2 starts in a row without a new checkpoint" in done.stderr
    assert status(path)["status"] == "failed"
    monkeypatch.delenv("SIGNAL_AT")
    run(1, *arguments)
    assert status(path)["status"] == "complete"


def test_rank_0_killed_is_dead(tmp_path, start):
    path = tmp_path / "run"
    arguments = [*CYCLIC_ES, "--budget.generations", 10**5, "--run-dir", path]
    process = start(2, *arguments, program=EAGER)
    wait_for(lambda: rows_published(path) >= 3)
    os.kill(status(path)["pid"], signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    wait_for(lambda: summary(path)["status"] == "dead")  # a launcher may end before its ranks


def test_a_second_run_in_the_same_directory_is_refused_and_the_first_goes_on(tmp_path, start):
    path = tmp_path / "run"
    arguments = [*CYCLIC_ES, "--budget.generations", 10**5, "--run-dir", path]
    process = start(2, *arguments, program=EAGER)
    wait_for(lambda: rows_published(path) >= 3)
    assert summary(path)["status"] == "running"
    done = run(2, *arguments, code=2)
    assert (
        f"in use by another run: host {status(path)['host']}, pid {status(path)['pid']}"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    made = rows_published(path)
    wait_for(lambda: rows_published(path) > made)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=300)
    assert (process.returncode, status(path)["status"]) == (75, "requeue")


def test_max_hours_reaches_every_node(tmp_path, monkeypatch):
    monkeypatch.setenv("SLOW", "1.0")
    monkeypatch.setenv("NODES", "2")
    # minutes a generation, if a node finishes its share
    many = [*SMALL_ES, "--es.population_size=200"]
    slow = ["--task.id", "own_envs:Slow-v0", *many, "--budget.generations", 5]

    def begun(path, seconds):
        run(2, *slow, "--max-hours", seconds / 3600, "--run-dir", path, code=75, program=EAGER)

    path = in_a_job_that_is_long_enough(tmp_path, begun)
    assert (status(path)["status"], status(path)["generation"]) == ("requeue", 0)


@pytest.mark.parametrize("broken", ["closed", "full"])
def test_an_error_ends_the_job_also_where_nobody_reads_it(tmp_path, broken):
    arguments = [
        "--task.id=own_envs:Raising-v0",
        *SMALL_ES,
        f"--budget.generations={10**4}",
        f"--run-dir={tmp_path / 'run'}",
    ]
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
    line = [sys.executable, "-m", "esac_mpi", *map(str, arguments)]
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    assert process.wait(300) != 0
    assert Run.open(tmp_path / "run").state == "failed"


def test_a_suspended_job_is_no_hanging_one(tmp_path, start):
    path = tmp_path / "run"
    arguments = [*CYCLIC_ES, "--run-dir", path]
    arguments += ["--stop.member_minutes", 0.1, "--budget.generations", 10**5]
    process = start(0, *arguments, program=EAGER)
    wait_for(lambda: rows_published(path) >= 3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(8)  # more than the 6 s that a member may take
    process.send_signal(signal.SIGCONT)
    made = rows_published(path)
    wait_for(lambda: rows_published(path) > made + 5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 75


def test_all_ranks_but_a_few_may_have_nothing_to_do(tmp_path, alone):
    few = [*CYCLIC, "--esac.population_size", 4, "--budget.generations", 4]
    alone(*few, "--run-dir", tmp_path / "one")
    run(7, *few, "--run-dir", tmp_path / "seven")
    assert_same_run(tmp_path / "one", tmp_path / "seven")


def test_a_learner_that_breaks_ends_the_run_in_one_line_and_leaves_the_checkpoint(tmp_path):
    broken = [
        *CYCLIC,
        "--sac.temperature=1e+308",
        "--budget.generations=50",
        f"--run-dir={tmp_path / 'run'}",
    ]
    done = run(2, *broken, code=1)
    assert len([line for line in done.stderr.splitlines() if "finite" in line]) == 1
    assert "Traceback" not in done.stderr
    assert summary(tmp_path / "run")["status"] == "failed"
    read(tmp_path / "run/checkpoint.h5")
