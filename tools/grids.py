"""Panels of curves, a group of seeds each: its interquartile mean and 95 % interval, drawn as far as its shortest run."""

from collections.abc import Callable

import numpy as np
from command import Unusable, note, some
from curves import Curve
from figures import Axes, Figure, cells, legend_below, looks, name_axis, panels
from groups import Groups
from intervals import interquartile_mean, interval

from esac_mpi.record import RunFiles

POINTS = 100  # at which a group is summarised
SHORT = 0.8  # of the longest run of a group: shorter ones are named
Quantity = Callable[[RunFiles, str], Curve]  # of a run, against an axis of curves.AXES


def summarised(curves: list[Curve], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (x [points], values [seeds, points]) where all curves of a group have values; name the ones that end early."""
    ends = [curve.x[-1] for curve in curves]
    short = [curve.run.path.name for curve, end in zip(curves, ends, strict=True) if end < SHORT * max(ends)]
    if short:
        where, reach = curves[0].run.config.task.id, min(ends) / max(ends)
        note(f"{name} on {where} is drawn as far as its shortest run, {reach:.0%} of its longest; short: {some(short)}")
    first, last = max(curve.x[0] for curve in curves), min(ends)
    x = np.linspace(first, last, POINTS) if last > first else np.array([first])[: last >= first]
    return x, np.array([np.interp(x, curve.x, curve.y) for curve in curves])


def draw_group(axes: Axes, name: str, curves: list[Curve], look: tuple[str, str], seeds: bool = False) -> None:
    """Draw a group: interquartile mean and interval of its seeds, and each as a thin line if asked; one seed is a line alone."""
    colour, style = look
    if len(curves) == 1:
        label = f"{name}, seed {curves[0].run.config.seed} (an interval needs two)"
        axes.plot(curves[0].x, curves[0].y, style, color=colour, lw=1.5, marker="." if len(curves[0].x) < 80 else "", label=label)
        return
    x, values = summarised(curves, name)
    if seeds or not x.size:
        for curve in curves:
            axes.plot(curve.x, curve.y, style, color=colour, lw=0.6, alpha=0.6)
    axes.plot(x, interquartile_mean(values), style, color=colour, lw=1.8, label=f"{name}, {len(curves)} seeds")
    axes.fill_between(x, *interval([values]), color=colour, alpha=0.2, lw=0)


def grid(groups: Groups, quantities: dict[str, Quantity], x: str, seeds: bool = False) -> Figure:
    """Return a figure with a panel for each quantity and task. Raises Unusable if no run has any of the quantities."""
    look = looks(label for labels in groups.values() for label in labels)
    drawn = [
        (task, name, curves_of(labels, quantity, x)) for name, quantity in quantities.items() for task, labels in groups.items()
    ]
    rows = {name for _, name, found in drawn if any(found.values())}
    if not rows:
        raise Unusable(f"nothing to draw yet: no run given has any {' or '.join(quantities)}")
    tell_missing(groups, drawn)
    drawn = [(task, name, found) for task, name, found in drawn if name in rows]
    figure, axes = panels(*cells(len(rows), len(groups)))
    for panel, (task, name, found) in zip(axes.flat, drawn, strict=False):
        for label, curves in found.items():
            if curves:
                draw_group(panel, label, curves, look[label], seeds)
        panel.set(title=task, ylabel=name)
        name_axis(panel, x)
    for panel in axes.flat[len(drawn) :]:
        panel.set_axis_off()
    legend_below(figure, axes)
    return figure


def curves_of(labels: dict[str, list[RunFiles]], quantity: Quantity, x: str) -> dict[str, list[Curve]]:
    """Return the curves of each group's runs, without empty ones."""
    return {label: [c for c in (quantity(run, x) for run in runs) if len(c.x)] for label, runs in labels.items()}


def tell_missing(groups: Groups, drawn: list[tuple[str, str, dict[str, list[Curve]]]]) -> None:
    """Name the runs of which nothing is drawn."""
    seen = {curve.run.path for _, _, found in drawn for curves in found.values() for curve in curves}
    missing = [run.path.name for labels in groups.values() for runs in labels.values() for run in runs if run.path not in seen]
    if missing:
        note(f"nothing of this to draw (yet) of {some(missing)}")
