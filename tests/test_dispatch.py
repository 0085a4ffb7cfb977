"""Tasks on ranks without a barrier: told alike on any number, paused and gone on with, left when a rank's time is over."""

import json
import subprocess
import time
from random import Random
from types import SimpleNamespace

import pytest
from conftest import command, environment
from mpi4py import MPI
from test_agenda import queue

from esac_mpi.agenda import Agenda
from esac_mpi.comm.dispatch import Dispatch
from esac_mpi.stop import Stop
from esac_mpi.watchdog import Watchdog


def dispatched(ranks, *arguments):
    line = command(ranks, *arguments, program=("tests/dispatched.py",))
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def lasts(worker, number):
    """Return the duration of a task of dispatched.py."""
    return Random(100 * worker + number).choice((5, 30, 31, 90, 200)) + 50 * (worker == 3)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_tasks_are_told_as_by_an_event_queue_on_any_number_of_ranks(ranks):
    found = dispatched(ranks)
    assert [(worker, end) for worker, _, end in found["told"]] == queue(lasts, 4, 24)
    assert found["overs"] == [[False] * 4] * ranks
    assert all(busy > 0 for busy in found["busy"][:4])  # rank 0 has a task of its own, others three


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_whose_time_is_over_ends_the_section_for_all(rank):
    assert dispatched(3, rank)["overs"] == [[False, False, True]] * 3


@pytest.mark.parametrize("alarmed", [False, True])
def test_what_is_overdue_has_no_further_slice_and_an_alarm_cuts_the_one_that_is_under_way(alarmed):
    stop, slices = Stop(time.monotonic, lambda: None), []

    def work(order):
        while True:
            slices.append("begun")
            stop.give_up_at(time.monotonic())
            if alarmed:
                time.sleep(10)
            slices.append("ended")
            yield 1

    agenda = Agenda()
    agenda.give(0, 0, None)
    dispatch = Dispatch(MPI.COMM_SELF, stop, Watchdog("", lambda words: None), time.monotonic, work)
    dispatch.leader = SimpleNamespace(agenda=agenda)
    if alarmed:
        stop.listen()
    try:
        assert dispatch.go_on()
    finally:
        stop.let_go()
        dispatch.free()
    assert slices == (["begun"] if alarmed else ["begun", "ended"])
