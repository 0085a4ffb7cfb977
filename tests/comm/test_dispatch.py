"""Tasks on ranks without a barrier: told alike on any ranks, paused, left when time is over."""

import json
import math
import time
from random import Random
from types import SimpleNamespace

import pytest
from conftest import command, finish
from event_queue import queue
from mpi4py import MPI

from esac_mpi.comm.dispatch import ORDER, PAUSE, PROGRESS, Dispatch, interval
from esac_mpi.comm.virtual_time import Agenda, Arrival, Task
from esac_mpi.host.stop import Stop
from esac_mpi.host.watchdog import Watchdog


def dispatched(ranks, *arguments):
    line = command(ranks, *arguments, program=("tests/support/dispatched.py",))
    return json.loads(finish(line).stdout)


def lasts(worker, number):
    """Return the duration of a task of dispatched.py."""
    return Random(100 * worker + number).choice((5, 30, 31, 90, 200)) + 50 * (worker == 3)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_tasks_are_told_as_by_a_queue_on_any_ranks(ranks):
    found = dispatched(ranks)
    assert [(worker, end) for worker, _, end in found["told"]] == queue(lasts, 4, 24)
    assert found["overs"] == [[False] * 4] * ranks
    assert all(busy > 0 for busy in found["busy"][:4])  # rank 0 has a task of its own, others three


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_whose_time_is_over_ends_the_section_for_all(rank):
    assert dispatched(3, rank)["overs"] == [[False, False, True]] * 3


@pytest.mark.parametrize("alarmed", [False, True])
def test_what_is_overdue_has_no_further_slice(alarmed):
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


def alone(size, clock=lambda: 1e9):
    """Return a Dispatch of a rank among `size` absent ones, and its sends: (content, rank, tag)."""
    absent, stop = SimpleNamespace(size=size, Dup=lambda: None), Stop(clock, lambda: None)
    dispatch = Dispatch(absent, stop, Watchdog("", print), clock, iter)
    sent = []
    dispatch._send = lambda *message: sent.append(message)
    return dispatch, sent


@pytest.mark.parametrize("size", [2, 11, 101, 1001, 10_001])
def test_all_ranks_together_report_so_often_at_most(size):
    every = interval(size, True, math.inf)
    assert every >= 0.01
    assert (size - 1) / every <= 1000 * (1 + 1e-9)
    assert size > 11 or every == 0.01


def test_by_arrival_a_report_is_for_the_watchdog_alone():
    assert interval(8, False, math.inf) == math.inf
    assert interval(8, False, 1800.0) == 360.0
    assert interval(1_000_001, False, 1800.0) == 1000.0


@pytest.mark.parametrize(("agenda", "reports"), [(Agenda(), 1), (Arrival(), 0)])
def test_progress_is_reported_where_the_order_goes_by_it(agenda, reports):
    agenda.give(0, 0, "order")
    root, orders = alone(2)
    assert (
        root._give_out(SimpleNamespace(agenda=agenda, complete_order=lambda order, rank: order))
        == 1
    )
    rank, sent = alone(2)
    messages = iter([(0, ORDER, orders[0][0]), None, (0, PAUSE, (False, None))])
    rank._receive = lambda: next(messages)
    rank._work = lambda order: iter([7] * 5)
    assert rank._serve() == (False, None)
    assert [tag for *_, tag in sent].count(PROGRESS) == reports


def test_tasks_go_to_idle_ranks_and_one_stays_here():
    agenda = Agenda()
    for worker in range(1200):
        agenda.give(worker, 1200 - worker, worker)
    agenda.give(1200, 5000, "critic", at_root=True)
    dispatch, sent = alone(1001)
    dispatch._at[1] = Task(0, 0, None)
    leader = SimpleNamespace(agenda=agenda, complete_order=lambda order, rank: order)
    dispatch._work = lambda order: order
    assert dispatch._give_out(leader) == 999 + 2
    assert [rank for _, rank, _ in sent] == [*range(2, 1001)]
    assert [content[1] for content, *_ in sent] == [*range(1199, 200, -1)]
    assert [task.order for task, _ in dispatch._own] == [200, "critic"]
    assert dispatch._give_out(leader) == 0


def test_rank_0_hears_no_more_at_a_time_than_there_are_ranks():
    dispatch, _ = alone(9)
    dispatch._at[3] = Task(0, 0, None)
    dispatch._receive = lambda: (3, PROGRESS, 5)  # there is always one more
    assert dispatch._hear(Agenda()) == 9
    assert dispatch._at[3].progress == 5
