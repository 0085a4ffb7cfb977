"""A run's clock in a cell of results.csv: the time of a generation on 1, 2, 4 .. 1,024 ranks.

In seconds since the start of the run. Values that stay the same from some number of ranks on are
written once. Cells of before may have further learners after a semicolon, which nothing reads.

    own 812.3 410.2 208
"""

import numpy as np

from esac_mpi.analysis.clock.recorded import make_clock
from esac_mpi.analysis.messages import DAMAGED, Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.record import RunFiles

RANKS = tuple(2**i for i in range(11))
OWN = "own"  # the learner that the run had


def format_cells(run: RunFiles, places: np.ndarray) -> list[str]:
    """Write the cells of these generations; empty texts where a run has no clock."""
    try:
        on_cluster = make_clock(run)
    except Unusable:
        return [""] * len(places)
    found = np.array([list(on_cluster(Cluster(ranks))) for ranks in RANKS])  # [ranks, generations]
    return [format_cell(found[:, place]) for place in places.tolist()]


def format_cell(seconds: np.ndarray) -> str:
    """Write a cell of times [ranks], those that stay the same at the end once."""
    words = [f"{value:.4g}" for value in seconds.tolist()]
    while len(words) > 1 and words[-1] == words[-2]:
        del words[-1]
    return " ".join([OWN, *words])


def time_on(cell: str, ranks: int, name: str) -> float:
    """Look up the time on so many ranks in a cell [s]; name: of its row. Raises Unusable."""
    if not cell:
        raise Unusable(
            f"{name}: no clock on other ranks is recorded;"
            " make its rows anew from the run: experiment draw"
        )
    learner, *words = cell.partition(";")[0].split() or [""]
    try:
        seconds = [float(word) for word in words]
    except ValueError:
        seconds = []
    if learner != OWN or not 0 < len(seconds) <= len(RANKS) or not np.isfinite(seconds).all():
        raise Unusable(f"{name}: its clock is {cell!r}, not seconds on ranks", DAMAGED)
    if ranks not in RANKS:
        raise Unusable(
            f"--ranks {ranks}: rows of results have the clock of 1, 2, 4 .. {RANKS[-1]:,} ranks;"
            " plot and table compute any, of run directories"
        )
    return seconds[min(RANKS.index(ranks), len(seconds) - 1)]
