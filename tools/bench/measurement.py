"""A benchmark's figures with their spread over rounds, and competitors that take turns."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.host.errors import INSTALL

Timed = tuple[int, float]  # what was done (steps, updates), and in how many seconds
Turns = dict[str, Callable[[], Timed]]  # of competitors, by name
HEADER = f"{'case':<46}  {'figure':<47}  {'min':>10}  {'median':>10}  {'max':>10}  unit"


class Figure(NamedTuple):
    """What was measured of a case, a value a round or more; simulation: not measured."""

    case: str
    name: str
    unit: str
    values: Any
    simulation: bool = False

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, its spread in place of the values."""
        values = np.asarray(self.values, float).ravel()
        least, median, most = np.quantile(values, (0, 0.5, 1)).tolist()
        spread = {"min": least, "median": median, "max": most, "rounds": values.size}
        return {**self._asdict(), "values": None} | spread

    def __str__(self) -> str:
        """Return a row of the table for people."""
        spread = "  ".join(f"{self.plain()[name]:>10,.4g}" for name in ("min", "median", "max"))
        model = ", SIMULATION" if self.simulation else ""
        return f"{self.case:<46}  {self.name:<47}  {spread}  {self.unit}{model}"


def say(message: str) -> None:
    """Say something beside the figures."""
    print(message, file=sys.stderr, flush=True)


def is_installed(library: str) -> bool:
    """Return whether a peer is installed; say if not."""
    found = importlib.util.find_spec(library) is not None
    if not found:
        say(f"{library} is not installed and left out: {INSTALL} '.[bench]'")
    return found


def turns(competitors: Turns, rounds: int) -> dict[str, np.ndarray]:
    """Let the competitors take turns, one unmeasured first; return their rates, [rounds] [1/s].

    Who fails is told in a line, and the others go on without it.
    """
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(rounds + 1):
        for name in list(rates):
            try:
                count, seconds = competitors[name]()
            except Exception as error:
                reason = next(filter(None, map(str.strip, str(error).splitlines())), "")
                say(f"{name}: failed: {type(error).__name__}: {reason[:300]}")
                del rates[name]
                continue
            if turn:
                rates[name].append(count / seconds)
    return {name: np.array(values) for name, values in rates.items()}


def compare_rates(case: str, rates: dict[str, np.ndarray], unit: str) -> Iterator[Figure]:
    """Yield each competitor's rate and the ratios of the first one, ours, to every other."""
    for name, values in rates.items():
        yield Figure(case, name, unit, values)
    first, *others = rates or [""]
    for name in others:
        yield Figure(case, f"{first} / {name}", "ratio", rates[first] / rates[name])
