"""The race as a picture: for each task everyone's time on a logarithmic axis, with the range over seeds. Needs matplotlib.

What did not come in within the limit is an open arrow there: one for a median that is later, a small one at a range's end; a
cross for a run that failed. Seconds are written for our champion and the best peer.
"""

import math
from pathlib import Path

from esac_mpi.analysis.figures import COLOURS, Axes, headline, plt, save
from esac_mpi.benchmarks.race import field
from esac_mpi.benchmarks.race.standings import Spread, Standings, shown

STEP, GAP = 0.105, 2.0  # height of a competitor's line [inches], and lines that part two tasks
LARGE, SMALL = 8.5, 5.0  # marks, of our champion and of the others [points]
MARKS = {"": "o", field.SB3: "s", field.EVOTORCH: "D"}  # by library
SHADES = {
    "": (COLOURS[0], COLOURS[5], COLOURS[2], "#004D40"),
    field.SB3: (COLOURS[1], "#7A3300", COLOURS[3], "#F39C6B", COLOURS[4], "#8E4585"),
    field.EVOTORCH: ("0.3",),
}  # cold colours: ours


def draw(found: Standings, out: Path) -> None:
    """Write the picture of a race."""
    names, tasks = found.names, found.tasks
    looks = {name: look_of(name) for name in names}
    height = len(tasks) * (len(names) + GAP) * STEP
    drawing, axes = plt.subplots(figsize=(9.0, 1.5 + height), layout="constrained")
    ticks = []
    for place, task in enumerate(tasks):
        top, peer = place * (len(names) + GAP), found.best_peer(task)
        named = {field.CHAMPION, peer[0] if peer else ""}
        ticks.append(top + (len(names) - 1) / 2)
        if place % 2 == 0:
            axes.axhspan(top - (1 + GAP) / 2, top + len(names) - 1 + (1 + GAP) / 2, color="0.96", lw=0, zorder=0)
        for line, name in enumerate(names):
            if spread := found.spread(task, name):
                draw_line(axes, top + line, spread, found.limit(task), looks[name], name in named)
    goals = {row.task: row.goal for row in found.rows}
    axes.set_yticks(ticks, [f"{task.removeprefix('dm_control/')}\nreturn {goals[task]:,g}" for task in tasks])
    finish(axes, found, len(tasks) * (len(names) + GAP) - GAP)
    for name in names:
        colour, mark = looks[name]
        axes.plot([], [], mark, color=colour, ms=LARGE if name == field.CHAMPION else SMALL, label=name)
    legend = drawing.legend(loc="outside lower center", ncols=min(5, len(names)))
    legend.get_texts()[0].set_fontweight("bold" if names[0] == field.CHAMPION else "normal")
    one, shows = found.rows[0], found.shows(", line from the fastest to the slowest")
    headline(
        drawing, f"Time to a good policy on {one.cores} core{'s' * (one.cores > 1)}: {shows}, "
        f"open arrow: not within the limit{', cross: failed' * bool(found.failed)}",
    )  # fmt: skip
    list(save(drawing, out))


def look_of(name: str) -> tuple[str, str]:
    """Return the colour and the mark of a competitor, the same whoever else takes part."""
    entry = next(entry for entry in field.ENTRIES if entry.name == name)
    own = [other.name for other in field.ENTRIES if other.library == entry.library]
    return SHADES[entry.library][own.index(name)], MARKS[entry.library]


def draw_line(axes: Axes, where: float, spread: Spread, limit: float, look: tuple[str, str], named: bool) -> None:
    """Draw a competitor's times on a task, with its seconds if it is to be named."""
    colour, mark = look
    champion = look == look_of(field.CHAMPION)
    size = LARGE if champion else SMALL
    least, median, most = (min(value, limit) for value in spread[:3])
    axes.plot([least, most], [where, where], color=colour, lw=2.2 if champion else 1.3, alpha=0.8, solid_capstyle="butt")
    if math.isinf(spread.most):
        late = size if math.isinf(spread.median) else 0.8 * SMALL
        failed = spread.is_failed[1 if math.isinf(spread.median) else 2]
        axes.plot(limit, where, "X" if failed else ">", ms=late, mfc="white", mec=colour, mew=1.1, clip_on=False, zorder=3)
    if math.isfinite(spread.median):
        axes.plot(median, where, mark, ms=size, color=colour, mec="white", mew=0.6, zorder=3)
    if named and math.isfinite(spread.median):
        text = axes.annotate(f"{shown(median, '')} s", (most, where), (7, 0), textcoords="offset points", va="center")
        text.set(fontsize="small", color=colour, fontweight="bold" if champion else "normal")


def finish(axes: Axes, found: Standings, end: float) -> None:
    """Set the axes' bounds, ticks and the line of the limit."""
    limits = {row.limit for row in found.rows}
    times = [row.time for row in found.rows if math.isfinite(row.time)]
    axes.set(xscale="log", xlabel="seconds from the start of the process, evaluations left out")
    axes.set_xlim(0.8 * min([*times, *limits]), 1.12 * max(limits))
    axes.set_ylim(end - 0.2, -(1 + GAP) / 2)
    for limit in limits:
        axes.axvline(limit, color="0.6", lw=0.8, ls=":", zorder=1)
    marks = [second * 10.0**power for power in range(-1, 6) for second in (1, 2, 5)]
    seen = [mark for mark in marks if axes.get_xlim()[0] <= mark < 0.8 * max(limits)] + sorted(limits)
    axes.set_xticks(seen, [f"{mark:,g}" for mark in seen])
    axes.minorticks_off()
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
