"""Signals, times and the watchdog, each alone."""

import math
import os
import signal
import time
from contextlib import suppress
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from esac_mpi.host import batch_system
from esac_mpi.host.stop import SIGNALS, WARNINGS, Stop, stop_signals
from esac_mpi.host.watchdog import Watchdog


@pytest.fixture
def stop(monkeypatch):
    """A Stop that hears signals, and merges only what is very close."""
    monkeypatch.setattr("esac_mpi.host.stop.SAME", 0.05)
    before = {number: signal.getsignal(number) for number in (*SIGNALS, *WARNINGS, signal.SIGALRM)}
    for number in WARNINGS:  # these tests may be under nohup themselves
        signal.signal(number, signal.SIG_DFL)
    aborted = []
    one = Stop(time.monotonic, lambda: aborted.append(True))
    one.aborted = aborted
    one.listen()
    yield one
    one.end()
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int, pause: float = 0.1) -> None:
    signal.raise_signal(number)
    time.sleep(pause)


def test_one_signal_is_a_wish_two_give_up_three_abort(stop):
    seen = []

    def work():
        for number in range(3):
            send(signal.SIGUSR1, 300 if number else 0.1)
            seen.append(number)

    assert not stop.wished
    assert not stop.carry_out(work)  # the second one ends it
    assert (seen, stop.wished, stop.overdue) == ([0], True, True)
    assert not stop.carry_out(lambda: seen.append("never"))
    assert not stop.aborted
    time.sleep(0.1)
    send(signal.SIGUSR1)
    assert stop.aborted
    assert seen == [0]


def test_sigterm_alone_gives_a_generation_a_grace(stop):
    stop.grace = 0.3
    assert stop.carry_out(lambda: send(signal.SIGUSR1, 0.5))
    sent = time.monotonic()

    def work():
        send(signal.SIGTERM, 300)

    stop._heard.clear()
    assert not stop.carry_out(work)
    assert time.monotonic() - sent >= 0.3  # its grace, at least


@pytest.mark.parametrize("number", [*SIGNALS, *WARNINGS])
def test_a_signal_that_is_sent_twice_at_once_is_one(stop, monkeypatch, number):
    monkeypatch.setattr("esac_mpi.host.stop.SAME", 300.0)
    assert stop.carry_out(lambda: (send(number), send(number), send(number)))
    assert stop.wished
    assert not stop.overdue


def test_the_limit_of_processor_time_is_one_wish(stop):
    stop.grace = 300.0
    # 0.06 s apart: more than the same signal
    assert stop.carry_out(lambda: [send(signal.SIGXCPU, 0.06) for _ in range(3)])
    assert stop.wished
    stop.grace = 0.1
    assert not stop.carry_out(lambda: send(signal.SIGXCPU, 300))
    assert not stop.aborted


@pytest.mark.parametrize("number", WARNINGS)
def test_a_warning_is_left_to_nohup_and_to_the_program_around_us(stop, number):
    # also inside a search, which hears them itself
    assert {*stop_signals()} == {*SIGNALS, *WARNINGS}
    stop.let_go()
    for handler in (signal.SIG_IGN, lambda given, frame: None):
        signal.signal(number, handler)
        stop.listen()
        assert signal.getsignal(number) is handler
        send(number)
        assert not stop.wished
        stop.let_go()


def test_what_is_swallowed_is_given_up_all_the_same(stop):
    def work():
        send(signal.SIGUSR1)
        with suppress(BaseException):  # as a destructor does
            send(signal.SIGUSR1, 300)
        time.sleep(300)
        pytest.fail("nothing came after what was swallowed")

    assert not stop.carry_out(work)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("59", 59), ("10:00", 600), ("2:00:00", 7200), ("1-02:03:04", 93784),
     ("1:02:03:04", 93784), ("2:00:00.50", 7200.5), ("UNLIMITED", math.inf), ("", math.inf)],
)  # fmt: skip
def test_times_as_schedulers_write_them(text, seconds):
    assert batch_system.clock_time(text) == seconds


JOB, INF = {"SLURM_JOB_ID": "7"}, math.inf
# of an array's last job, or a heterogeneous one's first
SEVERAL = "8 9:59\n7 1:00:00\n9 INVALID\n\n"
USED = "    Resource_List.walltime = 12:00:00\n    resources_used.walltime = 00:10:00\n"


@pytest.mark.parametrize(
    ("variables", "answer", "left"),
    [
        ({}, "", INF),
        (JOB, "7 1:00:00\n", 3600),
        (JOB, SEVERAL, 3600),
        ({"SLURM_JOB_ID": "6"}, SEVERAL, INF),
        ({"SLURM_JOB_ID": "", "PBS_JOBID": ""}, "never", INF),
        ({"PBS_JOBID": "7.host"}, USED, 12 * 3600 - 600),
        ({"PBS_JOBID": "7.host"}, "qstat: Unknown Job Id", INF),
        *(
            ({"PBS_JOBID": "7.host"}, USED.replace("00:10:00", odd), 12 * 3600)
            for odd in ("-00:00:03", "unset")
        ),
        ({"PBS_JOBID": "7.host"}, USED.replace("12:00:00", "infinite"), INF),
        ({"PBS_JOBID": "7.host"}, USED.replace(":00\n", ":x\n"), INF),
        # one left over
        ({"SLURM_JOB_ID": "6", "PBS_JOBID": "7.host"}, "Resource_List.walltime = 2:00:00", 7200),
        # rank 0's clock alone decides
        *((JOB | {name: "3"}, "7 1:00:00", INF) for name in batch_system.RANKS),
        *((JOB | {name: "0"}, "7 1:00:00", 3600) for name in batch_system.RANKS),
        *((JOB | {"SLURM_JOB_END_TIME": odd}, SEVERAL, 3600) for odd in ("", "x", "nan", "-5")),
    ],
)
def test_what_the_batch_system_leaves(variables, answer, left):
    asked = []
    assert batch_system.seconds_left(variables, lambda line: asked.append(line) or answer) == left
    assert variables != JOB or asked == [["squeue", "-h", "-j", "7", "-o", "%A %L"]]


def test_what_a_job_that_knows_its_end_leaves(monkeypatch):
    now = 1_800_000_000
    monkeypatch.setattr(time, "time", lambda: float(now))
    end = {"SLURM_JOB_END_TIME": str(now + 1000)}
    no_such = {"SLURM_JOB_START_TIME": str(now + 1050)}
    odd = [{"SLURM_JOB_START_TIME": text} for text in ("", "Unknown", "nan", "-5")]
    for more in (JOB, no_such, *odd):
        assert batch_system.seconds_left(end | more) == 1000
    # of the clock of this node
    assert batch_system.seconds_left(end | {"SLURM_JOB_START_TIME": str(now + 400)}) == 600
    assert batch_system.seconds_left(JOB) == INF  # no such command here
    for past, left in ((30, -30), (7200, INF)):  # its last seconds; another job's
        alone = {"SLURM_JOB_END_TIME": str(now - past)}
        assert batch_system.seconds_left(alone) == INF  # of no job
        assert batch_system.is_stale(alone)
        found = alone | JOB
        assert batch_system.seconds_left(found, lambda line: "") == left
        assert bool(batch_system.is_stale(found)) == (left == INF)
        told = batch_system.seconds_left(found, lambda line: "7 1:00:00")
        assert told == (3600 if left == INF else left)


def test_what_a_batch_system_shows_may_be_in_any_encoding(tmp_path, monkeypatch):
    (tmp_path / "qstat").write_bytes(
        b"#!/bin/sh\nprintf 'Job_Name = l\\344ufe\\nResource_List.walltime = 01:00:00\\n'\n"
    )
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert batch_system.seconds_left({"PBS_JOBID": "7.host"}) == 3600


@pytest.mark.parametrize(
    ("waiting", "name"), [(False, "stop.member_minutes"), (True, "stop.silent_minutes")]
)
def test_the_watchdog_names_what_hangs_and_how_long_it_may(waiting, name):
    """A tick is a fifth of the limits; something happens in each."""
    said = []
    dog = Watchdog("rank 3 on host", said.append)
    dog.member_limit = dog.silence_limit = 0.6
    dog.generation = 12
    dog.works_on("item 4 of 50")
    hangs = dog.waits if waiting else lambda: dog.works_on("item 5 of 50")
    moments = iter([*[dog.beat] * 20, dog.rests, *[lambda: None] * 20, hangs, *[lambda: None] * 9])

    def ticks(seconds):
        moment = next(moments)
        if not said:
            moment()
        return bool(said)

    dog._over = SimpleNamespace(wait=ticks)
    dog._look()
    what = "waiting for other ranks" if waiting else "item 5 of 50"
    assert f"rank 3 on host hangs: {what} for 0.01 minutes ({name}), generation 12" in said[0]
    assert ", line " in said[0]  # its stack
    assert 2 <= len([*moments]) <= 4  # no tick before the sixth


def test_a_watchdog_without_limits_is_no_thread():
    dog = Watchdog("rank 0", lambda words: None)
    dog.watch()
    assert dog._thread is None


@pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGXCPU])
def test_a_grace_holds_also_just_after_another_signal(stop, last):
    stop.grace = 0.2

    def work():
        send(signal.SIGHUP)
        send(last)
        time.sleep(30)

    assert not stop.carry_out(work)


def test_a_child_process_that_is_terminated_ends_after_the_grace(stop):
    stop.grace = 0.5
    forking = get_context("fork")
    here, there = forking.Pipe()
    child = forking.Process(target=lambda: (there.send("ready"), time.sleep(60)))
    child.start()
    here.recv()  # Python drops what a child hears before it has begun
    os.kill(child.pid, signal.SIGUSR1)  # as to all processes of a job
    child.terminate()
    child.join(0.2)
    alive = child.is_alive()  # its rank may have had the signal, too
    child.join(10)
    ended = child.exitcode
    child.kill()
    assert (alive, ended, stop.wished) == (True, -signal.SIGALRM, False)
