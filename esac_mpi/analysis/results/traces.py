"""Rows of results as curves of runs, in groups of seeds, for standings.py and pictures.py."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from esac_mpi.analysis.clock import describe_ranks, grid
from esac_mpi.analysis.colours import algorithm_of
from esac_mpi.analysis.curves import Curve, Origin, last_before
from esac_mpi.analysis.messages import Unusable, format_range
from esac_mpi.analysis.names import sort_key
from esac_mpi.analysis.results.rows import Row
from esac_mpi.host.log import compact

WALL = "wall_seconds"


@dataclass(frozen=True)
class Trace:
    """The rows of one run."""

    title: str  # of its table or panel: the task, with its experiment where there are several
    label: str  # its variant, with the swept value
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """What the run is called in a sentence."""
        return f"{self.title}, {self.label}, seed {self.rows[0].seed}"

    def curve(self, x: str, y: str) -> Curve:
        """Return one field of the rows against another, without rows that lack it."""
        rows = [row for row in self.rows if getattr(row, y) is not None]
        where, values = (np.array([getattr(row, name) for row in rows], float) for name in (x, y))
        origin = Origin(self.name, self.title, self.rows[0].seed, algorithm_of(self.label))
        return Curve(origin, where, values)

    def has(self, y: str) -> bool:
        """Tell whether any row of the run has a value of field y."""
        return any(getattr(row, y) is not None for row in self.rows)

    def has_reached(self, seconds: float) -> bool:
        """Tell whether the run has reached a wall time, or its own end before."""
        return self.rows[-1].complete or self.rows[-1].wall_seconds >= seconds

    def ended_before(self, seconds: float) -> bool:
        """Tell whether the run ended before a wall time."""
        return self.rows[-1].complete and self.rows[-1].wall_seconds < seconds


def unfinished(traces: Iterable[Trace]) -> list[Trace]:
    """List the runs that go on, or stopped early: what stands at their ends is what they have."""
    return [trace for trace in traces if not trace.rows[-1].complete]


Sections = dict[str, dict[str, list[Trace]]]  # {title: {label: runs, by seed}}


def on_ranks(rows: Iterable[Row], ranks: int) -> list[Row]:
    """Set wall times to when the rows would have stood on so many ranks. Raises Unusable."""

    def there(row: Row) -> Row:
        seconds = grid.time_on(row.clock, ranks, f"{row.name}, generation {row.generation}")
        return dataclasses.replace(row, wall_seconds=seconds)

    return list(map(there, rows))


def sections(rows: Iterable[Row]) -> Sections:
    """Return the runs by task and variant, whatever the order of the rows of different runs.

    Raises Unusable where names of two runs read alike, such as "ES" and "ES ".
    """
    runs: dict[tuple[str, str, str, str, str, int], list[Row]] = {}
    for row in rows:
        runs.setdefault(row.run, []).append(row)
    several = len({run[:2] for run in runs}) > 1
    found: Sections = {}
    for run in sorted(runs, key=lambda r: (r[:3], sort_key(r[3]), size_key(r[4]), r[5])):
        experiment, budget, task, variant, value, _ = run
        title = f"{experiment} ({budget}): {task}" if several else task
        label = f"{variant} {value}".strip()
        trace = Trace(title, label, tuple(runs[run]))
        alike = found.setdefault(title, {}).setdefault(label, [])
        if trace.name in (other.name for other in alike):
            raise Unusable(f"{trace.name}: two runs of that name, by variant and value")
        alike.append(trace)
    return found


def forms(traces: Iterable[Trace]) -> list[str]:
    """List the forms of its task in which runs are: horizon and keyword arguments, in words."""
    plain = "as its id makes it, or rows of before this was recorded"
    return [way or plain for way in sorted({trace.rows[0].changed for trace in traces})]


def as_number(value: str) -> float | str:
    """Convert a swept value to a number if it is one."""
    try:
        return float(value)
    except ValueError:
        return value


def size_key(value: str) -> tuple[bool, float | str]:
    """Return the sort key of a swept value: numbers by size, then texts."""
    found = as_number(value)
    return isinstance(found, str), found


@dataclass(frozen=True)
class Wall:
    """What the wall time of rows is, and where runs are compared by it."""

    ranks: int = 0  # that it is computed for; 0: it was measured
    seconds: float = 0.0  # [s]; 0 = the most that all runs compared have reached

    @property
    def where(self) -> str:
        """What a head says of the ranks."""
        return f", {describe_ranks(self.ranks)}" if self.ranks else ""

    def limit(self, traces: list[Trace], y: str) -> float:
        """Return the time at which these runs are compared [s]."""
        return self.seconds or reach(traces, WALL, y)


def reach(traces: list[Trace], axis: str, y: str) -> float:
    """Return the greatest place on an axis that all runs have reached."""
    return min(float(trace.curve(axis, y).x[-1]) for trace in traces)


def values(traces: list[Trace], axis: str, limit: float, y: str) -> np.ndarray:
    """List each run's last number at or before the limit, nan where it is not there yet."""
    found = [last_before(trace.curve(axis, y), limit) for trace in traces]
    there = [axis != WALL or trace.has_reached(limit) for trace in traces]
    return np.where(there, found, np.nan)


def greatest_age(traces: list[Trace], limit: float, y: str) -> float:
    """Return the greatest age of these numbers at a wall time, or at their run's earlier end."""
    ages = [0.0]
    for trace in traces:
        if np.isfinite(values([trace], WALL, limit, y)[0]):
            places = trace.curve(WALL, y).x
            end = min(limit, trace.rows[-1].wall_seconds)
            ages.append(end - float(places[places <= limit][-1]))
    return max(ages)


def two_figures(seconds: float) -> str:
    """Format an age, without an exponent: 0.12, 120, 1.2k."""
    return compact(float(f"{seconds:.2g}"))


def count_runs(runs: list[Trace]) -> str:
    """Return the count of runs, in all and by variant, in words."""
    return f"{len(runs)} ({by_variant(runs)})"


def by_variant(runs: list[Trace]) -> str:
    """Return the counts of runs by variant, in words."""
    counts = Counter(run.label for run in runs)
    return ", ".join(f"{count} of {label}" for label, count in counts.items())


def span(runs: list[Trace]) -> str:
    """Return "after LEAST to MOST s", the wall times at which runs ended."""
    ends = [run.rows[-1].wall_seconds for run in runs]
    return f"after {format_range(map(compact, (min(ends), max(ends))))} s"
