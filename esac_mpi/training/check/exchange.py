"""The line about the exchange between ranks: whether it is right, and how long it takes."""

import numpy as np

from esac_mpi.comm import World
from esac_mpi.training.check.report import Line, spans
from esac_mpi.training.forecast.operators import median_seconds

REPEATS = 100  # exchanges timed


def look(world: World) -> Line:
    """Exchange, check and time the results of two members a rank; all ranks call this."""
    count = 2 * world.size
    table, _ = world.map(lambda i: np.array([i, i * i], float), count, 2)
    right = bool((table == [[i, i * i] for i in range(count)]).all())
    mapped = 1e6 * median_seconds(lambda: world.map(lambda i: np.zeros(2), count, 2), REPEATS)
    gathered = 1e6 * median_seconds(lambda: world.gather(None), REPEATS) / 2
    wrong = [r for r, answer in enumerate(world.gather(right)) if not answer]
    found = f"{count} members; medians of {REPEATS}: evaluation of nothing {mapped:.0f} us"
    remedy = f"wrong results on ranks {spans(wrong)}: MPI is broken here" if wrong else ""
    return Line("exchange", f"{found}, allgather {gathered:.0f} us", remedy, bool(wrong))
