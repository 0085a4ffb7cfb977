"""The picture of what one parameter does: means and intervals over seeds. Needs matplotlib."""

import textwrap
from typing import Any

import numpy as np

from esac_mpi.analysis.colours import Look, algorithm_of, looks
from esac_mpi.analysis.figures import Axes, Figure, cells, headline, legend_below, literal, panels
from esac_mpi.analysis.groups import shown
from esac_mpi.analysis.intervals import interval, mean
from esac_mpi.analysis.sensitivity import Line, Panels, values_of

HIGH = 24  # letters beside a panel


def figure(found: Panels, field: str, measure: str, title: str, seeds: bool = False) -> Figure:
    """Draw lines against the field's values.

    measure: name of the vertical axis; title: what the points are.
    """
    values = values_of(found)
    look = looks({label: algorithm_of(label) for row in found.values() for label in row})
    drawing, axes = panels(*cells(1, len(found)))
    for panel, (task, row) in zip(axes.flat, found.items(), strict=False):
        for label, each in row.items():
            draw_line(panel, label, each, values, look[label], seeds)
        panel.set(title=task, ylabel=textwrap.fill(measure, HIGH))
        set_axis(panel, field, values)
    for panel in axes.flat[len(found) :]:
        panel.set_axis_off()
    legend_below(drawing, axes)
    headline(drawing, f"{title}. Points: mean over seeds; bars: its 95 % interval")
    return drawing


def places(found: Line, values: list[Any]) -> np.ndarray:
    """Return the values' places on the axis: themselves if they are numbers, else their order."""
    numbers = are_numbers(values)
    return np.array([value if numbers else values.index(value) for value in found], float)


def are_numbers(values: list[Any]) -> bool:
    """Whether all values are numbers, and none is a truth value."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def draw_line(
    axes: Axes, name: str, found: Line, values: list[Any], look: Look, seeds: bool
) -> None:
    """Draw one line with its intervals."""
    x, means = places(found, values), np.array([measures.mean() for measures in found.values()])
    ends = np.array([interval([m], mean) if len(m) > 1 else (m[0], m[0]) for m in found.values()])
    counts = sorted({len(m) for m in found.values()})
    several = f"{counts[0]} to {counts[-1]}" if counts[1:] else str(counts[0])
    label = f"{literal(name)}, {several} seed{'s' if counts[-1] > 1 else ''} a point"
    colour, style, width = look
    bars = np.maximum([means - ends[:, 0], ends[:, 1] - means], 0)
    axes.errorbar(
        x, means, bars, fmt=style, color=colour, lw=width, marker="o", ms=4, capsize=3, label=label
    )
    if seeds:
        for place, measures in zip(x, found.values(), strict=True):
            axes.plot(np.full(len(measures), place), measures, ".", color=colour, ms=4, alpha=0.5)


def set_axis(axes: Axes, field: str, values: list[Any]) -> None:
    """Scale and name the horizontal axis: logarithmic where values span more than 20-fold."""
    axes.set_xlabel(field)
    if not are_numbers(values):
        axes.set_xticks(range(len(values)), [shown(value) for value in values])
        return
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 20 * min(positive) and min(values) >= 0:
        if min(values) > 0:
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=min(positive))
