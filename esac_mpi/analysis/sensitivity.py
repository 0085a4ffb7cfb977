"""What one parameter does: a measure of runs or rows against its values. Needs matplotlib."""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.analysis import figures
from esac_mpi.analysis.colours import Look, algorithm_of, looks
from esac_mpi.analysis.figures import Axes, Figure
from esac_mpi.analysis.groups import format_value, grouped, refuse_twins, settings
from esac_mpi.analysis.intervals import interval, mean
from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.outcomes import OF_POLICY, At, outcome
from esac_mpi.analysis.returns import BETTER, require_policy
from esac_mpi.config import suggest
from esac_mpi.config.fields import full_name
from esac_mpi.config.renamed import RENAMED
from esac_mpi.record import RunFiles

HIGH = 24  # letters beside a panel

Line = dict[Any, np.ndarray]  # {value of the field: measures [runs]}
Panels = dict[str, dict[str, Line]]  # {title: {label: line}}


@dataclass(frozen=True)
class Point:
    """What one run measured at its value of the field; nan: nothing yet."""

    panel: str
    label: str
    value: Any
    measure: float
    name: str  # of the run, in a sentence


def sort_lines(points: list[Point], field: str) -> Panels:
    """Sort measures into lines, values ascending; name the runs that have none.

    Raises Unusable where fewer than two values of the field were measured.
    """
    if missing := [point.name for point in points if not np.isfinite(point.measure)]:
        note(f"left out, nothing to measure, or not that far: {shorten(missing)}")
    measured = [point for point in points if np.isfinite(point.measure)]
    if len(values := {point.value for point in measured}) < 2:
        there = f"is {format_value(*values)} in every run" if values else "has no measured run"
        raise Unusable(f"--field {field} {there}: a sweep needs two values or more")
    kinds = {isinstance(point.value, int | float) or type(point.value) for point in measured}
    found: Panels = {}
    for point in measured:
        line = found.setdefault(point.panel, {}).setdefault(point.label, {})
        # numbers among words are words
        value = format_value(point.value) if len(kinds) > 1 else point.value
        line[value] = np.append(line.get(value, np.zeros(0)), point.measure)
    return {
        title: {label: dict(sorted(line.items())) for label, line in row.items()}
        for title, row in found.items()
    }


def setting_of(run: RunFiles, field: str) -> str:
    """Return the field's dotted name in a run. Raises Unusable with the one like it."""
    there, name = settings(run), full_name(run.config.algorithm, field)
    if name in RENAMED:
        raise Unusable(f"--field {field}: is called --field {RENAMED[name]} now")
    if name not in there:
        like = suggest(field, there, "config.toml has those that there are")
        raise Unusable(
            f"--field {field}: no setting of {run.config.algorithm} that results depend on; {like}"
        )
    return name


def measure_sweep(
    runs: list[RunFiles],
    field: str,
    measure: str = "final",
    at_steps: int = 0,
    policy: str = BETTER,
) -> Panels:
    """Measure a swept field: a panel a task, a line for other settings. Raises Unusable."""
    if measure in OF_POLICY:
        require_policy(runs, policy)
    names = {setting_of(run, field) for run in runs}
    points = []
    for task, row in grouped(runs, names).items():
        for label, group in row.items():
            values = [settings(run)[setting_of(run, field)] for run in group]
            refuse_twins(group, values)
            for run, value in zip(group, values, strict=True):
                found = outcome(run, measure, At(at_steps or np.inf), policy)
                points.append(Point(task, label, value, found, run.path.name))
    return sort_lines(points, field)


def divide_by_best(found: Panels) -> Panels:
    """Divide each line by the size of its best mean."""

    def scaled(line: Line) -> Line:
        best = abs(max(measures.mean() for measures in line.values())) or 1.0
        return {value: measures / best for value, measures in line.items()}

    return {
        title: {label: scaled(line) for label, line in row.items()} for title, row in found.items()
    }


def draw_lines(found: Panels, field: str, measure: str, title: str, seeds: bool = False) -> Figure:
    """Draw lines against the field's values.

    measure: name of the vertical axis; title: what the points are.
    """
    values = sorted({value for row in found.values() for line in row.values() for value in line})
    look = looks({label: algorithm_of(label) for row in found.values() for label in row})
    drawing, axes = figures.wrapped_panels(len(found))
    for panel, (task, row) in zip(axes, found.items(), strict=True):
        for label, each in row.items():
            draw_line(panel, label, each, values, look[label], seeds)
        figures.name_panel(panel, task)
        panel.set_ylabel(textwrap.fill(measure, HIGH))
        set_axis(panel, field, values)
    figures.legend_below(drawing)
    figures.add_title(drawing, f"{title}. Points: mean over seeds; bars: its 95 % interval")
    return drawing


def are_numbers(values: list[Any]) -> bool:
    """Whether all values are numbers that an axis has, and none is a truth value."""
    numbers = (isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return all(numbers) and bool(np.isfinite(values).all())


def draw_line(
    axes: Axes, name: str, found: Line, values: list[Any], look: Look, seeds: bool
) -> None:
    """Draw one line with its intervals; values that are no numbers stand in their order."""
    x = np.array(list(found) if are_numbers(values) else list(map(values.index, found)), float)
    means = np.array([measures.mean() for measures in found.values()])
    ends = np.array([interval([m], mean) if len(m) > 1 else (m[0], m[0]) for m in found.values()])
    counts = sorted({len(m) for m in found.values()})
    several = f"{counts[0]} to {counts[-1]}" if counts[1:] else str(counts[0])
    label = f"{figures.escape(name)}, {several} seed{'s' if counts[-1] > 1 else ''} a point"
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
        axes.set_xticks(
            range(len(values)), [figures.escape(format_value(value)) for value in values]
        )
        return
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 20 * min(positive) and min(values) >= 0:
        if min(values) > 0:
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=min(positive))
