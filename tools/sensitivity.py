"""Draw what one parameter does: a measure against the values of a field (Figures 2 right and 6 left of the ESAC paper).

    python tools/sensitivity.py RUN [RUN ...] --field esac.amt_clip [--measure best|final|population_max|mean] [--at-steps N]
                                [--policy better|theta_es|sac] [--normalise] [--seeds] [--out NAME]

A point is the mean over the runs of one value, its bar the 95 % bootstrap interval of that mean; a single run is a point alone.
A panel per task, a line per algorithm and other settings. A field without a table (sigma) is each algorithm's own.
--measure mean is the population's mean fitness over all generations, as in Figure 2. --normalise divides by the best value of a
line and puts all tasks into one panel, as in Figure 6. tools/sweep.py makes such runs. Writes NAME.png and NAME.pdf. Needs
matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from esac_mpi.analysis.command import Unusable, ended, note, opened, some, tell_unfinished
from esac_mpi.analysis.curves import MEASURES, POLICIES, RIVALS, measured
from esac_mpi.analysis.figures import Axes, Figure, cells, headline, legend_below, looks, panels, save
from esac_mpi.analysis.groups import DEFAULTS, grouped, refuse_twins, settings, shown
from esac_mpi.analysis.intervals import interval, mean

from esac_mpi.record import RunFiles

Line = dict[Any, np.ndarray]  # {value of the field: measures [runs]}


def full_name(run: RunFiles, field: str) -> str:
    """Return the field's dotted name in a run. Raises Unusable with the nearest one."""
    name = field if field in DEFAULTS else f"{run.config.algorithm}.{field}"
    if name not in settings(run):
        nearest = difflib.get_close_matches(field, DEFAULTS, 1, 0.0)[0]
        raise Unusable(f"--field {field}: no setting of {run.config.algorithm} that results depend on; did you mean {nearest}?")
    return name


def line(runs: list[RunFiles], options: argparse.Namespace) -> Line:
    """Return the measures of a group's runs by the value of the field, in its order, without runs that have none."""
    by_value: dict[Any, list[RunFiles]] = {}
    for run in runs:
        by_value.setdefault(settings(run)[full_name(run, options.field)], []).append(run)
    found = {}
    for value in sorted(by_value):
        refuse_twins(by_value[value])
        limit = options.at_steps or np.inf
        measures = np.array([measured(run, options.measure, limit, options.policy) for run in by_value[value]])
        if missing := [run.path.name for run, m in zip(by_value[value], measures, strict=True) if not np.isfinite(m)]:
            note(f"left out, nothing to measure: {some(missing)}")
        if np.isfinite(measures).any():
            found[value] = measures[np.isfinite(measures)]
    return found


def lines(runs: list[RunFiles], options: argparse.Namespace) -> dict[str, dict[str, Line]]:
    """Return {panel: {label: line}}. Raises Unusable where the field does not vary."""
    names = {full_name(run, options.field) for run in runs}
    panels = {task: {n: line(group, options) for n, group in found.items()} for task, found in grouped(runs, names).items()}
    panels = {task: {n: found for n, found in row.items() if found} for task, row in panels.items()}
    values = {value for row in panels.values() for found in row.values() for value in found}
    if len(values) < 2:
        told = f"is {shown(values.pop())} in every run" if values else "has no measured run"
        raise Unusable(f"--field {options.field} {told}: a sweep needs two values or more")
    if options.normalise:
        return {"all tasks": {f"{task}, {n}": normalised(found) for task, row in panels.items() for n, found in row.items()}}
    return panels


def normalised(found: Line) -> Line:
    """Return a line divided by the size of its best mean."""
    best = abs(max(measures.mean() for measures in found.values())) or 1.0
    return {value: measures / best for value, measures in found.items()}


def places(found: Line, values: list[Any]) -> np.ndarray:
    """Return where the values stand on the axis: themselves if they are numbers, else their order."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return np.array([value if numbers else values.index(value) for value in found], float)


def draw_line(axes: Axes, name: str, found: Line, values: list[Any], look: tuple[str, str], seeds: bool) -> None:
    """Draw one line with its intervals."""
    x, means = places(found, values), np.array([measures.mean() for measures in found.values()])
    ends = np.array([interval([m], mean) if len(m) > 1 else (m[0], m[0]) for m in found.values()])
    counts = sorted({len(m) for m in found.values()})
    label = f"{name}, {counts[0]}{f' to {counts[-1]}' if counts[1:] else ''} seed{'s' * (counts[-1] > 1)} a point"
    colour, style = look
    bars = np.maximum([means - ends[:, 0], ends[:, 1] - means], 0)
    axes.errorbar(x, means, bars, fmt=style, color=colour, lw=1.5, marker="o", ms=4, capsize=3, label=label)
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
        axes.set_xscale("log") if min(values) > 0 else axes.set_xscale("symlog", linthresh=min(positive))


def figure(runs: list[RunFiles], options: argparse.Namespace) -> Figure:
    """Return the figure. Raises Unusable."""
    found = lines(runs, options)
    tell_unfinished(runs)
    values = sorted({value for row in found.values() for each in row.values() for value in each})
    look = looks(label for row in found.values() for label in row)
    drawing, axes = panels(*cells(1, len(found)))
    for panel, (task, row) in zip(axes.flat, found.items(), strict=False):
        for label, each in row.items():
            draw_line(panel, label, each, values, look[label], options.seeds)
        panel.set(title=task, ylabel="measure / best of the line" if options.normalise else "episodic return")
        set_axis(panel, options.field, values)
    for panel in axes.flat[len(found) :]:
        panel.set_axis_off()
    when = f", at {options.at_steps:,} true steps" if options.at_steps else ""
    headline(drawing, f"{MEASURES[options.measure].capitalize()}{when}. Points: mean over seeds; bars: its 95 % interval")
    legend_below(drawing, axes)
    return drawing


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--field", required=True, help="the parameter, as on the command line of esac_mpi")
    parser.add_argument("--measure", choices=MEASURES, default="best")
    parser.add_argument("--at-steps", type=int, metavar="N", help="true steps of population and learner [steps]")
    parser.add_argument("--policy", choices=("better", *POLICIES, *RIVALS), default="better", help="whose evaluations")
    parser.add_argument("--normalise", action="store_true", help="divide by each line's best; one panel for all tasks")
    parser.add_argument("--seeds", action="store_true", help="each run as a small point")
    parser.add_argument("--out", type=Path, default=Path("sensitivity"), metavar="NAME")
    options = parser.parse_args(argv)

    def pictures() -> Iterator[Path]:
        yield from save(figure(opened(options.runs), options), options.out)

    return ended(pictures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
