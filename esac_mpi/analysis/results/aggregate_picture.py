"""The aggregate of an experiment as a picture: each variant's interquartile mean, and beside it its scores task by task."""

from typing import Any

import numpy as np

from esac_mpi.analysis.figures import Axes, Figure, headline, looks, plt
from esac_mpi.analysis.results.aggregate_page import champion_of, when
from esac_mpi.analysis.results.aggregates import estimate, iqm
from esac_mpi.analysis.results.scores import Study, Task
from esac_mpi.analysis.results.traces import Wall

LEAST = -0.25  # score at which a panel of a task ends; what is below is an arrow there
COLUMNS = 3  # of panels of tasks
SPREAD = 0.5  # of a variant's line, over which its seeds lie


def figure(study: Study, name: str, wall: Wall) -> Figure:
    """Return the figure; name: the variant that is written in bold. Raises Unusable."""
    champion = champion_of(study, name)
    found = {label: estimate(study.scores(label), iqm) for label in study.variants}
    order = sorted(study.variants, key=lambda label: -found[label].value)
    look = looks(study.variants)
    rows, columns = -(-len(study.tasks) // COLUMNS), min(COLUMNS, len(study.tasks))
    lines = 0.2 * len(order)  # height of a panel of a task [inches]
    size = (5.4 + 2.2 * columns, max(2.6, 0.8 + rows * (lines + 0.7)))
    drawing = plt.figure(figsize=size, layout="constrained")
    halves: Any = drawing.subfigures(1, 2, width_ratios=[4.0, 1.4 + 2.2 * columns])
    left, right = halves
    whole, panels = left.subplots(), right.subplots(rows, columns, squeeze=False).ravel()
    for place, label in enumerate(order):
        value, low, high = found[label]
        colour = look[label][0]
        if np.isfinite(low):
            whole.barh(place, high - low, left=low, height=0.55, color=colour, alpha=0.55, lw=0)
        whole.plot([value, value], [place - 0.275, place + 0.275], color="black", lw=2, solid_capstyle="butt")
    named(whole, order, champion)
    whole.set_xlim(left=min(0.0, whole.get_xlim()[0]))
    many = f"{len(study.whole)} task{'s' * (len(study.whole) > 1)}"
    whole.set(title=f"All together ({many})", xlabel="interquartile mean, 95 % interval")
    for number, task in enumerate(study.tasks):
        panel = panels[number]
        draw_task(panel, task, order, [look[label][0] for label in order])
        named(panel, order if number % columns == 0 else [""] * len(order), champion)
        if number + columns >= len(study.tasks):
            panel.set_xlabel("score")
    for panel in panels[len(study.tasks) :]:
        panel.set_visible(False)
    said = f"Returns {when(wall)}; 0: random actions, 1: the best that any run reached by then. Dots: seeds, lines: their means"
    headline(drawing, said)
    return drawing


def named(axes: Axes, labels: list[str], champion: str) -> None:
    """Write the variants beside their lines, from top to bottom, and give all panels the same lines."""
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() == champion else "normal")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def draw_task(axes: Axes, task: Task, order: list[str], colours: list[str]) -> None:
    """Draw the scores of a task's runs."""
    for place, (label, colour) in enumerate(zip(order, colours, strict=True)):
        if not len(scores := task.normalised(label)):
            continue
        heights = place + np.linspace(-SPREAD / 2, SPREAD / 2, len(scores)) if len(scores) > 1 else np.array([place])
        seen = scores >= LEAST
        axes.plot(scores[seen], heights[seen], "o", ms=3.5, mew=0, color=colour, alpha=0.6)
        if not seen.all():
            axes.plot(np.full((~seen).sum(), LEAST), heights[~seen], "<", ms=4, mew=0, color=colour, alpha=0.8, clip_on=False)
        middle = max(float(scores.mean()), LEAST)
        axes.plot([middle] * 2, [place - 0.38, place + 0.38], color=colour, lw=2, solid_capstyle="butt")
    axes.set_xlim(LEAST, 1.06)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_title(task.title.rpartition("/")[2] + ("\n(not in the aggregate)" if task.why_not else ""), fontsize="small")
