"""Pictures of rows of results: curves, or what a swept field does. Needs matplotlib."""

import numpy as np

from esac_mpi.analysis.colours import algorithm_of, looks
from esac_mpi.analysis.curves import Axis, Curve, last_before
from esac_mpi.analysis.figures import Figure, headline, panels
from esac_mpi.analysis.grids import summary
from esac_mpi.analysis.intervals import interval, mean
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.plots import TITLES
from esac_mpi.analysis.results import standings
from esac_mpi.analysis.results.traces import MEASURED, WALL, Sections, Trace, Wall
from esac_mpi.analysis.sensitivity import Point, lines, normalised
from esac_mpi.analysis.sensitivity_picture import figure

POLICIES = {"better": "better", **standings.POLICIES}
WHOSE = {
    "better": "the better of a run's policies",
    "theta_es": "theta_es",
    "learner": "the learner's policy",
}
CURVES = {  # {what: (field, its name, title, default axis)}; of returns, the field is the policy's
    "returns": ("", "episodic return", "Noise-free evaluations of {}", "env_steps"),
    "training": ("training_return", "training return", TITLES["training"], "training_episodes"),
    "updates": ("gradient_updates", "gradient updates", TITLES["updates"], "nominal_steps"),
}
AT_END = {
    "fitness": ("fitness_mean", "mean fitness, mean over generations"),
    "return": ("better", "mean return of the last evaluation"),
}
UNNAMED = "0.4"  # colour of a variant whose own name stands beside it, and names no algorithm


def curves(
    sections: Sections,
    what: str,
    x: str | None = None,
    policy: str = "better",
    seeds: bool = False,
    wall: Wall = MEASURED,
) -> Figure:
    """Draw one of CURVES against an axis: a panel for each task, a line for each variant."""
    field, y, title, axis = CURVES[what]
    field, axis = field or POLICIES[policy], x or axis
    title = title.format(WHOSE[policy])
    named: Axis = axis
    if axis == WALL:
        title += wall.where
        named = wall.ranks or "wall"

    def quantity(trace: Trace, _: Axis) -> Curve:
        return trace.curve(axis, field)

    return summary(sections, {y: quantity}, named, title, seeds, counts=what == "updates")


def number(value: str) -> float | str:
    """Return a swept value as a number where it is one."""
    try:
        return float(value)
    except ValueError:
        return value


def sensitivity(
    sections: Sections,
    measure: str = "fitness",
    field: str = "value",
    normalise: bool = False,
    seeds: bool = False,
) -> Figure:
    """Draw a measure (AT_END) against the swept `field`: a panel a task, a line a variant."""
    y, name = AT_END[measure]
    traces = [one for labels in sections.values() for group in labels.values() for one in group]
    points = [
        Point(
            trace.title,
            trace.rows[0].variant,
            number(trace.rows[0].value),
            last_before(trace.curve("env_steps", y)),
            trace.name,
        )
        for trace in traces
        if trace.rows[0].value
    ]
    found = lines(points, field)
    if normalise:
        found, name = normalised(found), f"{name} / best of the line"
    return figure(found, field, name, "At the end of each run", seeds)


def ends(sections: Sections, policy: str = "better") -> Figure:
    """Draw the last returns: a panel a task, a line a variant, the best first. Raises Unusable."""
    y = POLICIES[policy]
    last = {
        title: {
            label: np.array([t.curve("env_steps", y).y[-1] for t in traces if t.has(y)])
            for label, traces in labels.items()
        }
        for title, labels in sections.items()
    }
    last = {title: kept for title, labels in last.items() if (kept := ranked(labels))}
    if not last:
        raise Unusable(f"nothing to draw: no run has a return of {WHOSE[policy]}")
    look = looks({label: algorithm_of(label) for labels in last.values() for label in labels})
    drawing, axes = panels(1, len(last), 4.5, 0.4 + 0.25 * max(map(len, last.values())))
    for panel, (title, labels) in zip(axes.flat, last.items(), strict=True):
        for place, (label, seeds) in enumerate(labels.items()):
            colour = look[label].colour if algorithm_of(label) else UNNAMED
            low, high = interval([seeds], mean) if len(seeds) > 1 else (seeds[0], seeds[0])
            bars = np.maximum([[seeds.mean() - low], [high - seeds.mean()]], 0)
            panel.errorbar(seeds.mean(), place, xerr=bars, fmt="o", ms=5, capsize=3, color=colour)
            panel.plot(seeds, np.full(len(seeds), place), ".", ms=6, alpha=0.5, color=colour)
        panel.set_yticks(range(len(labels)), labels)
        panel.invert_yaxis()
        panel.set(title=title, xlabel="episodic return")
    headline(
        drawing,
        f"Last noise-free evaluation of {WHOSE[policy]}:"
        " each seed, their mean and its 95 % interval",
    )
    return drawing


def ranked(labels: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the variants that have returns, the one of the highest mean first."""
    there = [(label, seeds) for label, seeds in labels.items() if seeds.size]
    return dict(sorted(there, key=lambda one: -one[1].mean()))
