"""A benchmark's figures with their spread over rounds, and competitors that take turns."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Timed = tuple[int, float]  # what was done (steps, updates), and in how many seconds


@dataclass(frozen=True)
class Measurement:
    """A figure with its spread over the rounds; `simulation`: computed by a model, not measured."""

    benchmark: str
    case: str
    figure: str
    unit: str
    min: float
    median: float
    max: float
    rounds: int
    simulation: bool = False

    @classmethod
    def of(
        cls,
        benchmark: str,
        case: str,
        figure: str,
        unit: str,
        values: Any,
        simulation: bool = False,
    ) -> "Measurement":
        """Return the measurement of these values, one for each round."""
        found = np.asarray(values, float).ravel()
        least, median, most = np.quantile(found, (0, 0.5, 1)).tolist()
        return cls(benchmark, case, figure, unit, least, median, most, found.size, simulation)

    def plain(self) -> dict[str, Any]:
        """Return its fields for JSON, which has no infinity: None for a time that nobody waited for."""
        return {
            name: None if value in (np.inf, -np.inf) else value
            for name, value in asdict(self).items()
        }

    def line(self) -> str:
        """Return a row of the table for people."""
        spread = "  ".join(f"{value:>10,.4g}" for value in (self.min, self.median, self.max))
        return f"{self.case:<46}  {self.figure:<47}  {spread}  {self.unit}{', SIMULATION' * self.simulation}"


HEADER = f"{'case':<46}  {'figure':<47}  {'min':>10}  {'median':>10}  {'max':>10}  unit"


def say(message: str) -> None:
    """Say something beside the measurements."""
    print(message, file=sys.stderr, flush=True)


def installed(library: str) -> bool:
    """Return whether a peer is installed; say if not."""
    found = importlib.util.find_spec(library) is not None
    if not found:
        say(f"{library} is not installed and left out: pip install esac_mpi[bench]")
    return found


def failed(name: str, error: Exception) -> None:
    """Say that a competitor failed, and why."""
    reason = next(filter(None, map(str.strip, str(error).splitlines())), "")
    say(f"{name}: failed: {type(error).__name__}: {reason[:300]}")


def lazily(make: Callable[[], Callable[[], Timed]]) -> Callable[[], Timed]:
    """Return a competitor's turn that is made when it is first taken: who cannot be made fails there."""
    made: list[Callable[[], Timed]] = []

    def turn() -> Timed:
        if not made:
            made.append(make())
        return made[0]()

    return turn


def turns(
    competitors: dict[str, Callable[[], Timed]],
    rounds: int,
    failing: Callable[[str, Exception], None] | None = None,
) -> dict[str, np.ndarray]:
    """Let the competitors take turns, one turn each unmeasured first; return the rates of each, [rounds] [1/s].

    failing: hears of who fails, and the others go on without it; None: the error is raised.
    """
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(rounds + 1):
        for name in list(rates):
            try:
                count, seconds = competitors[name]()
            except Exception as error:
                if failing is None:
                    raise
                failing(name, error)
                del rates[name]
                continue
            if turn:
                rates[name].append(count / seconds)
    return {name: np.array(values) for name, values in rates.items()}


def against(
    benchmark: str, case: str, rates: dict[str, np.ndarray], unit: str
) -> Iterator[Measurement]:
    """Yield each competitor's rate and the ratios of the first one, ours, to every other."""
    for name, values in rates.items():
        yield Measurement.of(benchmark, case, name, unit, values)
    first, *others = rates or [""]
    for name in others:
        yield Measurement.of(
            benchmark, case, f"{first} / {name}", "ratio", rates[first] / rates[name]
        )
