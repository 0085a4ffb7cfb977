"""What one parameter does: a measure against the values of a field. Runs come as files or as rows of results."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.analysis.colours import Look, algorithm_of, looks
from esac_mpi.analysis.evaluations import BETTER, require_policy
from esac_mpi.analysis.figures import Axes, Figure, cells, headline, legend_below, literal, panels
from esac_mpi.analysis.groups import KWARGS, grouped, refuse_twins, settings, shown
from esac_mpi.analysis.intervals import interval, mean
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.outcomes import OF_POLICY, At, outcome
from esac_mpi.config import table_of
from esac_mpi.config.names import meant
from esac_mpi.record import RunFiles

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


# ---- points to lines


def lines(points: Iterable[Point]) -> Panels:
    """Return the measures as lines, values ascending; name the runs that have none."""
    points = list(points)
    if missing := [point.name for point in points if not np.isfinite(point.measure)]:
        note(f"left out, nothing to measure, or not that far: {some(missing)}")
    measured = [point for point in points if np.isfinite(point.measure)]
    mixed = {isinstance(point.value, str) for point in measured} == {
        True,
        False,
    }  # numbers among words are words
    found: Panels = {}
    for point in measured:
        line = found.setdefault(point.panel, {}).setdefault(point.label, {})
        value = str(point.value) if mixed else point.value
        line[value] = np.append(line.get(value, np.zeros(0)), point.measure)
    return {
        title: {label: dict(sorted(line.items())) for label, line in row.items()}
        for title, row in found.items()
    }


def values_of(found: Panels) -> list[Any]:
    """Return the values of the field that were measured, ascending."""
    return sorted({value for row in found.values() for line in row.values() for value in line})


def full_name(run: RunFiles, field: str) -> str:
    """Return the field's dotted name in a run. Raises Unusable with the one like it."""
    there = settings(run)
    name = field if field in there else f"{table_of(run.config.algorithm)}.{field}"
    if name not in there:
        like = meant(field, there, "config.toml has those that there are")
        raise Unusable(
            f"--field {field}: no setting of {run.config.algorithm} that results depend on; {like}"
        )
    return name


def refuse_without(runs: list[RunFiles], field: str) -> None:
    """Raise Unusable where only some runs have set a keyword argument of the task: the others' value is nowhere written."""
    without = [run.path.name for run in runs if field not in settings(run)]
    if field.startswith(f"{KWARGS}.") and 0 < len(without) < len(runs):
        raise Unusable(
            f"--field {field}: {some(without)}: made without it, and no file says what their task's default is: leave them out, "
            f"or make them with --{field}"
        )


def of_runs(
    runs: list[RunFiles],
    field: str,
    measure: str = "final",
    at_steps: int = 0,
    policy: str = BETTER,
) -> Panels:
    """Return the lines of a swept field, a panel per task, a line per algorithm and other settings.

    Raises Unusable where the field does not vary, only some runs have it, a value has one seed twice, or no run has such a
    policy.
    """
    if measure in OF_POLICY:
        require_policy(runs, policy)
    refuse_without(runs, field)
    names = {full_name(run, field) for run in runs}
    points = []
    for task, row in grouped(runs, names).items():
        for label, group in row.items():
            by_value: dict[Any, list[RunFiles]] = {}
            for run in group:
                value = settings(run)[full_name(run, field)]
                by_value.setdefault(value, []).append(run)
                points.append(
                    Point(
                        task,
                        label,
                        value,
                        outcome(run, measure, At(at_steps), policy),
                        run.path.name,
                    )
                )
            for twins in by_value.values():
                refuse_twins(twins)
    found = lines(points)
    if len(values := values_of(found)) < 2:
        told = f"is {shown(values[0])} in every run" if values else "has no measured run"
        raise Unusable(f"--field {field} {told}: a sweep needs two values or more")
    return found


def together(found: Panels) -> Panels:
    """Return all lines in one panel, each divided by the size of its best mean."""
    return {
        "all tasks": {
            f"{task}, {name}": normalised(line)
            for task, row in found.items()
            for name, line in row.items()
        }
    }


def normalised(found: Line) -> Line:
    """Return a line divided by the size of its best mean."""
    best = abs(max(measures.mean() for measures in found.values())) or 1.0
    return {value: measures / best for value, measures in found.items()}


# ---- lines to a picture


def figure(
    found: Panels,
    field: str,
    measure: str,
    seeds: bool = False,
    size: tuple[float, float] = (3.7, 2.7),
    algorithms: Mapping[str, str] | None = None,
) -> Figure:
    """Return the figure of lines against the field's values.

    measure: name of the vertical axis; size: of a panel [inches]; algorithms: of the labels, None where these name them.
    """
    values = values_of(found)
    look = looks(
        algorithms or {label: algorithm_of(label) for row in found.values() for label in row}
    )
    drawing, axes = panels(*cells(1, len(found)), *size)
    for panel, (title, row) in zip(axes.flat, found.items(), strict=False):
        for label, each in row.items():
            draw_line(panel, label, each, values, look[label], seeds)
        panel.set(title=title, ylabel=textwrap.fill(measure, int(9 * size[1])))
        set_axis(panel, field, values)
    for panel in axes.flat[len(found) :]:
        panel.set_axis_off()
    legend_below(drawing, axes)
    return drawing


def say_what(drawing: Figure, text: str) -> Figure:
    """Write above a figure what its points and bars are."""
    headline(drawing, f"{text}. Points: mean over seeds; bars: its 95 % interval")
    return drawing


def places(found: Line, values: list[Any]) -> np.ndarray:
    """Return where the values stand on the axis: themselves if they are numbers, else their order."""
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    return np.array([value if numbers else values.index(value) for value in found], float)


def draw_line(
    axes: Axes, name: str, found: Line, values: list[Any], look: Look, seeds: bool
) -> None:
    """Draw one line with its intervals."""
    x, means = places(found, values), np.array([measures.mean() for measures in found.values()])
    ends = np.array([interval([m], mean) if len(m) > 1 else (m[0], m[0]) for m in found.values()])
    counts = sorted({len(m) for m in found.values()})
    label = f"{literal(name)}, {counts[0]}{f' to {counts[-1]}' if counts[1:] else ''} seed{'s' * (counts[-1] > 1)} a point"
    colour, style, width = look
    bars = np.maximum([means - ends[:, 0], ends[:, 1] - means], 0)
    axes.errorbar(
        x, means, bars, fmt=style, color=colour, lw=width, marker="o", ms=4, capsize=3, label=label
    )
    if seeds:
        for place, measures in zip(x, found.values(), strict=True):
            axes.plot(np.full(len(measures), place), measures, ".", color=colour, ms=4, alpha=0.5)


def set_axis(axes: Axes, field: str, values: list[Any]) -> None:
    """Scale and name the horizontal axis: logarithmic where values span more than a factor of 20."""
    axes.set_xlabel(field)
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        axes.set_xticks(range(len(values)), [shown(value) for value in values])
        return
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 20 * min(positive) and min(values) >= 0:
        axes.set_xscale("log") if min(values) > 0 else axes.set_xscale(
            "symlog", linthresh=min(positive)
        )
