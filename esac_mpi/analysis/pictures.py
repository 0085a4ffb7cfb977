"""Pictures of rows of results: curves over steps or time, or what a swept field does. Made by results.py; needs matplotlib."""

from argparse import Namespace
from pathlib import Path

import numpy as np
from esac_mpi.analysis.command import Unusable, note, some
from esac_mpi.analysis.curves import WINDOW, Curve
from esac_mpi.analysis.figures import COLOURS, EngFormatter, Figure, headline, legend_below, looks, panels
from esac_mpi.analysis.grids import grid
from esac_mpi.analysis.intervals import interval, mean
from sensitivity import Line, draw_line, normalised, set_axis
from esac_mpi.analysis.traces import Sections, Trace

POLICIES = {"better": "better", "theta_es": "return_theta_es", "learner": "return_learner"}
NAMES = {
    "returns": "episodic return",
    "training": "training return",
    "updates": "gradient updates",
}
TITLES = {
    "returns": "Noise-free evaluations of {}",
    "training": f"Moving average over {WINDOW} training episodes",
    "updates": "Gradient updates so far",
}
WHOSE = {"better": "the better of theta_es and the learner's policy", "theta_es": "theta_es", "learner": "the learner's policy"}
DEFAULT_X = {"returns": "env_steps", "training": "training_episodes", "updates": "nominal_steps"}


def curves(sections: Sections, options: Namespace) -> Figure:
    """Return the figure of what the options name against their axis: a panel for each task, a line for each variant."""
    what = options.what
    x = options.x or DEFAULT_X[what]
    y = {"returns": POLICIES[options.policy], "training": "training_return", "updates": "gradient_updates"}[what]

    def quantity(trace: Trace, _: str) -> Curve:
        return trace.curve(x, y)

    drawing = grid(sections, {NAMES[what]: quantity}, "wall" if x == "wall_seconds" else x, options.seeds)
    if what == "updates":
        for axes in drawing.axes:
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    headline(drawing, TITLES[what].format(WHOSE[options.policy]) + "; interquartile mean and 95 % interval over seeds")
    return drawing


def number(value: str) -> float | str:
    """Return a swept value as a number where it is one."""
    try:
        return float(value)
    except ValueError:
        return value


def swept(sections: Sections, y: str) -> dict[str, Line]:
    """Return {task and variant: the last numbers of its runs by value}. Raises Unusable where nothing was swept."""
    found: dict[str, Line] = {}
    without = []
    for title, labels in sections.items():
        variants = len({trace.rows[0].variant for traces in labels.values() for trace in traces if trace.rows[0].value})
        for traces in labels.values():
            ends = {trace: trace.curve("env_steps", y).y[-1:] for trace in traces if trace.rows[0].value}
            without += [trace.name for trace, end in ends.items() if not len(end)]
            if measures := np.concatenate([*ends.values(), np.zeros(0)]).tolist():
                first = traces[0].rows[0]
                name = f"{title}, {first.variant}" if variants > 1 else title
                found.setdefault(name, {})[number(first.value)] = np.array(measures)
    if without:
        note(f"left out, nothing to measure: {some(without)}")
    if len({value for line in found.values() for value in line}) < 2:
        raise Unusable("--what sensitivity: a sweep needs two values or more with something measured")
    return found


def sensitivity(sections: Sections, options: Namespace) -> Figure:
    """Return the figure of a measure at the runs' ends against the swept value: a line for each task and variant."""
    y, name = {
        "fitness": ("fitness_mean", "mean fitness, mean over generations"),
        "return": ("better", "mean return of the last evaluation"),
    }[options.measure]
    found = swept(sections, y)
    mixed = {type(value) for line in found.values() for value in line} == {float, str}
    found = {task: {str(value) if mixed else value: line[value] for value in line} for task, line in found.items()}
    found = {task: normalised(line) for task, line in found.items()} if options.normalise else found
    values = sorted({value for line in found.values() for value in line})
    look = looks(found)
    drawing, axes = panels(1, 1, 5.5, 3.5)
    for task, line in found.items():
        draw_line(axes[0, 0], task, line, values, look[task], options.seeds)
    axes[0, 0].set(ylabel=f"{name} / best of the line" if options.normalise else name)
    set_axis(axes[0, 0], options.field, values)
    headline(drawing, "At the end of each run. Points: mean over seeds; bars: its 95 % interval")
    legend_below(drawing, axes)
    return drawing


def ends(sections: Sections, options: Namespace) -> Figure:
    """Return the figure of the last returns: a panel for each task, a line of it for each variant. Raises Unusable."""
    y = POLICIES[options.policy]
    last = {
        title: {label: np.array([t.curve("env_steps", y).y[-1] for t in traces if t.has(y)]) for label, traces in labels.items()}
        for title, labels in sections.items()
    }
    last = {
        title: kept for title, labels in last.items() if (kept := {label: seeds for label, seeds in labels.items() if seeds.size})
    }
    if not last:
        raise Unusable(f"nothing to draw: no run has a return of {WHOSE[options.policy]}")
    drawing, axes = panels(1, len(last), 4.5, 0.4 + 0.25 * max(map(len, last.values())))
    for panel, (title, labels) in zip(axes.flat, last.items(), strict=True):
        for place, seeds in enumerate(labels.values()):
            low, high = interval([seeds], mean) if len(seeds) > 1 else (seeds[0], seeds[0])
            bars = np.maximum([[seeds.mean() - low], [high - seeds.mean()]], 0)
            panel.errorbar(seeds.mean(), place, xerr=bars, fmt="o", ms=4, capsize=3, color=COLOURS[0])
            panel.plot(seeds, np.full(len(seeds), place), ".", ms=5, alpha=0.5, color=COLOURS[1])
        panel.set_yticks(range(len(labels)), labels)
        panel.invert_yaxis()
        panel.set(title=title, xlabel="episodic return")
    headline(drawing, f"Last noise-free evaluation of {WHOSE[options.policy]}: each seed, their mean and its 95 % interval")
    return drawing


def picture(sections: Sections, options: Namespace) -> Figure:
    """Return what the options ask for. Raises Unusable."""
    made = {"sensitivity": sensitivity, "ends": ends}.get(options.what, curves)
    return made(sections, options)


def suffixed(out: Path) -> Path:
    """Return the file to write: PNG where nothing else is named."""
    return out if out.suffix in (".png", ".pdf", ".svg") else out.with_name(out.name + ".png")
