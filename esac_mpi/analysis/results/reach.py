"""Who reaches a return first, over ranks and the learner's updates/s: a map of each task, from the computed clocks of its runs.

A variant's time on a machine is the median over its seeds of the time at the end of the first generation whose evaluation reached
the return; where half of its seeds never did, it has none, and where no variant has one, the map is blank. A run tells nothing of
what it would have reached after its end: where the runs of another variant ended before the first got there, that one might have
been first, and the cell is hatched. Runs that end at one time on some ranks end at very different times on others.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esac_mpi.analysis.clock import Machine, grid
from esac_mpi.analysis.colours import algorithm_of, looks
from esac_mpi.analysis.command import opened
from esac_mpi.analysis.figures import Axes, Figure, headline, matplotlib, plt
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.messages import Unusable, note, some, spanned
from esac_mpi.analysis.results import rowfiles
from esac_mpi.analysis.results.rows import Row
from esac_mpi.analysis.results.rows import rows as rows_of
from esac_mpi.analysis.results.traces import Sections, Trace, clock_of, sections

UPDATES = np.geomspace(30, 10_000, 26)  # updates/s
MOST = 1000  # rows of a run directory
CLOSE = 1.1  # the second's time over the first's, below which the first is drawn pale
PALE = 0.55  # how far a pale colour is on its way to white
TIMES = [
    second * 10.0**power for power in range(-1, 6) for second in (1, 2, 5)
]  # at which lines are drawn [s]


@dataclass(frozen=True)
class Reach:
    """Times to reach a return."""

    labels: list[str]
    seconds: np.ndarray  # [labels, updates, ranks], inf where it is not reached [s]
    least: np.ndarray  # the same, if every run that did not reach it had done so where it ended [s]

    @property
    def first(self) -> np.ndarray:
        """The number of the label that is first, -1 where none reaches it, int [updates, ranks]."""
        return np.where(np.isfinite(self.best), self.seconds.argmin(axis=0), -1)

    @property
    def best(self) -> np.ndarray:
        """The time of the first [updates, ranks] [s]."""
        return self.seconds.min(axis=0)

    @property
    def missing(self) -> np.ndarray:
        """Whether each may have been the first, had its runs gone on, bool [labels, updates, ranks]."""
        others = np.arange(len(self.labels))[:, None, None] != self.first
        return others & (self.least < self.best) & np.isfinite(self.best)

    @property
    def unsure(self) -> np.ndarray:
        """Whether another than the first may have been it, bool [updates, ranks]."""
        return np.logical_or.reduce(self.missing)

    @property
    def close(self) -> np.ndarray:
        """Whether a second is nearly as fast, bool [updates, ranks]."""
        ordered = np.sort(self.seconds, axis=0)
        return (
            np.isfinite(ordered[0]) & (ordered[1] < CLOSE * ordered[0])
            if len(ordered) > 1
            else np.zeros_like(self.best, bool)
        )


def read(paths: list[Path]) -> Sections:
    """Return the runs of files of rows, or of run directories. Raises Unusable."""
    files, folders = (
        [p for p in paths if p.suffix == ".csv"],
        [p for p in paths if p.suffix != ".csv"],
    )
    found: list[Row] = rowfiles.read(files)
    for labels in (grouped(opened(folders)) if folders else {}).values():
        for label, runs in labels.items():
            for run in runs:
                found += rows_of(run, "", "", label, "", True, MOST)
    if not found:
        raise Unusable("nothing to draw yet: no generation is published in any run given")
    return sections(found)


def of_task(found: Sections, task: str | None) -> Sections:
    """Return the runs of one task, None: all. Raises Unusable if there are none."""
    if task is not None and task not in found:
        raise Unusable(f"--task {task}: not among those of these runs: {', '.join(found)}")
    return found if task is None else {task: found[task]}


def first_row(trace: Trace, target: float) -> Row | None:
    """Return the first row of a run whose return reaches the target, None if it never does."""
    return next(
        (row for row in trace.rows if row.better is not None and row.better >= target), None
    )


def usual(labels: dict[str, list[Trace]]) -> float:
    """Return the greatest return that half the seeds of two variants reach (of the one where there is one), in two digits.

    Raises Unusable where no half was evaluated.
    """
    reached = sorted(value for value in map(best, labels.values()) if np.isfinite(value))
    if not reached:
        raise Unusable("no variant has an evaluation of half of its seeds yet")
    value = reached[-2:][0]
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 1) if value else 1.0
    return float(np.floor(value / unit) * unit)


def best(traces: list[Trace]) -> float:
    """Return the greatest return that half of the seeds reach."""
    most = [
        max((row.better for row in trace.rows if row.better is not None), default=-np.inf)
        for trace in traces
    ]
    return sorted(most)[(len(most) - 1) // 2]


def reach(labels: dict[str, list[Trace]], target: float, within: float = np.inf) -> Reach:
    """Return when the variants of a task reach a return, if they do within so many seconds. Raises Unusable without a clock."""
    seconds = np.full((len(labels), UPDATES.size, len(grid.RANKS)), np.inf)
    least = seconds.copy()
    for place, traces in enumerate(labels.values()):
        each, ends = (
            np.array(found)
            for found in zip(*((times(t, target), stands(t.rows[-1])) for t in traces), strict=True)
        )
        middle = len(traces) // 2  # the later one of two
        seconds[place] = np.sort(each, axis=0)[middle]
        least[place] = np.sort(np.where(np.isfinite(each), each, ends), axis=0)[middle]
    seconds[seconds > within] = np.inf
    return Reach(list(labels), seconds, least)


def times(trace: Trace, target: float) -> np.ndarray:
    """Return when a run reaches a return on each machine, inf if it does not, [updates, ranks] [s]. Raises Unusable."""
    row = first_row(trace, target)
    return np.full((UPDATES.size, len(grid.RANKS)), np.inf) if row is None else stands(row)


def stands(row: Row) -> np.ndarray:
    """Return when a run stood at a row on each machine [updates, ranks] [s]. Raises Unusable."""
    found = clock_of(row)
    return np.array(
        [
            [grid.at(found, row.gradient_updates, Machine(r, u)) for r in grid.RANKS]
            for u in UPDATES.tolist()
        ]
    )


def figure(
    title: str, labels: dict[str, list[Trace]], target: float | None = None, within: float = np.inf
) -> Figure:
    """Return the map of a task; target: the return to reach, None: `usual`. Raises Unusable where nobody reaches it."""
    goal = usual(labels) if target is None else target
    found = reach(labels, goal, within)
    limit = f" within {within:,g} s" if np.isfinite(within) else ""
    if not np.isfinite(found.best).any():
        raise Unusable(
            f"{title}: no variant reaches {goal:,g} with half of its seeds{limit}; choose another --reach"
        )
    if absent := [
        label
        for label, seconds in zip(found.labels, found.seconds, strict=True)
        if np.isinf(seconds).all()
    ]:
        note(f"{title}: {goal:,g} is not reached{limit} by half of the seeds of {some(absent)}")
    if ended := [
        label for label, cells in zip(found.labels, found.missing, strict=True) if cells.any()
    ]:
        note(
            f"{title}: where hatched, runs of {some(ended)} ended before the first got there, and may have been it"
        )
    drawing, axes = plt.subplots(figsize=(6.6, 4.6), layout="constrained")
    draw(axes, found)
    seeds = sorted({len(traces) for traces in labels.values()})
    many = f"median of {spanned([seeds[0], seeds[-1]])} seed{'s' * (seeds[-1] > 1)}"
    pale = "pale: a second is within 10 %; hatched: runs of another ended before; lines: seconds"
    headline(
        drawing, f"{title}: who reaches {goal:,g} first{limit}; computed times, {many}; {pale}"
    )
    return drawing


def draw(axes: Axes, found: Reach) -> None:
    """Draw a map: a cell for every number of ranks and rate, in the colour of the first."""
    look = looks({label: algorithm_of(label) for label in found.labels})
    colours = np.ones((*found.first.shape, 3))
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="learner's gradient updates/s")
    for place, label in enumerate(found.labels):
        own = np.array(matplotlib.colors.to_rgb(look[label].colour))
        where = found.first == place
        colours[where] = own
        colours[where & found.close] = own + PALE * (1 - own)
        if where.any():
            axes.plot([], [], "s", ms=9, color=own, label=label)
    corners = edges(np.array(grid.RANKS, float)), edges(UPDATES)
    axes.pcolormesh(*corners, colours)
    hatched, clear = (
        np.ma.masked_where(~found.unsure, np.zeros(found.unsure.shape)),
        matplotlib.colors.ListedColormap(["none"]),
    )
    axes.pcolor(
        *corners, hatched, cmap=clear, hatch="////", edgecolor="0.2", lw=0
    )  # with an array, masked cells are left out
    finite = np.ma.masked_invalid(found.best)
    levels = [second for second in TIMES if finite.min() < second < finite.max()]
    if levels:
        lines = axes.contour(
            grid.RANKS, UPDATES, finite, levels=levels, colors="0.15", linewidths=0.8
        )
        axes.clabel(lines, fmt="%g s", fontsize="x-small", inline_spacing=2)
    axes.set_xticks(grid.RANKS[::2], [f"{ranks:,}" for ranks in grid.RANKS[::2]])
    axes.set_yticks(grid.RATES, [f"{rate:,g}" for rate in grid.RATES])
    axes.minorticks_off()
    axes.grid(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="first")


def edges(centres: np.ndarray) -> np.ndarray:
    """Return the edges of cells around ascending centres on a logarithmic axis [cells + 1]."""
    between = np.sqrt(centres[1:] * centres[:-1])
    return np.array([centres[0] ** 2 / between[0], *between, centres[-1] ** 2 / between[-1]])
