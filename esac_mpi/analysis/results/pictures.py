"""Pictures of rows of results: curves, sweeps, last returns, scores. Needs matplotlib."""

import textwrap

import numpy as np

from esac_mpi.analysis.colours import algorithm_of, looks
from esac_mpi.analysis.curves import Axis, Curve, last_before
from esac_mpi.analysis.figures import Figure, add_title, escape, name_panel, wrapped_panels
from esac_mpi.analysis.grids import Quantity
from esac_mpi.analysis.intervals import Estimate, estimate, iqm, mean
from esac_mpi.analysis.messages import Unusable, note_unfinished
from esac_mpi.analysis.plots import quantities
from esac_mpi.analysis.results.aggregate_page import describe_wall
from esac_mpi.analysis.results.scores import Study
from esac_mpi.analysis.results.standings import RETURNS, filter_by
from esac_mpi.analysis.results.traces import WALL, Sections, Trace, Wall, as_number, unfinished
from esac_mpi.analysis.returns import BETTER
from esac_mpi.analysis.sensitivity import Panels, Point, sort_lines

FIELDS = {"training": "training_return", "updates": "gradient_updates"}
MEASURES = {"final": "better", "mean": "fitness_mean"}
NONE = np.zeros(0)
LETTERS = 40  # of a variant's name in a line beside a panel
LEAST = -0.25  # score below which a seed is drawn at the edge
UNNAMED = "0.4"  # colour of a variant whose own name stands beside it, and names no algorithm

Standings = dict[str, dict[str, tuple[Estimate, np.ndarray]]]  # {panel: {variant: of its seeds}}


def returns_of(policy: str) -> tuple[str, str]:
    """Return the field of a policy's returns, and whose they are. Raises Unusable."""
    if policy not in RETURNS:
        raise Unusable(f"--policy {policy}: rows of results have {', '.join(RETURNS)}")
    return RETURNS[policy]


def curves_of(what: str, policy: str) -> tuple[dict[str, Quantity], str]:
    """Return the quantity of return, training or updates by its name, and whose returns are drawn.

    Wall time is that of the rows, which may be computed. Raises Unusable.
    """
    returns, whose = returns_of(policy)
    field = FIELDS.get(what, returns)

    def quantity(trace: Trace, axis: Axis) -> Curve:
        return trace.curve(WALL if axis == "wall" or isinstance(axis, int) else axis, field)

    return {next(iter(quantities(what))): quantity}, whose


def every_trace(sections: Sections) -> list[Trace]:
    """List the runs of all tasks and variants."""
    return [one for labels in sections.values() for traces in labels.values() for one in traces]


def measure_sweep(sections: Sections, field: str, measure: str, at_steps: int = 0) -> Panels:
    """Measure a swept field: a panel a task, a line a variant. Raises Unusable."""
    if measure not in MEASURES:
        raise Unusable(f"--measure {measure}: rows of results have {', '.join(MEASURES)}")
    if not at_steps:
        note_unfinished(trace.name for trace in unfinished(every_trace(sections)))
    if not any(trace.rows[0].value for trace in every_trace(sections)):
        raise Unusable(f"--field {field}: these rows have no sweep: a sweep needs two values")
    points = []
    for trace in every_trace(sections):
        row, curve = trace.rows[0], trace.curve("env_steps", MEASURES[measure])
        there = row.value and trace.rows[-1].env_steps >= at_steps
        found = last_before(curve, at_steps or np.inf) if there else np.nan
        points.append(Point(trace.title, row.variant, as_number(row.value), found, trace.name))
    return sort_lines(points, field)


def draw_last_returns(sections: Sections, policy: str = BETTER) -> Figure:
    """Draw the last returns: a panel a task, a row a variant, the best first. Raises Unusable."""
    y, whose = returns_of(policy)
    standing: Standings = {}
    for title, labels in sections.items():
        if there := filter_by(labels, y):
            standing[title] = estimate_means(
                {
                    label: np.array([trace.curve("env_steps", y).y[-1] for trace in traces])
                    for label, traces in there.items()
                }
            )
    if not standing:
        raise Unusable(f"nothing to draw: no run has a return of {whose}")
    note_unfinished(trace.name for trace in unfinished(every_trace(sections)))
    title = f"Last noise-free evaluation of {whose}: each seed, their mean and its interval"
    return draw_standings(standing, "episodic return", title)


def draw_scores(study: Study, wall: Wall) -> Figure:
    """Draw an aggregate: each variant's interquartile mean, and its scores task by task."""
    together = {label: (estimate(study.scores(label), iqm), NONE) for label in study.variants}
    found: Standings = {f"all {len(study.tasks)} together: IQM": together}
    for task in study.tasks:
        found[task.title] = estimate_means({label: task.scores(label) for label in study.variants})
    title = (
        f"Scores {describe_wall(wall)}: 0 random actions, 1 the best that any run reached by then."
        f" Each seed, their mean and its interval; what is below {LEAST} is drawn there"
    )
    return draw_standings(found, "score", title, LEAST)


def estimate_means(found: dict[str, np.ndarray]) -> dict[str, tuple[Estimate, np.ndarray]]:
    """Estimate the mean of each variant's seeds; return it beside them."""
    return {label: (estimate([seeds], mean), seeds) for label, seeds in found.items()}


def draw_standings(found: Standings, x: str, title: str, least: float = -np.inf) -> Figure:
    """Draw a panel for each title, a row for each variant, in the order of the first panel.

    least: of scores, what is below is drawn there.
    """
    first = next(iter(found.values()))
    labels = dict.fromkeys(label for row in found.values() for label in row)
    order = sorted(labels, key=lambda label: -first[label][0].value if label in first else np.inf)
    look = looks({label: algorithm_of(label) for label in labels})
    names = [escape(textwrap.fill(label, LETTERS)) for label in order]
    high = 1 + max(name.count("\n") for name in names)
    drawing, axes = wrapped_panels(len(found), 4.5, 0.6 + 0.25 * high * len(order))
    for panel, (name, row) in zip(axes, found.items(), strict=True):
        for place, label in enumerate(order):
            if label not in row:
                continue
            standing, seeds = row[label]
            colour = look[label].colour if algorithm_of(label) else UNNAMED
            middle, *ends = np.maximum(standing, least)
            low, high = np.where(np.isfinite(ends), ends, middle)
            bars = np.maximum([[middle - low], [high - middle]], 0)
            panel.errorbar(middle, place, xerr=bars, fmt="o", ms=5, capsize=3, color=colour)
            where = np.maximum(seeds, least)
            panel.plot(where, np.full(len(seeds), place), ".", ms=6, alpha=0.5, color=colour)
        panel.set_yticks(range(len(order)), names)
        panel.tick_params(labelleft=panel.get_subplotspec().is_first_col())
        panel.set_ylim(len(order) - 0.5, -0.5)
        name_panel(panel, name)
        panel.set_xlabel(x)
        if np.isfinite(least):
            panel.set_xlim(least - 0.05, 1.05)
    add_title(drawing, title)
    return drawing
