"""Print what is told, in its order, of tasks of made-up durations (test_virtual_time.py)."""

import json
import random
import sys
import time

from mpi4py import MPI

from esac_mpi.comm.dispatch import Dispatch
from esac_mpi.comm.virtual_time import Agenda
from esac_mpi.host.stop import Stop
from esac_mpi.host.watchdog import Watchdog

COMM = MPI.COMM_WORLD
WORKERS, SECTIONS, TOLD = 3, 4, 6
DELAYS = random.Random(COMM.rank)  # of this rank's slices


def work(order):
    """Last as long as the order says, in slices of a few steps; return its number."""
    worker, number, lasts = order
    done = 0
    while done + 7 < lasts:
        done += 7
        time.sleep(DELAYS.choice((0.0, 0.0005, 0.003)))
        yield done
    return lasts, [worker, number]


def lasting(worker, number):
    """Return how long a worker's task lasts: the critic's, worker 3, are long and rank 0's."""
    lasts = random.Random(100 * worker + number).choice((5, 30, 31, 90, 200))
    return lasts + 50 * (worker == WORKERS)


def order(worker, number):
    return worker, number, lasting(worker, number)


class Leader:
    """Gives every worker a next task; a section is so many results."""

    def __init__(self, told):
        self.agenda, self.results = Agenda(), told
        for worker in range(WORKERS + 1):
            self.agenda.give(worker, 0, order(worker, 0), at_root=worker == WORKERS)

    def take_result(self, task):
        end = task.start + task.progress
        self.results.append([*task.result, end])
        self.agenda.give(
            task.worker, end, order(task.worker, task.result[1] + 1), at_root=task.at_root
        )
        return len(self.results) % TOLD == 0

    def complete_order(self, sent, rank):
        return sent


def main(overdue_at=-1) -> None:
    """Print it; overdue_at: rank whose time is over in the third section."""
    stop = Stop(time.monotonic, lambda: None)
    stop.listen()
    dispatch = Dispatch(COMM, stop, Watchdog("", lambda words: None), time.monotonic, work)
    told = []
    dispatch.leader = Leader(told) if COMM.rank == 0 else None
    overs = []
    for section in range(SECTIONS):
        if section == 2 and COMM.rank == overdue_at:
            stop.give_up_at(time.monotonic() + 0.001)
        overs.append(dispatch.go_on())
        COMM.Barrier()  # an exchange, while tasks are in progress
        if overs[-1]:
            break
    everywhere = COMM.gather((overs, dispatch.busy))
    if COMM.rank == 0:
        found, busy = zip(*everywhere, strict=True)
        print(json.dumps({"told": told, "overs": found, "busy": busy}))
    dispatch.free()
    stop.end()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
