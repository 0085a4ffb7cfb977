"""Pictures of policies beside their parents: returns as bars, visited states as contours.

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


def bars(relatives: Sequence[Relative], about: str) -> Figure:
    """Draw mean returns in parts of the first parent's, or as they are where no group has parts."""
    parts, found = normalised(relatives), groups(relatives)
    whole = bool(np.isnan(parts).all())
    if not whole:
        tell_not_positive(relatives)
    drawing, axes = panels(1, 1, 1.5 + 0.75 * len(found), 3.2)
    panel, names = axes[0, 0], list(dict.fromkeys(one.name for one in relatives))
    firsts = np.array([1.0 if whole else group[0].mean for group in found])
    divisors = np.where(firsts > 0, firsts, np.nan)
    for i, name in enumerate(names):
        means = np.array([group[i].mean for group in found]) / divisors
        spread = np.array([group[i].std for group in found]) / divisors
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
    episodes = len(relatives[0].returns)
    headline(drawing, f"{about}; thin lines: standard deviation over {episodes} episodes")
    return drawing


def maps(
    seen: Sequence[Visits], dimensions: tuple[int, int], about: str, differences: bool
) -> Figure:
    """Draw where relatives go, a row a group, a panel for each; differences: from the parent's."""
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
    said = "blue: density of the visited states"
    if differences:
        said += " of the parent, red: more visits by the mutant, green: fewer"
    headline(drawing, f"{about}; {said}")
    return drawing


def groups_of(seen: Sequence[Visits]) -> list[list[Visits]]:
    """Return the visits of each group."""
    numbers = dict.fromkeys(one.relative.group for one in seen)
    return [[one for one in seen if one.relative.group == number] for number in numbers]


def draw_map(panel: Axes, one: Visits, differences: bool) -> None:
    """Draw a density, or its parent's and the difference in parts of the largest, as contours."""
    x, y = one.cells.middles
    shown = one.parents if differences else one.density
    most = shown.max()
    levels = np.geomspace(LOWEST, 0.95, LEVELS) * most
    panel.contour(x, y, shown.T, levels=levels, cmap="Blues", linewidths=0.8, vmin=-most / 2)
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
    for axis, middles in zip((1, 0), group[0].cells.middles, strict=True):
        first, *_, last = np.flatnonzero(seen.any(axis=axis))
        low, high = max(first - MARGIN, 0), min(last + MARGIN, len(middles) - 1)
        limits.append((middles[low], middles[high]))
    for panel in panels_of_group:
        panel.set(xlim=limits[0], ylim=limits[1])
