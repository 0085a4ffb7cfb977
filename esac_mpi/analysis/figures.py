"""How the figures look: colours, panels, axes, legend, and the files they are written to. Needs matplotlib.

Importing this sets matplotlib's style, and its backend where nobody has chosen one (a notebook has). Raises Missing.
"""

import os
import textwrap
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.curves import AXES
from esac_mpi.analysis.messages import Missing
from esac_mpi.analysis.names import order
from esac_mpi.config import ALGORITHMS

os.environ.setdefault("MPLBACKEND", "Agg")
try:
    import matplotlib
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
except ImportError as error:
    raise Missing("Plots need matplotlib: pip install esac_mpi[analysis]") from error

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito: colour-blind safe
PLAIN = [name.upper() for name in ALGORITHMS][: len(COLOURS)]  # have a colour of their own
COMPUTED = "computed"  # the axis of a wall time that was not measured
STYLES = ("-", "--", "-.", ":")
Look = dict[str, tuple[str, str]]  # {label: (colour, line style)}

STYLE: dict[str, Any] = {
    "font.size": 10, "axes.titlesize": "medium", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.25, "legend.frameon": False, "legend.fontsize": "small", "legend.handlelength": 2.8, "pdf.fonttype": 42,
}  # fmt: skip
plt.style.use(STYLE)


def looks(labels: Iterable[str]) -> Look:
    """Return a colour and a line style for each label, the same in every panel and, for the plain algorithms, every figure."""
    names = sorted(set(labels), key=order)
    taken = {name: COLOURS[PLAIN.index(name)] for name in names if name in PLAIN}
    free = [colour for colour in COLOURS if colour not in taken.values()]
    others = [(colour, "-") for colour in free] + [(colour, style) for style in STYLES[1:] for colour in COLOURS]
    return {name: (taken[name], "-") for name in taken} | dict(
        zip((n for n in names if n not in taken), cycle(others), strict=False)
    )


def cells(quantities: int, tasks: int) -> tuple[int, int]:
    """Return rows and columns of panels: a row for each quantity, a column for each task; a long row is wrapped."""
    if min(quantities, tasks) > 1 or quantities * tasks <= 3:
        return (quantities, tasks) if quantities > 1 < tasks else (1, quantities * tasks)
    columns = int(np.ceil(np.sqrt(quantities * tasks)))
    return -(-quantities * tasks // columns), columns


def panels(rows: int, columns: int, width: float = 3.7, height: float = 2.7) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes [rows, columns]."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(0.7 + width * columns, 0.9 + height * rows), squeeze=False, layout="constrained"
    )
    return figure, axes


def wall_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for times up to so many seconds, and its length [s]."""
    return ("h", 3600.0) if seconds >= 7200 else ("min", 60.0) if seconds >= 300 else ("s", 1.0)


def name_axis(axes: Axes, x: str) -> None:
    """Name the horizontal axis, in its unit; times are drawn in seconds."""
    name = AXES.get(x, "wall time, computed")
    if x in ("wall", COMPUTED):
        unit, length = wall_unit(axes.get_xlim()[1])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / length:g}")
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(steps=[1, 2, 3, 6, 10] if length > 1 else [1, 2, 5, 10]))
        name = f"{name} [{unit}]"
    elif x.endswith("steps"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(name)


def legend_below(figure: Figure, axes: np.ndarray) -> None:
    """Put one legend for all panels below them, each label once."""
    found = {label: handle for panel in axes.flat for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    widest = max(map(len, found), default=1)
    columns = max(1, min(len(found), int(figure.get_size_inches()[0] * 13 / (widest + 6))))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def headline(figure: Figure, text: str) -> None:
    """Write a line above all panels, broken where the figure ends."""
    unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
    figure.suptitle(textwrap.fill(unbroken, int(figure.get_size_inches()[0] * 15)), fontsize="small")


def save(figure: Figure, out: Path) -> Iterator[Path]:
    """Write a figure and yield the files: the one named, or both PNG and PDF where no suffix is given."""
    suffixes = [out.suffix] if out.suffix in (".png", ".pdf", ".svg") else [".png", ".pdf"]
    for suffix in suffixes:
        path = out.with_name(out.name.removesuffix(suffix) + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"CreationDate": None} if suffix == ".pdf" else None)
        yield path
    plt.close(figure)
