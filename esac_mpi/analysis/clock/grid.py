"""A run's clock in few numbers: the time of a generation on so many ranks, with a learner of so many updates/s, as text.

A row of results.csv has, for 1, 2, 4 .. 1,024 ranks, the seconds since the start of the run with the learner that it had ("own")
and with one that updates in no time ("inf"). Where all wait for a phase, any other rate r is "inf" + updates / r. A phase that
runs beside the evaluation, the making of offspring or individuals is waited for only where it is late; then the text has six
rates from 30 to 10,000 more, and others lie on straight lines between their neighbours, over the time of an update; from 30 down
all is waited for. Ranks between powers of two lie on straight lines over 1 / ranks. Both are but estimates: a generation has
whole turns, so that 28 ranks may take as long as 16, and a phase that is late is so all at once; `estimated` says so. Values that
stay the same from some number of ranks on are written once.

    own 812.3 410.2 208;inf 700.1 352 178.4
"""

import math

import numpy as np

from esac_mpi.analysis.clock.core import Core
from esac_mpi.analysis.clock.recorded import (
    Machine,
    bears_offspring,
    duration,
    ends,
    phases_beside,
    teaches,
    times,
)
from esac_mpi.analysis.clock.recorded_tasks import has_tasks
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.record import RunFiles

RANKS = tuple(2**i for i in range(11))
RATES = (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)  # updates/s
OWN = 0.0  # the rate of the learner that a run had
Times = dict[float, np.ndarray]  # {updates/s: [ranks of RANKS, ...]} [s]


def texts(run: RunFiles, places: np.ndarray, core: Core | None = None) -> list[str]:
    """Return the text of these generations' times; empty texts where a run has no clock."""
    try:
        found = clocks(run, core)
    except Unusable:
        return [""] * len(places)
    return [
        text({rate: seconds[:, place] for rate, seconds in found.items()})
        for place in places.tolist()
    ]


def clocks(run: RunFiles, core: Core | None = None) -> Times:
    """Return the times of all generations, [ranks, generations] for each rate. Raises Unusable."""
    if has_tasks(run):
        return {rate: swept(run, rate, core) for rate in (OWN, math.inf, *RATES)}
    own, parts = swept(run, OWN, core), times(run, core)
    lasted = duration(run, parts, OWN)
    try:
        played = duration(run, parts, math.inf)
    except Unusable:  # made before it was recorded
        return {OWN: own}
    if not np.isfinite(lasted).any():
        return {OWN: own}
    if phases_beside(run) or bears_offspring(run) or teaches(run):
        return {OWN: own, **{rate: swept(run, rate, core) for rate in (math.inf, *RATES)}}
    return {OWN: own, math.inf: own - np.nan_to_num(lasted - played).cumsum()}


def swept(run: RunFiles, rate: float, core: Core | None = None) -> np.ndarray:
    """Return the times of all generations on every number of ranks, [ranks, generations] [s]. Raises Unusable."""
    on_cluster = ends(run, rate, core)
    return np.array([list(on_cluster(Cluster(ranks))) for ranks in RANKS]).reshape(len(RANKS), -1)


def text(found: Times) -> str:
    """Return the text of times [ranks] at each rate."""
    lines = []
    for rate, seconds in found.items():
        words = [f"{value:.4g}" for value in seconds.tolist()]
        while len(words) > 1 and words[-1] == words[-2]:
            del words[-1]
        lines.append(" ".join(["own" if rate == OWN else f"{rate:g}", *words]))
    return ";".join(lines)


def parsed(text: str) -> Times:
    """Return the times of a text. Raises ValueError."""
    found: Times = {}
    for line in text.split(";"):
        rate, *words = line.split()
        if not 0 < len(words) <= len(RANKS):
            raise ValueError(text)
        values = [float(word) for word in words]
        found[OWN if rate == "own" else float(rate)] = np.array(
            values + values[-1:] * (len(RANKS) - len(values))
        )
    if OWN not in found or not all(np.isfinite(values).all() for values in found.values()):
        raise ValueError(text)
    return found


def at(found: Times, updates: float, machine: Machine) -> float:
    """Return the time on a machine, of a generation with so many gradient updates so far [s]. Raises Unusable."""
    if not 1 <= machine.ranks <= RANKS[-1]:
        raise Unusable(
            f"ranks {machine.ranks}: rows of results have the clock of 1 to {RANKS[-1]:,}"
        )
    rates, rate = [r for r in found if r != OWN], machine.updates_per_second
    if not rate or not (updates or rates):
        return on(found[OWN], machine.ranks)
    if math.inf not in found:
        raise Unusable(
            "rows made before the time of gradient updates was recorded: their updates/s cannot be others"
        )
    if rates == [math.inf]:
        return on(found[math.inf], machine.ranks) + updates / rate
    slowest = sorted((1 / r, on(found[r], machine.ranks)) for r in rates)
    x, y = np.array(slowest).T
    return float(np.interp(1 / rate, x, y)) + max(0.0, 1 / rate - x[-1]) * updates


def estimated(found: Times, machine: Machine) -> str:
    """Return what of a machine is between those that these times are of, "" where they have it."""
    rates = {rate for rate in found if 0 < rate < math.inf}
    between = [f"{machine.ranks:,} ranks"] * (machine.ranks not in RANKS)
    if (
        rates
        and RATES[0] < machine.updates_per_second < math.inf
        and machine.updates_per_second not in rates
    ):
        between.append(f"{machine.updates_per_second:,g} updates/s")
    return " and ".join(between)


def on(seconds: np.ndarray, ranks: int) -> float:
    """Return the time on a number of ranks from those on RANKS [s]."""
    inverse = 1 / np.array(RANKS, float)
    return float(np.interp(1 / ranks, inverse[::-1], seconds[::-1]))
