"""The picture of how generations scale with ranks and, in shades of a colour, population size."""

from collections.abc import Container
from itertools import pairwise
from typing import Any

import numpy as np

from esac_mpi.analysis import published
from esac_mpi.analysis.colours import STYLES, algorithm_of, looks, ramp
from esac_mpi.analysis.figures import Axes, Figure, headline, legend_below, matplotlib, panels
from esac_mpi.analysis.times import Times, efficiency, per_episode, per_generation

MARKERS = "os^vDP"


def draw(
    axes: Axes,
    by_x: dict[int, list[float]],
    look: dict[str, Any],
    label: str,
    hollow: Container[int] = (),
    ideal: bool = False,
) -> None:
    """Draw a line through means, bars from least to largest, and the ideal; hollow: computed."""
    x = np.array(sorted(by_x))
    means = np.array([np.mean(by_x[at]) for at in x])
    axes.plot(x, means, **look, lw=1.5, ms=4.5, label=label)
    empty = np.array([at in hollow for at in x])
    axes.plot(x[empty], means[empty], **{**look, "ls": "none"}, mfc="white", ms=4.5)
    ends = [(min(by_x[at]), max(by_x[at])) for at in x]
    axes.vlines(x, *zip(*ends, strict=True), color=look["color"], lw=1)
    if ideal and len(x) > 1:
        axes.plot(x, means[0] * x[0] / x, ls=(0, (1, 2)), lw=1, color=look["color"])


def name_panel(axes: Axes, x: str, y: str, at: set[int], logarithmic: bool = True) -> None:
    """Scale and name a panel; ticks stand where there are runs."""
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ticks = sorted(at)
    kept = [a for a, b in pairwise([*ticks, 10**9]) if b / a > 1.15]
    axes.set_xticks(kept, [f"{tick:,}" for tick in kept])
    axes.minorticks_off()
    axes.set(xlabel=x, ylabel=y)


def figure(times: Times, title: str, printed: published.Times) -> Figure:
    """Draw time and efficiency against ranks and population size; printed: what a paper prints."""
    labels = list(dict.fromkeys(label for label, _ in times))
    sizes = sorted({n for _, n in times})
    all_ranks = sorted({ranks for line in times.values() for ranks in line})
    own = looks({label: algorithm_of(label) for label in labels})
    lines = {
        label: {"ls": STYLES[i % len(STYLES)], "marker": MARKERS[i % len(MARKERS)]}
        for i, label in enumerate(labels)
    }
    drawing, ((generation, episode), (share, population)) = panels(2, 2, 4.2, 3.0)
    shades = {
        (label, n): shade
        for label in labels
        for n, shade in zip(sizes, ramp(own[label].colour, len(sizes)), strict=True)
    }
    for (label, n), line in times.items():
        look, name = {**lines[label], "color": shades[label, n]}, f"{label}, n = {n:,}"
        hollow = {ranks for ranks, points in line.items() if points[0].computed}
        for axes, seconds in ((generation, per_generation), (episode, per_episode)):
            by_ranks = {r: seconds(points) for r, points in line.items()}
            draw(axes, by_ranks, look, name, hollow, ideal=not hollow)
        draw(share, {r: [value] for r, value in efficiency(line).items()}, look, name, hollow)
    for (label, n), paper in printed.items():
        look = {"color": shades.get((label, n), "0.5"), "marker": "+x"[label == labels[0]]}
        about = {"ls": ":", "lw": 0.8, "ms": 5, "label": f"paper: {label}, n = {n}"}
        generation.plot(list(paper), list(paper.values()), **look, **about)
    for label in labels:
        for shade, ranks in zip(ramp(own[label].colour, len(all_ranks)), all_ranks, strict=True):
            by_n = {
                n: line[ranks]
                for (name, n), line in times.items()
                if name == label and ranks in line
            }
            if by_n:
                name = f"{label}, {ranks:,} rank{'s' if ranks > 1 else ''}"
                hollow = {n for n, points in by_n.items() if points[0].computed}
                found = {n: per_generation(points) for n, points in by_n.items()}
                draw(population, found, {**lines[label], "color": shade}, name, hollow)
    name_panel(generation, "ranks", "seconds per generation", set(all_ranks))
    name_panel(episode, "ranks", "seconds per episode", set(all_ranks))
    name_panel(share, "ranks", "parallel efficiency", set(all_ranks), logarithmic=False)
    share.axhline(1, ls=(0, (1, 2)), lw=1, color="0.3")
    share.set_ylim(bottom=0)
    name_panel(population, "population size n", "seconds per generation", set(sizes))
    headline(drawing, title)
    legend_below(drawing, np.array([generation, population]))
    return drawing
