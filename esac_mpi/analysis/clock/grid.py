"""A run's clock in a cell of results.csv: the time of a generation on 1, 2, 4 .. 1,024 ranks.

"own" has the seconds since the start of the run with the learner that it had, "inf" those with one
whose updates take no time, where that is another time. Values that stay the same from some number
of ranks on are written once. Cells of before may have further learners, which nothing reads.

    own 812.3 410.2 208;inf 700.1 352 178.4
"""

import math

import numpy as np

from esac_mpi.analysis.clock.core import Core
from esac_mpi.analysis.clock.recorded import Machine, ends
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.record import RunFiles

RANKS = tuple(2**i for i in range(11))
OWN, FREE = "own", "inf"
Times = dict[str, np.ndarray]  # {learner: [ranks of RANKS, ...]} [s]


def texts(run: RunFiles, places: np.ndarray, core: Core | None = None) -> list[str]:
    """Write the cells of these generations; empty texts where a run has no clock."""
    found: Times = {}
    try:
        found[OWN] = on_all_ranks(run, 0.0, core)
        found[FREE] = on_all_ranks(run, math.inf, core)
    except Unusable:  # without a time of updates it has its own alone
        if not found:
            return [""] * len(places)
    if FREE in found and (found[OWN] == found[FREE]).all():
        del found[FREE]
    return [
        ";".join(f"{name} {shortened(seconds[:, place])}" for name, seconds in found.items())
        for place in places.tolist()
    ]


def on_all_ranks(run: RunFiles, updates_per_second: float, core: Core | None) -> np.ndarray:
    """Compute the times on every number of ranks, [ranks, generations] [s]. Raises Unusable."""
    on_cluster = ends(run, updates_per_second, core)
    return np.array([list(on_cluster(Cluster(ranks))) for ranks in RANKS]).reshape(len(RANKS), -1)


def shortened(seconds: np.ndarray) -> str:
    """Write times [ranks], those that stay the same at the end once."""
    words = [f"{value:.4g}" for value in seconds.tolist()]
    while len(words) > 1 and words[-1] == words[-2]:
        del words[-1]
    return " ".join(words)


def parsed(text: str) -> Times:
    """Read a cell. Raises ValueError."""
    found: Times = {}
    for line in text.split(";"):
        name, *words = line.split()
        values = np.array(words, float)
        if not 0 < values.size <= len(RANKS) or not np.isfinite(values).all():
            raise ValueError(text)
        found[name] = np.pad(values, (0, len(RANKS) - values.size), mode="edge")
    if OWN not in found:
        raise ValueError(text)
    return found


def at(found: Times, machine: Machine) -> float:
    """Look up the time on a machine [s]. Raises Unusable for one that cells have not."""
    if machine.ranks not in RANKS or machine.updates_per_second:
        raise Unusable(
            f"{machine}: rows of results have the clock of 1, 2, 4 .. {RANKS[-1]:,} ranks, with the "
            "learner that a run had; plot and table compute any, of run directories"
        )
    return float(found[OWN][RANKS.index(machine.ranks)])
