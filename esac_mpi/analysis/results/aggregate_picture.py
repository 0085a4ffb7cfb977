"""The aggregate as a picture: each variant's interquartile mean, and its scores task by task."""

import numpy as np

from esac_mpi.analysis.colours import Look, algorithm_of, looks
from esac_mpi.analysis.figures import Axes, Figure, cells, headline, plt
from esac_mpi.analysis.results.aggregate_page import when
from esac_mpi.analysis.results.aggregates import Estimate, estimate, iqm
from esac_mpi.analysis.results.scores import Study, Task
from esac_mpi.analysis.results.traces import Wall
from esac_mpi.analysis.results.verdicts import champion_of

LEAST = -0.25  # score at which a panel of a task ends; what is below is an arrow there
SPREAD = 0.5  # of a variant's line, over which its seeds lie
# height of a variant's line in a panel of a task, width of a letter of its name [inches]
LINE, LETTER = (0.17, 0.075)


def figure(study: Study, name: str, wall: Wall) -> Figure:
    """Draw the aggregate; name: the variant that is written in bold."""
    champion = champion_of(study.variants, name)
    found = {label: estimate(study.scores(label), iqm) for label in study.variants}
    order = sorted(study.variants, key=lambda label: -found[label].value)
    look = looks({label: algorithm_of(label) for label in study.variants})
    rows, columns = cells(1, len(study.tasks))
    names = LETTER * max(map(len, order))
    widths = [3.2 + names, 2.1 * columns + names]  # [inches]
    height = max(2.8, 1.0 + rows * (0.55 + LINE * len(order)))
    drawing = plt.figure(figsize=(sum(widths), height), layout="constrained")
    left, right = drawing.subfigures(1, 2, squeeze=False, width_ratios=widths)[0]
    whole = left.subplots()
    draw_whole(whole, found, order, champion, look)
    panels = right.subplots(rows, columns, squeeze=False, sharey=True).flat
    for panel, task in zip(panels, study.tasks, strict=False):
        draw_task(panel, task, order, champion, look)
    for panel in panels[len(study.tasks) :]:
        panel.set_axis_off()
    many = f"{len(study.tasks)} task{'s' * (len(study.tasks) > 1)}"
    whole.set(title=f"{many} together", xlabel="IQM of the scores and its 95 % interval")
    said = (
        f"Returns {when(wall)}; scores of tasks: 0 random actions, 1 the best that any run reached"
        " by then. Dots: seeds, lines: their means"
    )
    low = any((task.normalised(label) < LEAST).any() for task in study.tasks for label in order)
    headline(drawing, f"{said}; arrows: below {LEAST}" if low else said)
    return drawing


def draw_whole(
    axes: Axes, found: dict[str, Estimate], order: list[str], champion: str, look: dict[str, Look]
) -> None:
    """Draw the interquartile mean and interval of each variant."""
    for place, label in enumerate(order):
        value, low, high = found[label]
        colour = look[label].colour
        if np.isfinite(low):
            axes.barh(place, high - low, left=low, height=0.5, color=colour, alpha=0.5, lw=0)
        axes.plot([value] * 2, [place - 0.25, place + 0.25], color=colour, lw=2.5)
    axes.use_sticky_edges = False  # room beside the bars
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    name_lines(axes, order, champion)


def name_lines(axes: Axes, labels: list[str], champion: str) -> None:
    """Write the variants beside their lines, from top to bottom, the same lines in all panels."""
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() == champion else "normal")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def draw_task(
    axes: Axes, task: Task, order: list[str], champion: str, look: dict[str, Look]
) -> None:
    """Draw the scores of a task's runs."""
    for place, label in enumerate(order):
        scores = task.normalised(label)
        spread = SPREAD if len(scores) > 1 else 0.0
        heights = place + np.linspace(-spread / 2, spread / 2, len(scores))
        low, own = scores < LEAST, look[label].colour
        axes.plot(scores[~low], heights[~low], "o", ms=3.5, mew=0, color=own, alpha=0.5)
        edge = np.full(low.sum(), LEAST + 0.03)
        axes.plot(edge, heights[low], "<", ms=4, mew=0, color=own, alpha=0.8)
        if (middle := scores.mean()) >= LEAST:
            axes.plot([middle] * 2, [place - 0.4, place + 0.4], color=own, lw=2)
    name_lines(axes, order, champion)
    axes.set_xlim(LEAST, 1.06)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_title(task.title.rpartition("/")[2], fontsize="small")
