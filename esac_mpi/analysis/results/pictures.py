"""Pictures of rows of results: curves, or what a swept field does. Needs matplotlib."""

from pathlib import Path

import numpy as np

from esac_mpi.analysis.colours import algorithm_of, looks
from esac_mpi.analysis.curves import Curve, last_before
from esac_mpi.analysis.episodes import WINDOW
from esac_mpi.analysis.figures import COMPUTED, Figure, headline, panels
from esac_mpi.analysis.grids import summary
from esac_mpi.analysis.intervals import interval, mean
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results.traces import MEASURED, Sections, Trace, Wall
from esac_mpi.analysis.sensitivity import Line, Point, lines, normalised
from esac_mpi.analysis.sensitivity_picture import figure

POLICIES = {"better": "better", "theta_es": "return_theta_es", "learner": "return_learner"}
NAMES = {"returns": "episodic return", "training": "training return", "updates": "gradient updates"}
TITLES = {
    "returns": "Noise-free evaluations of {}",
    "training": f"Moving average over {WINDOW} training episodes",
    "updates": "Gradient updates so far",
}
WHOSE = {
    "better": "the better of a run's policies",
    "theta_es": "theta_es",
    "learner": "the learner's policy",
}
AT_END = {
    "fitness": ("fitness_mean", "mean fitness, mean over generations"),
    "return": ("better", "mean return of the last evaluation"),
}
UNNAMED = "0.4"  # colour of a variant whose own name stands beside it, and names no algorithm
DEFAULT_X = {"returns": "env_steps", "training": "training_episodes", "updates": "nominal_steps"}


def curves(
    sections: Sections,
    what: str,
    x: str | None = None,
    policy: str = "better",
    seeds: bool = False,
    wall: Wall = MEASURED,
) -> Figure:
    """Draw a quantity (NAMES) against an axis: a panel for each task, a line for each variant."""
    axis = x or DEFAULT_X[what]
    y = {"returns": POLICIES[policy], "training": "training_return", "updates": "gradient_updates"}[
        what
    ]

    def quantity(trace: Trace, _: str) -> Curve:
        return trace.curve(axis, y)

    title, name = TITLES[what].format(WHOSE[policy]), axis
    if axis == "wall_seconds":
        title, name = title + wall.where, COMPUTED if wall.ranks else "wall"
    return summary(sections, {NAMES[what]: quantity}, name, title, seeds, counts=what == "updates")


def number(value: str) -> float | str:
    """Return a swept value as a number where it is one."""
    try:
        return float(value)
    except ValueError:
        return value


def swept(sections: Sections, y: str) -> tuple[dict[str, Line], dict[str, str]]:
    """Collect the runs' last numbers by value, and algorithms, of each line. Raises Unusable."""
    points, algorithms = [], {}
    for title, labels in sections.items():
        traces = [trace for group in labels.values() for trace in group if trace.rows[0].value]
        several = len({trace.rows[0].variant for trace in traces}) > 1
        for trace in traces:
            label = f"{title}, {trace.rows[0].variant}" if several else title
            algorithms[label] = algorithm_of(trace.label)
            measure = last_before(trace.curve("env_steps", y))
            points.append(Point("", label, number(trace.rows[0].value), measure, trace.name))
    found = lines(points).get("", {})
    if len({value for line in found.values() for value in line}) < 2:
        raise Unusable(
            "--what sensitivity: a sweep needs two values or more with something measured"
        )
    return found, algorithms


def sensitivity(
    sections: Sections,
    measure: str = "fitness",
    field: str = "value",
    normalise: bool = False,
    seeds: bool = False,
) -> Figure:
    """Draw a measure (AT_END) against the swept `field`, a line for each task and variant."""
    y, name = AT_END[measure]
    found, algorithms = swept(sections, y)
    found = {label: normalised(line) for label, line in found.items()} if normalise else found
    name = f"{name} / best of the line" if normalise else name
    title = "At the end of each run"
    return figure({"": found}, field, name, title, seeds, (5.5, 3.5), algorithms)


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


def suffixed(out: Path) -> Path:
    """Return the file to write: PNG where nothing else is named."""
    return out if out.suffix in (".png", ".pdf", ".svg") else out.with_name(out.name + ".png")
