"""The race as a picture: everyone's time on each task, with the range over seeds.

A colour is an algorithm's, whoever wrote the program; a mark is a library's. What did not come in
within the limit is an open arrow there: one for a median that is later, a small one at a range's
end. Seconds are written for our champion and the best peer.
"""

import math
from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D

from esac_mpi.analysis.colours import algorithm_of, variant
from esac_mpi.analysis.figures import Axes, add_title, plt, save
from tools.race import field
from tools.race.standings import Spread, Standings, as_text

COLUMNS = 3  # panels in a row
STEP, ABOVE = 0.17, 0.55  # height of a competitor's line and of what a panel has besides [inches]
LARGE, SMALL = 8.5, 5.5  # marks, of our champion and of the others [points]
SQUARE = "s", "stable-baselines3 and sb3-contrib"
MARKS = {  # by library, with its name
    "": ("o", "this program"),
    field.SB3: SQUARE,
    field.CONTRIB: SQUARE,
    field.SBX: ("^", "SBX"),
    field.EVOTORCH: ("D", "EvoTorch"),
}
OF_SAC = {"TQC": 2, "CrossQ": 3}  # which shade of SAC's colour


def draw(found: Standings, out: Path) -> None:
    """Write the picture of a race."""
    names, tasks = found.names, found.tasks
    look = looks_of(names)
    rows = -(-len(tasks) // COLUMNS)
    size = 12.0, 1.0 + rows * (len(names) * STEP + ABOVE)
    drawing, panels = plt.subplots(
        rows, COLUMNS, figsize=size, layout="constrained", squeeze=False, sharex=True
    )
    for axes, task in zip(panels.flat, tasks, strict=False):
        draw_task(axes, found, task, look)
    for axes in panels.flat[len(tasks) :]:
        axes.set_axis_off()
    for axes in panels.flat[max(0, len(tasks) - COLUMNS) : len(tasks)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("seconds, evaluations left out")
    there = dict(MARKS[entry.library] for entry in field.ENTRIES if entry.name in names)
    style: Any = {"ls": "", "color": "0.3", "ms": SMALL}
    handles = [Line2D([], [], marker=mark, label=said, **style) for mark, said in there.items()]
    drawing.legend(handles=handles, loc="outside lower center", ncols=len(there))
    one, shows = found.rows[0], found.describe_figure(", line from the fastest to the slowest")
    where = f"{one.cores} core{'s' if one.cores > 1 else ''}"
    beyond = "open arrow: not within the limit"
    add_title(drawing, f"Time to a good policy on {where}: {shows}, {beyond}")
    list(save(drawing, out))


def looks_of(names: list[str]) -> dict[str, tuple[str, str]]:
    """Return each competitor's colour, its algorithm's or a shade, and its library's mark."""
    found = {}
    for entry in (entry for entry in field.ENTRIES if entry.name in names):
        whole = entry.name.partition(" ")[2] if entry.library else entry.name
        place = OF_SAC.get(whole, int("," in whole))
        algorithm = algorithm_of("SAC" if whole in OF_SAC else whole)
        found[entry.name] = variant(algorithm, place).colour, MARKS[entry.library][0]
    return found


def draw_task(axes: Axes, found: Standings, task: str, look: dict[str, tuple[str, str]]) -> None:
    """Draw everyone's times on a task, a line each, named beside it."""
    here = [(name, spread) for name in found.names if (spread := found.spread(task, name))]
    peer = found.best_peer(task)
    for place, (name, spread) in enumerate(here):
        named = name in {field.CHAMPION, peer[0] if peer else ""}
        draw_line(axes, place, spread, found.limit(task), look[name], name == field.CHAMPION, named)
    axes.set_yticks(range(len(here)), [name for name, _ in here], fontsize="small")
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() == field.CHAMPION else "normal")
    goal = next(row.goal for row in found.rows if row.task == task)
    axes.set_title(f"{task.removeprefix('dm_control/')}: return {goal:,g}")
    finish(axes, found, task, len(here))


def draw_line(
    axes: Axes, where: float, spread: Spread, limit: float, look: tuple[str, str],
    champion: bool, named: bool,
) -> None:  # fmt: skip
    """Draw a competitor's times on a task, with its seconds if it is to be named."""
    colour, mark = look
    size = LARGE if champion else SMALL
    least, median, most = (min(value, limit) for value in spread)
    line: Any = {"lw": 2.2 if champion else 1.3, "alpha": 0.8, "solid_capstyle": "butt"}
    axes.plot([least, most], [where, where], color=colour, **line)
    if math.isinf(spread.most):
        late = size if math.isinf(spread.median) else 0.8 * SMALL
        open_mark: Any = {"mfc": "white", "mec": colour, "mew": 1.1, "clip_on": False, "zorder": 3}
        axes.plot(limit, where, ">", ms=late, **open_mark)
    if math.isfinite(spread.median):
        axes.plot(median, where, mark, ms=size, color=colour, mec="white", mew=0.6, zorder=3)
    if named and math.isfinite(spread.median):
        text = axes.annotate(
            f"{as_text(median, '')} s",
            (most, where),
            (7, 0),
            textcoords="offset points",
            va="center",
        )
        text.set(fontsize="small", color=colour, fontweight="bold" if champion else "normal")


def finish(axes: Axes, found: Standings, task: str, lines: int) -> None:
    """Set the axes' bounds, ticks and the line of the task's limit."""
    most = max(row.limit for row in found.rows)
    least = 0.8 * min(min(row.time, row.limit) for row in found.rows)
    axes.set_xscale("log")
    axes.set_xlim(least, 1.12 * most)
    axes.set_ylim(lines - 0.4, -0.6)
    axes.axvline(found.limit(task), color="0.6", lw=0.8, ls=":", zorder=1)
    marks = [second * 10.0**power for power in range(-1, 6) for second in (1, 2, 5)]
    seen = [mark for mark in marks if least <= mark <= most]
    axes.set_xticks(seen, [f"{mark:,g}" for mark in seen])
    axes.minorticks_off()
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
