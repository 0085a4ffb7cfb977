"""How fast the cores were that runs were recorded on: core time of the same work, run by run, from their clocks.

A computed clock counts processor time, which other work on a machine lengthens too: it takes caches and the other thread of a
core, from gradient updates more than from simulation. What is compared at equal time should have had the same cores.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from esac_mpi.analysis.clock import grid
from esac_mpi.analysis.messages import spanned
from esac_mpi.analysis.results.traces import Sections, Trace, clock_of
from esac_mpi.analysis.tables import markdown

NOTE = (
    "Core time of a gradient update, where a variant has none of a step, in the quickest and the slowest run. What differs"
    " between runs of a variant on a task is the machine that recorded them, crowded or not: on a slow one less was done by then."
)


class Cost(NamedTuple):
    """Core time of a unit of a run's work."""

    seconds: float
    unit: str


def cost(run: Trace) -> Cost:
    """Return what a gradient update of a run took on one core, or, without updates or their time, a step. Raises Unusable."""
    last = run.rows[-1]
    found = clock_of(last)
    whole, others = found[grid.OWN][0], found.get(grid.FREE, found[grid.OWN])[0]
    if last.gradient_updates and whole > others:
        return Cost((whole - others) / last.gradient_updates, "ms")
    return Cost(whole / last.env_steps, "us")


def table(sections: Sections, variants: list[str]) -> Iterator[str]:
    """Yield what the work of variants took on every task, and where runs of one variant differ most. Raises Unusable."""
    found = {
        title: {v: [cost(run) for run in groups.get(v, [])] for v in variants}
        for title, groups in sections.items()
    }
    yield from ("### How fast the cores were", "", NOTE, "")
    rows = [
        ["task", *variants],
        *([title, *(span(costs) for costs in labels.values())] for title, labels in found.items()),
    ]
    yield from markdown(rows)
    factors = {
        (title, v): ratio(costs) for title, labels in found.items() for v, costs in labels.items()
    }
    title, label = max(factors, key=lambda place: factors[place])
    if factors[title, label] > 1:
        yield ""
        yield f"Most between runs of one variant on one task: a factor of {factors[title, label]:.2f} ({label}, {title})."


def span(costs: Iterable[Cost]) -> str:
    """Return the least and the most of costs, "-" where there are none."""
    scale = {"ms": 1e3, "us": 1e6}
    shown = [f"{float(f'{c.seconds * scale[c.unit]:.3g}'):,g} {c.unit}" for c in sorted(costs)]
    return spanned([shown[0], shown[-1]]) if shown else "-"


def ratio(costs: list[Cost]) -> float:
    """Return the most over the least of costs in one unit."""
    return (
        max(costs).seconds / min(costs).seconds
        if costs and len({c.unit for c in costs}) == 1
        else 0.0
    )
