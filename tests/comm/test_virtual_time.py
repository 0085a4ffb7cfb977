"""What is told when without a barrier: by hand, against a plain event queue, and on ranks."""

import json
import math
import random
import time
from types import SimpleNamespace

import pytest
from conftest import command, finish
from dispatched import lasting
from event_queue import queue
from mpi4py import MPI

from esac_mpi.comm.dispatch import ORDER, PAUSE, PROGRESS, Dispatch, interval
from esac_mpi.comm.virtual_time import Agenda, Arrival, OrderDiffers, Task
from esac_mpi.host.stop import Stop
from esac_mpi.host.watchdog import Watchdog


def begin(agenda, worker, progress, ends=False):
    """Let the worker's task have come so far, or to its end; return the agenda."""
    task = next(task for task in agenda if task.worker == worker)
    task.begun, task.progress = True, progress
    if ends:
        agenda.end(task)
    return agenda


def ends(agenda, worker, lasted):
    return begin(agenda, worker, lasted, ends=True)


def told(agenda) -> int | None:
    task = agenda.tell()
    return task and task.worker


def given(agenda, *starts):
    """Give a task to each worker from 0 on."""
    for worker, start in enumerate(starts):
        agenda.give(worker, start, None)
    return agenda


def test_a_result_waits_for_what_may_still_end_before_it():
    agenda = given(Agenda(), 0, 10, 40)
    assert told(ends(agenda, 0, 50)) is None  # worker 1 may end at 11
    assert told(begin(agenda, 1, 39)) is None  # at 49
    assert told(begin(agenda, 1, 40)) is None  # worker 2, not begun, may end at 41
    # all at 50 at the earliest, and at a tie the lower number is first
    assert told(begin(agenda, 2, 10)) == 0
    assert told(ends(agenda, 2, 10)) is None  # worker 1 may end at 50 too, and is first then
    assert told(begin(agenda, 1, 41)) == 2


def test_a_result_waits_for_nothing_that_is_known_to_end_later():
    agenda = given(Agenda(), 0)
    agenda.give(1, 10, None, least=40)
    agenda.give(2, 10, None, at_root=True, least=41)
    # the others have not begun, and end at 50 and 51 at the earliest
    assert told(ends(agenda, 0, 49)) == 0
    assert told(ends(agenda, 2, 41)) is None  # worker 1 may end at 50
    assert told(begin(agenda, 1, 41)) is None  # at 51, and is first then
    assert told(ends(agenda, 1, 42)) == 2


def test_while_one_task_blocks_others_none_is_looked_at():
    asked = []
    agenda = Agenda(lambda task: [asked.append(task.worker), task.worker > 0][1])
    assert told(ends(given(agenda, *range(100)), 0, 1)) is None  # worker 1 may end next
    for worker in range(2, 100):
        assert told(ends(agenda, worker, 1)) is None
    assert asked == [0]
    assert told(begin(agenda, 1, 3)) == 2  # it ends at 4 at the earliest, and worker 2 at 3
    assert told(agenda) is None  # at 4 worker 1 is first
    assert told(ends(agenda, 1, 3)) == 1


def test_a_worker_has_one_task():
    agenda = given(Agenda(), 0)
    with pytest.raises(ValueError, match="worker 0 has a task that was not told"):
        agenda.give(0, 5, None)


@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 1000, 100)])
def test_results_in_any_order_are_told_as_by_an_event_queue(seeds):
    for seed in seeds:
        expected, results = of_random_tasks(random.Random(seed))
        assert results == expected, seed


def of_random_tasks(choose):
    """Return what is told of random tasks by an event queue, and by the agenda."""
    workers, count, ranks = choose.randint(1, 6), 30, choose.randint(1, 7)
    lasts = {}

    def durations(worker, number):
        return lasts.setdefault((worker, number), choose.choice((0, 1, 2, 3, 5, 50)))

    # what lasts nothing counts as a step
    expected = queue(lambda *task: max(1, durations(*task)), workers, count)
    agenda, numbers, results, at_work = Agenda(), [0] * workers, [], []

    def give(worker, start, number):
        agenda.give(worker, start, number, least=choose.randint(0, durations(worker, number)))

    for worker in range(workers):
        give(worker, 0, 0)
    while len(results) < count:
        if (task := agenda.tell()) is not None:
            end = task.start + task.progress
            results.append((task.worker, end))
            numbers[task.worker] += 1
            give(task.worker, end, numbers[task.worker])
            continue
        waiting = [task for task in agenda if not task.begun]
        waiting.sort(key=lambda task: task.earliest)
        for task in waiting[: ranks - len(at_work)]:
            task.begun = True
            at_work.append(task)
        moved = choose.choice(at_work)  # any rank may be the faster one
        lasted = durations(moved.worker, moved.order)
        moved.progress = min(moved.progress + 1, lasted)
        if moved.progress == lasted:
            at_work.remove(moved)
            agenda.end(moved)
    return expected, results


def test_a_result_that_may_not_be_told_is_passed_over():
    """Worker 0 ends at 10, waits for worker 2 and ends with it at 30; 1 ends at 20 and does not."""
    read = {2}
    agenda = given(Agenda(may_be_told=lambda task: task.worker != 0 or not read), 0, 0, 0)
    for worker, lasts in enumerate((10, 20, 30)):
        begin(agenda, worker, lasts)
    assert told(ends(agenda, 0, 10)) is None  # worker 1 is at work, and may still end before 2
    assert told(ends(agenda, 1, 20)) == 1
    assert told(agenda) is None
    assert told(ends(agenda, 2, 30)) == 2
    read.clear()
    last = agenda.tell()
    assert (last.worker, last.start + last.progress) == (0, 30)
    assert told(agenda) is None


def test_a_restart_leaves_what_was_passed_over_as_long():
    agenda = given(Agenda(now=30), 0)
    ends(agenda, 0, 10)
    assert agenda.tell().progress == 30


def test_a_record_of_other_tasks_is_an_error_or_forgotten():
    for strict in (True, False):
        agenda = given(Arrival([1, 3, 0], strict), 0, 0)
        for worker in range(2):
            ends(agenda, worker, 1)
        assert told(agenda) == 1
        if strict:
            with pytest.raises(OrderDiffers, match="worker 3 is due"):
                agenda.tell()
        else:
            assert (told(agenda), agenda.due.tolist()) == (0, [])


def test_what_cannot_be_told_yet_lets_others_go_before():
    full = {2}
    agenda = given(Arrival(may_be_told=lambda task: task.worker not in full), 0, 0, 0)
    assert told(ends(agenda, 2, 1)) is None
    assert told(ends(agenda, 0, 9)) == 0
    full.clear()
    assert told(agenda) == 2


def test_in_order_of_arrival_nobody_waits():
    agenda, again = given(Arrival(), 0, 0, 0), given(Arrival([2, 0, 1]), 0, 0, 0)
    ends(agenda, 2, 100)
    ends(agenda, 0, 5)
    assert [told(agenda) for _ in range(3)] == [2, 0, None]
    assert told(ends(again, 0, 5)) is None
    ends(again, 2, 100)
    assert [told(again) for _ in range(3)] == [2, 0, None]


def dispatched(ranks, *arguments):
    line = command(ranks, *arguments, program=("tests/support/dispatched.py",))
    return json.loads(finish(line).stdout)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_tasks_are_told_as_by_a_queue_on_any_ranks(ranks):
    found = dispatched(ranks)
    assert [(worker, end) for worker, _, end in found["told"]] == queue(lasting, 4, 24)
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
    leader = SimpleNamespace(agenda=agenda, complete_order=lambda order, rank: order)
    assert root._give_out(leader) == 1
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
