"""The picture of how generations scale with ranks and, in shades of a colour, population size."""

from itertools import pairwise
from typing import Any

from esac_mpi.analysis import figures, published
from esac_mpi.analysis.colours import STYLES, algorithm_of, looks, ramp
from esac_mpi.analysis.figures import Axes, Figure
from esac_mpi.analysis.tables import Row

MARKERS = "os^vDP"


def draw(axes: Axes, x: str, y: str, rows: list[Row], look: dict[str, Any], label: str) -> None:
    """Draw a line through one column of rows against another; hollow: computed."""
    where, values = ([row[name] for row in rows] for name in (x, y))
    axes.plot(where, values, **look, lw=1.5, ms=4.5, label=figures.escape(label))
    hollow = [(row[x], row[y]) for row in rows if row[""] == "computed"]
    if hollow:
        axes.plot(*zip(*hollow, strict=True), **{**look, "ls": "none"}, mfc="white", ms=4.5)


def name_panel(axes: Axes, x: str, y: str, at: list[int], logarithmic: bool = True) -> None:
    """Scale and name a panel; ticks stand where there are runs."""
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(figures.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    kept = [a for a, b in pairwise([*at, 10**9]) if b / a > 1.15]
    axes.set_xticks(kept, [f"{tick:,}" for tick in kept])
    axes.minorticks_off()
    axes.set(xlabel=x, ylabel=y)


def draw_scaling(rows: list[Row], title: str, printed: published.Times) -> Figure:
    """Draw rows of times.scaling over ranks and population size; printed: what a paper prints."""
    labels = list(dict.fromkeys(row["run"] for row in rows))
    sizes = sorted({row["n"] for row in rows})
    all_ranks = sorted({row["ranks"] for row in rows})
    own = looks({label: algorithm_of(label) for label in labels})
    drawing, ((generation, episode), (share, population)) = figures.panels(2, 2, 4.2, 3.0)
    shades = {
        (label, n): shade
        for label in labels
        for n, shade in zip(sizes, ramp(own[label].colour, len(sizes)), strict=True)
    }
    for i, label in enumerate(labels):
        style = {"ls": STYLES[i % len(STYLES)], "marker": MARKERS[i % len(MARKERS)]}
        for n in sizes:
            line = [row for row in rows if (row["run"], row["n"]) == (label, n)]
            look, name = {**style, "color": shades[label, n]}, f"{label}, n = {n:,}"
            if not line:
                continue
            for axes, y in ((generation, "s a generation"), (episode, "s an episode")):
                draw(axes, "ranks", y, line, look, name)
                if not any(row[""] == "computed" for row in line):  # as if no rank ever waited
                    ranks = [row["ranks"] for row in line]
                    ideal = [line[0][y] * ranks[0] / each for each in ranks]
                    axes.plot(ranks, ideal, ls=(0, (1, 2)), lw=1, color=shades[label, n])
            draw(share, "ranks", "efficiency", line, look, name)
        for shade, ranks in zip(ramp(own[label].colour, len(all_ranks)), all_ranks, strict=True):
            line = [row for row in rows if (row["run"], row["ranks"]) == (label, ranks)]
            name = f"{label}, {ranks:,} rank{'s' if ranks > 1 else ''}"
            if line:
                line.sort(key=lambda row: row["n"])
                draw(population, "n", "s a generation", line, {**style, "color": shade}, name)
    for (label, n), paper in printed.items():
        look = {"color": shades.get((label, n), "0.5"), "marker": "+x"[label == labels[0]]}
        about = {"ls": ":", "lw": 0.8, "ms": 5, "label": f"paper: {label}, n = {n}"}
        generation.plot(list(paper), list(paper.values()), **look, **about)
    name_panel(generation, "ranks", "seconds per generation", all_ranks)
    name_panel(episode, "ranks", "seconds per episode", all_ranks)
    name_panel(share, "ranks", "parallel efficiency", all_ranks, logarithmic=False)
    share.axhline(1, ls=(0, (1, 2)), lw=1, color="0.3")
    share.set_ylim(bottom=0)
    name_panel(population, "population size n", "seconds per generation", sizes)
    figures.add_title(drawing, title)
    figures.legend_below(drawing)
    return drawing
