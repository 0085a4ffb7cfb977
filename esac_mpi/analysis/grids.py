"""Panels of curves: groups' interquartile means and 95 % intervals, up to their shortest run."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from esac_mpi.analysis import figures
from esac_mpi.analysis.colours import Look, looks
from esac_mpi.analysis.curves import Axis, Curve
from esac_mpi.analysis.figures import Axes, Figure
from esac_mpi.analysis.groups import Labelled
from esac_mpi.analysis.intervals import interquartile_mean, interval
from esac_mpi.analysis.messages import Unusable, note, shorten

POINTS = 100  # at which a group is summarised
SHORT = 0.8  # of the longest run of a group: shorter ones are named
Quantity = Callable[[Any, Axis], Curve]  # of a run, be it files or rows of results


def interpolate(curves: list[Curve], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (x [points], values [seeds, points]) where all have values; note early ends."""
    ends = [curve.x[-1] for curve in curves]
    first, last = max(curve.x[0] for curve in curves), min(ends)
    short = [c.origin.name for c in curves if c.x[-1] < SHORT * max(ends)]
    if short and last >= first:
        reach = f"its shortest run, {last / max(ends):.0%} of its longest; short: {shorten(short)}"
        note(f"{name} on {curves[0].origin.task} is drawn as far as {reach}")
    x = np.linspace(first, last, POINTS if last > first else int(last == first))
    return x, np.array([np.interp(x, curve.x, curve.y) for curve in curves])


def draw_group(axes: Axes, name: str, curves: list[Curve], look: Look, seeds: bool = False) -> None:
    """Draw a group: interquartile mean and interval of its seeds, also each as a thin line."""
    colour, style, width = look
    if len(curves) == 1:
        (curve,) = curves
        label = f"{figures.escape(name)}, seed {curve.origin.seed}"
        marker = "." if len(curve.x) < 80 else ""
        axes.plot(curve.x, curve.y, style, color=colour, lw=width, marker=marker, label=label)
        return
    thin: dict[str, Any] = {"color": colour, "lw": 0.6}
    x, values = interpolate(curves, name)
    label = f"{figures.escape(name)}, {len(curves)} seeds"
    if seeds or not x.size:
        for curve in curves:
            axes.plot(curve.x, curve.y, style, alpha=0.6, marker=figures.dot(curve.x), **thin)
    if not x.size:
        axes.plot([], [], style, label=f"{label} (nowhere all of them)", **thin)
        return
    how: dict[str, Any] = {"color": colour, "lw": width, "marker": figures.dot(x)}
    axes.plot(x, interquartile_mean(values), style, label=label, **how)
    figures.band(axes, x, *interval([values]), color=colour, alpha=0.2)


def draw(
    groups: Labelled,
    quantities: dict[str, Quantity],
    x: Axis,
    title: str,
    seeds: bool = False,
    counts: bool = False,
) -> Figure:
    """Draw a panel for each quantity and task. Raises Unusable if no run has any of them.

    counts: write values as 2 k, 3 M.
    """
    found = {
        (name, task): {label: [quantity(run, x) for run in runs] for label, runs in labels.items()}
        for name, quantity in quantities.items()
        for task, labels in groups.items()
    }
    lines = [line for labels in found.values() for line in labels.items()]
    every = [curve for _, curves in lines for curve in curves]
    seen = {curve.origin for curve in every if len(curve.x)}
    if not seen:
        raise Unusable(f"nothing to draw yet: no run given has any {' or '.join(quantities)}")
    missing = dict.fromkeys(curve.origin for curve in every if curve.origin not in seen)
    if missing:
        note(f"nothing of this to draw (yet) of {shorten(origin.name for origin in missing)}")
    look = looks({label: curves[0].origin.algorithm for label, curves in lines})
    drawn: dict[tuple[str, str], dict[str, list[Curve]]] = {}
    for place, labels in found.items():
        for label, curves in labels.items():
            if there := [curve for curve in curves if len(curve.x)]:
                drawn.setdefault(place, {})[label] = there
    names = [name for name in quantities if any((name, task) in drawn for task in groups)]
    tasks = [task for task in groups if any((name, task) in drawn for name in names)]
    if names[1:] and tasks[1:]:
        figure, axes = figures.panels(len(names), len(tasks))
    else:
        figure, axes = figures.wrapped_panels(len(drawn))
    for panel, (name, task) in zip(np.ravel(axes), product(names, tasks), strict=True):
        if (name, task) not in drawn:
            panel.set_axis_off()
            continue
        for label, there in drawn[name, task].items():
            draw_group(panel, label, there, look[label], seeds)
        figures.name_panel(panel, task)
        panel.set_ylabel(name)
        figures.name_axis(panel, x)
        if counts:
            panel.yaxis.get_major_locator().set_params(**figures.WHOLE)
            panel.yaxis.set_major_formatter(figures.EngFormatter(sep=""))
    figures.name_lines(figure)
    many = any(len(there) > 1 for labels in drawn.values() for there in labels.values())
    over = "; interquartile mean and 95 % interval over seeds" if many else ""
    figures.add_title(figure, f"{title}{over}")
    return figure
