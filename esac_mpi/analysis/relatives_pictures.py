"""Pictures of policies beside their parents: returns as bars, visited states as contours, divergences as lines.

Needs matplotlib.
"""

from collections.abc import Sequence

import numpy as np

from esac_mpi.analysis.colours import NOBODYS
from esac_mpi.analysis.figures import Axes, Figure, headline, legend_below, panels
from esac_mpi.analysis.relatives import Relative, Visits, groups, normalised, tell_not_positive

LEVELS = 7  # contours of a density
LOWEST = 0.02  # of them, in parts of the highest density; a picture ends where nobody has that
MARGIN = 3  # around the contours [cells]
WIDTH = 0.8  # of a group of bars
LEVEL = 1  # place of the Gaussian mutant, after the parent; proximal ones follow


def bars(relatives: Sequence[Relative], about: str) -> Figure:
    """Return the figure of mean returns in parts of the first parent's, or as they are where no group has such parts."""
    parts, found = normalised(relatives), groups(relatives)
    whole = bool(np.isnan(parts).all())
    if not whole:
        tell_not_positive(relatives)
    drawing, axes = panels(1, 1, 1.5 + 0.75 * len(found), 3.2)
    panel, names = axes[0, 0], list(dict.fromkeys(one.name for one in relatives))
    for i, name in enumerate(names):
        mine = [group[i] for group in found]
        divisors = np.array(
            [1.0 if whole else group[0].mean if group[0].mean > 0 else np.nan for group in found]
        )
        means, spread = (
            np.array(values) / divisors
            for values in ([one.mean for one in mine], [one.std for one in mine])
        )
        known = means[np.isfinite(means)]
        label = f"{name}, median {np.median(known):.3g}" if known.size else name
        places = np.arange(len(found)) + WIDTH * ((i + 0.5) / len(names) - 0.5)
        bar = {"width": WIDTH / len(names), "color": NOBODYS[i % len(NOBODYS)], "label": label}
        panel.bar(places, means, yerr=spread, error_kw={"lw": 0.8, "alpha": 0.6}, **bar)
    panel.set_xticks(range(len(found)), [", ".join(map(str, group[-1].slots)) for group in found])
    several = len(found[0][-1].slots) > 1
    panel.set(xlabel="slots of the parents" if several else "slot of the parent")
    panel.set(ylabel="episodic return" if whole else "return / that of the first parent")
    panel.axhline(0.0 if whole else 1.0, color="grey", lw=0.8, ls=":")
    legend_below(drawing, axes)
    headline(
        drawing,
        f"{about}; thin lines: standard deviation over {len(relatives[0].returns)} episodes",
    )
    return drawing


def maps(
    seen: Sequence[Visits], dimensions: tuple[int, int], about: str, differences: bool
) -> Figure:
    """Return the figure of where relatives go: a row for each group, a panel for each; differences: from the parent's."""
    rows = groups_of(seen)
    drawing, axes = panels(len(rows), len(rows[0]), 2.6, 2.3)
    for i, (row, line) in enumerate(zip(axes, rows, strict=True)):
        for j, (panel, one) in enumerate(zip(row, line, strict=True)):
            draw_map(panel, one, differences)
            panel.set(
                xlabel=f"state {dimensions[0]}" if i == len(rows) - 1 else "",
                ylabel="" if j else f"state {dimensions[1]}",
            )
        look_closely(row, line)
    headline(drawing, f"{about}; {said(differences)}")
    return drawing


def said(differences: bool) -> str:
    """Return what the contours are."""
    blue = "blue: density of the visited states"
    return (
        f"{blue} of the parent, red: more visits by the mutant, green: fewer"
        if differences
        else blue
    )


def groups_of(seen: Sequence[Visits]) -> list[list[Visits]]:
    """Return the visits of each group."""
    numbers = dict.fromkeys(one.relative.group for one in seen)
    return [[one for one in seen if one.relative.group == number] for number in numbers]


def draw_map(panel: Axes, one: Visits, differences: bool) -> None:
    """Draw contours of a density, or of what it is beyond its parent's, in parts of the largest difference."""
    x, y = one.cells.middles
    shown = one.parents if differences else one.density
    panel.contour(
        x,
        y,
        shown.T,
        levels=np.geomspace(LOWEST, 0.95, LEVELS) * shown.max(),
        cmap="Blues",
        linewidths=0.8,
        vmin=-shown.max() / 2,
    )
    change = one.density - one.parents
    if differences and not one.relative.parent and change.any():
        scaled, shades = change / np.abs(change).max(), np.linspace(0.1, 1, LEVELS)
        for sign, colours in ((1, "Reds"), (-1, "Greens")):
            panel.contourf(x, y, sign * scaled.T, levels=shades, cmap=colours, alpha=0.6, vmin=-0.3)
    kl = "" if one.relative.parent else f", KL {one.kl:.2f}"
    panel.set_title(f"{one.relative.name}\nreturn {one.relative.mean:,.4g}{kl}", fontsize="small")


def look_closely(panels_of_group: np.ndarray, group: list[Visits]) -> None:
    """Show of a group's cells those that lie in a contour of somebody's."""
    seen = np.any([one.density > LOWEST * one.density.max() for one in group], axis=0)
    limits = []
    for axis, middles in ((1, group[0].cells.middles[0]), (0, group[0].cells.middles[1])):
        first, *_, last = np.flatnonzero(seen.any(axis=axis))
        limits.append(
            (middles[max(first - MARGIN, 0)], middles[min(last + MARGIN, len(middles) - 1)])
        )
    for panel in panels_of_group:
        panel.set(xlim=limits[0], ylim=limits[1])


def dials(seen: Sequence[Visits], dimensions: tuple[int, int], about: str) -> Figure:
    """Return the figure of how far proximal mutants go by magnitude, Gaussian ones beside: a parent's, then all in numbers."""
    rows = groups_of(seen)
    drawing, axes = panels(2, max(len(rows[0]), 3), 2.4, 2.4)
    for i, (panel, one) in enumerate(zip(axes[0], rows[0], strict=False)):
        draw_map(panel, one, differences=True)
        panel.set(xlabel=f"state {dimensions[0]}", ylabel="" if i else f"state {dimensions[1]}")
    look_closely(axes[0, : len(rows[0])], rows[0])
    for panel, name, of in (
        (axes[1, 0], "KL(parent || mutant) [nats]", "kl"),
        (axes[1, 1], "share of visits elsewhere", "difference"),
    ):
        draw_dial(panel, rows, of)
        panel.set(xlabel="proximal magnitude", ylabel=name)
    draw_dial(axes[1, 2], rows, "mean")
    axes[1, 2].set(xlabel="proximal magnitude", ylabel="episodic return")
    for panel in [*axes[0, len(rows[0]) :], *axes[1, 3:]]:
        panel.set_axis_off()
    legend_below(drawing, axes)
    headline(drawing, f"{about}; {said(True)}; lines: a parent each and their mean")
    return drawing


def draw_dial(panel: Axes, rows: list[list[Visits]], of: str) -> None:
    """Draw a number of each parent's mutants against their magnitude, of Gaussian ones as a level."""
    dial = [[(magnitude(one), number(one, of)) for one in row[LEVEL + 1 :]] for row in rows]
    levels = [number(row[LEVEL], of) for row in rows]
    for line in dial:
        panel.plot(*zip(*line, strict=True), "-", color=NOBODYS[0], lw=0.6, alpha=0.6)
    x, *_ = zip(*dial[0], strict=True)
    panel.plot(
        x,
        np.mean([[y for _, y in line] for line in dial], axis=0),
        "o-",
        ms=4,
        color=NOBODYS[0],
        label="proximal, mean",
    )
    for level in levels:
        panel.axhline(level, color=NOBODYS[1], lw=0.6, ls="--", alpha=0.6)
    panel.axhline(float(np.mean(levels)), color=NOBODYS[1], lw=1.6, ls="--", label="Gaussian, mean")


def number(one: Visits, of: str) -> float:
    """Return a number of a policy: its mean return, or how far it goes."""
    return one.relative.mean if of == "mean" else getattr(one, of)


def magnitude(one: Visits) -> float:
    """Return the magnitude of a mutant, which its name ends in."""
    return float(one.relative.name.split()[-1])
