"""Panels of curves, a group of seeds each: its interquartile mean and 95 % interval, drawn as far as its shortest run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from esac_mpi.analysis.colours import Look, looks
from esac_mpi.analysis.curves import Curve
from esac_mpi.analysis.figures import (
    Axes,
    EngFormatter,
    Figure,
    cells,
    headline,
    legend_below,
    literal,
    name_axis,
    panels,
)
from esac_mpi.analysis.intervals import interquartile_mean, interval
from esac_mpi.analysis.messages import Unusable, note, some

POINTS = 100  # at which a group is summarised
SHORT = 0.8  # of the longest run of a group: shorter ones are named
Quantity = Callable[
    [Any, str], Curve
]  # of a run, be it files or rows of results, against an axis of curves.AXES
Groups = dict[str, dict[str, list[Any]]]  # {title of a panel: {label: runs}}


def summarised(curves: list[Curve], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (x [points], values [seeds, points]) where all curves of a group have values; name the ones that end early."""
    ends = [curve.x[-1] for curve in curves]
    short = [
        curve.origin.name
        for curve, end in zip(curves, ends, strict=True)
        if end < SHORT * max(ends)
    ]
    if short:
        where, reach = curves[0].origin.task, min(ends) / max(ends)
        note(
            f"{name} on {where} is drawn as far as its shortest run, {reach:.0%} of its longest; short: {some(short)}"
        )
    first, last = max(curve.x[0] for curve in curves), min(ends)
    x = (
        np.linspace(first, last, POINTS)
        if last > first
        else np.array([first])[: int(last >= first)]
    )
    return x, np.array([np.interp(x, curve.x, curve.y) for curve in curves])


def draw_group(axes: Axes, name: str, curves: list[Curve], look: Look, seeds: bool = False) -> None:
    """Draw a group: interquartile mean and interval of its seeds, and each as a thin line if asked; one seed is a line alone."""
    colour, style, width = look
    shown = literal(name)
    if len(curves) == 1:
        label = f"{shown}, seed {curves[0].origin.seed} (an interval needs two)"
        marker = "." if len(curves[0].x) < 80 else ""
        axes.plot(
            curves[0].x, curves[0].y, style, color=colour, lw=width, marker=marker, label=label
        )
        return
    x, values = summarised(curves, name)
    if seeds or not x.size:
        for curve in curves:
            axes.plot(curve.x, curve.y, style, color=colour, lw=0.6, alpha=0.6)
    if not x.size:
        axes.plot(
            [],
            [],
            style,
            color=colour,
            lw=0.6,
            label=f"{shown}, {len(curves)} seeds (nowhere all of them)",
        )
        return
    axes.plot(
        x,
        interquartile_mean(values),
        style,
        color=colour,
        lw=width,
        label=f"{shown}, {len(curves)} seeds",
    )
    axes.fill_between(x, *interval([values]), color=colour, alpha=0.2, lw=0)


def summary(
    groups: Groups,
    quantities: dict[str, Quantity],
    x: str,
    title: str,
    seeds: bool = False,
    counts: bool = False,
) -> Figure:
    """Return the figure of quantities against an axis, and its headline; counts: written as 2 k, 3 M. Raises Unusable."""
    figure = grid(groups, quantities, x, seeds)
    if counts:
        for axes in figure.axes:
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    headline(figure, f"{title}; interquartile mean and 95 % interval over seeds")
    return figure


def grid(groups: Groups, quantities: dict[str, Quantity], x: str, seeds: bool = False) -> Figure:
    """Return a figure with a panel for each quantity and task. Raises Unusable if no run has any of the quantities."""
    drawn = [
        (task, name, curves_of(labels, quantity, x))
        for name, quantity in quantities.items()
        for task, labels in groups.items()
    ]
    rows = {
        name
        for _, name, found in drawn
        if any(len(c.x) for curves in found.values() for c in curves)
    }
    if not rows:
        raise Unusable(f"nothing to draw yet: no run given has any {' or '.join(quantities)}")
    tell_missing([curve for _, _, found in drawn for curves in found.values() for curve in curves])
    drawn = [(task, name, found) for task, name, found in drawn if name in rows]
    look = looks(
        {
            label: curves[0].origin.algorithm
            for _, _, found in drawn
            for label, curves in found.items()
        }
    )
    figure, axes = panels(*cells(len(rows), len(groups)))
    for panel, (task, name, found) in zip(axes.flat, drawn, strict=False):
        for label, curves in found.items():
            if some_points := [curve for curve in curves if len(curve.x)]:
                draw_group(panel, label, some_points, look[label], seeds)
        panel.set(title=task, ylabel=name)
        name_axis(panel, x)
    for panel in axes.flat[len(drawn) :]:
        panel.set_axis_off()
    legend_below(figure, axes)
    return figure


def curves_of(labels: dict[str, list[Any]], quantity: Quantity, x: str) -> dict[str, list[Curve]]:
    """Return the curves of each group's runs, empty ones too."""
    return {label: [quantity(run, x) for run in runs] for label, runs in labels.items()}


def tell_missing(curves: list[Curve]) -> None:
    """Name the runs of which nothing is drawn."""
    seen = {curve.origin for curve in curves if len(curve.x)}
    if missing := [
        origin.name
        for origin in dict.fromkeys(curve.origin for curve in curves)
        if origin not in seen
    ]:
        note(f"nothing of this to draw (yet) of {some(missing)}")
