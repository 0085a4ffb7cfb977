"""The line about the exchange between ranks: whether its results are right, and how long it takes."""

import time
from typing import Any

import numpy as np

from esac_mpi.comm import World
from esac_mpi.training.check.report import Line, spans

REPEATS = 100  # exchanges timed


def look(world: World) -> Line:
    """Exchange the results of two members a rank, check them, and time that; all ranks call this."""
    count = 2 * world.size
    table, _ = world.map(lambda i: np.array([i, i * i], float), count, 2)
    right = bool((table == [[i, i * i] for i in range(count)]).all())
    mapped = timed(lambda: world.map(lambda i: np.zeros(2), count, 2))
    gathered = timed(lambda: world.gather(None)) / 2
    answers = world.gather(right)
    wrong = [r for r, answer in enumerate(answers) if not answer]
    found = f"{count} members; medians of {REPEATS}: evaluation of nothing {mapped:.0f} us, allgather {gathered:.0f} us"
    return Line(
        "exchange",
        found,
        f"wrong results on ranks {spans(wrong)}: MPI is broken here" if wrong else "",
        bool(wrong),
    )


def timed(action: Any) -> float:
    """Return the median time of REPEATS calls [us]."""
    seconds = np.zeros(REPEATS)
    for i in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds[i] = time.perf_counter() - start
    return float(np.median(seconds)) * 1e6
