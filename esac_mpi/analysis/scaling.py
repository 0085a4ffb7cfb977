"""The picture of how generations scale with ranks and population size, which the shades of an algorithm's colour tell."""

from collections.abc import Container, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from esac_mpi.analysis import published
from esac_mpi.analysis.colours import STYLES, algorithm_of, looks, ramp
from esac_mpi.analysis.figures import Axes, Figure, headline, legend_below, matplotlib, panels
from esac_mpi.analysis.generation_times import Times, efficiency, per_episode, per_generation

MARKERS = "os^vDP"


def draw(
    axes: Axes,
    by_x: dict[int, list[float]],
    look: dict[str, Any],
    label: str,
    ideal: bool,
    hollow: Container[int] = (),
) -> None:
    """Draw a line through the means, bars from the smallest to the largest run, and the ideal line; hollow: what was computed."""
    x = np.array(sorted(by_x))
    means = np.array([np.mean(by_x[at]) for at in x])
    low, high = np.array([[min(by_x[at]), max(by_x[at])] for at in x]).T
    axes.plot(x, means, **look, lw=1.5, ms=4.5, label=label)
    empty = np.array([at in hollow for at in x])
    axes.plot(x[empty], means[empty], **{**look, "ls": "none"}, mfc="white", ms=4.5)
    axes.vlines(x, low, high, color=look["color"], lw=1)
    if ideal and len(x) > 1:
        axes.plot(x, means[0] * x[0] / x, ls=(0, (1, 2)), lw=1, color=look["color"])


def style(labels: list[str], label: str) -> dict[str, Any]:
    """Return line style and marker of an algorithm."""
    index = labels.index(label)
    return {"ls": STYLES[index % len(STYLES)], "marker": MARKERS[index % len(MARKERS)]}


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
    """Return the figure; printed: what a paper prints, drawn beside it."""
    sizes, labels = sorted({n for _, n in times}), list(dict.fromkeys(label for label, _ in times))
    own = {
        label: look.colour
        for label, look in looks({label: algorithm_of(label) for label in labels}).items()
    }
    shades = {
        label: dict(zip(sizes, ramp(own[label], len(sizes)), strict=True)) for label in labels
    }
    drawing, ((generation, episode), (share, population)) = panels(2, 2, 4.2, 3.0)
    for (label, n), line in times.items():
        look, name = {**style(labels, label), "color": shades[label][n]}, f"{label}, n = {n:,}"
        hollow = {ranks for ranks, points in line.items() if points[0].computed}
        draw(
            generation,
            {r: per_generation(p) for r, p in line.items()},
            look,
            name,
            ideal=not hollow,
            hollow=hollow,
        )
        draw(
            episode,
            {r: per_episode(p) for r, p in line.items()},
            look,
            name,
            ideal=not hollow,
            hollow=hollow,
        )
        draw(
            share,
            {r: [value] for r, value in efficiency(line).items()},
            look,
            name,
            ideal=False,
            hollow=hollow,
        )
    for (label, n), seconds in printed.items():
        look = {"color": shades.get(label, {}).get(n, "0.5"), "marker": "+x"[label == labels[0]]}
        generation.plot(
            list(seconds),
            list(seconds.values()),
            **look,
            ls=":",
            lw=0.8,
            ms=5,
            label=f"paper: {label}, n = {n}",
        )
    all_ranks = sorted({ranks for line in times.values() for ranks in line})
    for label in labels:
        for shade, ranks in zip(ramp(own[label], len(all_ranks)), all_ranks, strict=True):
            by_n = {
                n: per_generation(found[ranks])
                for (name, n), found in times.items()
                if name == label and ranks in found
            }
            look = {**style(labels, label), "color": shade}
            if by_n:
                hollow = {n for n in by_n if times[label, n][ranks][0].computed}
                draw(
                    population,
                    by_n,
                    look,
                    f"{label}, {ranks:,} rank{'s' * (ranks > 1)}",
                    ideal=False,
                    hollow=hollow,
                )
    name_panel(generation, "ranks", "seconds per generation", set(all_ranks))
    name_panel(episode, "ranks", "seconds per episode", set(all_ranks))
    name_panel(share, "ranks", "parallel efficiency", set(all_ranks), logarithmic=False)
    share.axhline(1, ls=(0, (1, 2)), lw=1, color="0.3")
    share.set_ylim(bottom=0)
    name_panel(population, "population size n", "seconds per generation", set(sizes))
    headline(drawing, title)
    legend_below(drawing, np.array([generation, population]))
    return drawing


def numbers(times: Times) -> Iterator[str]:
    """Yield a line for each point."""
    for (label, n), line in times.items():
        for ranks, share in efficiency(line).items():
            points = line[ranks]
            seconds, each = np.mean(per_generation(points)), np.mean(per_episode(points))
            told = f"{seconds:.4g} s a generation, {each:.4g} s an episode, efficiency {share:.2f}"
            yield f"{label} n={n} ranks={ranks}: {told}{', computed' * points[0].computed}"
