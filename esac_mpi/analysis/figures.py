"""How figures look (colours, panels, axes, legend), and their files. Needs matplotlib.

Importing this sets matplotlib's style, and its backend where nobody has chosen one (a notebook
has). Raises Missing.
"""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.colours import ink
from esac_mpi.analysis.curves import AXES, Axis
from esac_mpi.analysis.messages import Missing, Unusable
from esac_mpi.host.errors import INSTALL
from esac_mpi.host.paths import PICTURES, has_suffix, whole_file

os.environ.setdefault("MPLBACKEND", "Agg")
try:
    import matplotlib
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
except ImportError as error:
    raise Missing(f"Plots need matplotlib: {INSTALL} '.[analysis]'") from error

# of matplotlib: who takes them from here has the style and the backend set
__all__ = ["Axes", "EngFormatter", "Figure", "matplotlib", "plt"]
LETTERS, LINE = 13, 0.2  # of a legend: how many fit into an inch, and the height of a line [inches]
FONT = 10.0  # in which these are measured [points]
FEW = 6  # most lines of a panel that are named at their ends
WHOLE = {"integer": True, "min_n_ticks": 1}  # of ticks that count
ROOM = 0.4  # most of a panel's width that such names may have
SIZE: ContextVar[Sequence[float] | None] = ContextVar("size", default=None)  # asked for [inches]

STYLE: dict[str, Any] = {
    "font.size": FONT, "axes.titlesize": "medium", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False,
    "legend.fontsize": "small", "legend.handlelength": 2.8, "pdf.fonttype": 42,
}  # fmt: skip
plt.style.use(STYLE)


@contextmanager
def use_size(size: Sequence[float] | None, font: float | None) -> Iterator[None]:
    """Set size [inches] and font [points] of figures drawn inside; None: as fits their panels."""
    mark = SIZE.set(size)
    try:
        with matplotlib.rc_context({"font.size": font or FONT}):
            yield
    finally:
        SIZE.reset(mark)


def figure_size(width: float, height: float) -> Sequence[float]:
    """Return the requested figure size, or else this one [inches]."""
    return SIZE.get() or (width, height)


def scale() -> float:
    """Return the font size as a share of FONT."""
    return float(plt.rcParams["font.size"]) / FONT


def panels(
    rows: int, columns: int, width: float = 3.7, height: float = 2.7
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes [rows, columns]."""
    size = figure_size(0.7 + width * columns, 0.9 + height * rows)
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")


def wrapped_panels(
    count: int, width: float = 3.7, height: float = 2.7
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes [count], in several rows where there are more than three."""
    columns = count if count <= 3 else int(np.ceil(np.sqrt(count)))
    figure, axes = panels(-(-count // columns), columns, width, height)
    for spare in axes.flat[count:]:
        spare.set_axis_off()
    return figure, axes.flat[:count]


class InUnits(matplotlib.ticker.MaxNLocator):
    """Puts ticks at round numbers of a unit that is so long in the axis's own."""

    def __init__(self, length: float) -> None:
        super().__init__(steps=[1, 2, 5, 10])
        self._length = length

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        within = super().tick_values(vmin / self._length, vmax / self._length)
        return [tick * self._length for tick in within]


def dot(x: np.ndarray) -> str:
    """Choose a line's marker: none, but at a single place, where it is not seen, a dot."""
    return "." if len(x) == 1 else ""


def band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, **how: Any) -> None:
    """Draw a band from low to high; at a single place, where it has no width, a bar."""
    axes.fill_between(x, low, high, lw=3 if len(x) == 1 else 0, **how)


def name_axis(axes: Axes, x: Axis) -> None:
    """Name the horizontal axis, in its unit; times are drawn in seconds."""
    name = "wall time, computed" if isinstance(x, int) else AXES[x]
    if isinstance(x, int) or x == "wall":
        seconds = axes.get_xlim()[1]
        unit, length = (
            ("h", 3600) if seconds >= 7200 else ("min", 60) if seconds >= 300 else ("s", 1)
        )
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / length:g}")
        axes.xaxis.set_major_locator(InUnits(length))
        name = f"{name} [{unit}]"
    else:
        axes.xaxis.get_major_locator().set_params(**WHOLE)
        if x.endswith("steps") or axes.get_xlim()[1] >= 10_000:  # digits would run into each other
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(name)


def name_lines(figure: Figure) -> None:
    """Name all lines: at their ends where they are few and their names short, else in a legend."""
    panels = {axes: axes.get_legend_handles_labels()[0] for axes in figure.axes}
    columns = len({panel.get_position().x0 for panel in figure.axes})
    every: list[Any] = [line for lines in panels.values() for line in lines]
    longest = max((len(str(line.get_label())) for line in every), default=0) / LETTERS * scale()
    few = max(map(len, panels.values())) <= FEW and all(np.size(line.get_xdata()) for line in every)
    if not few or longest > ROOM * figure.get_figwidth() / columns:
        legend_below(figure)
        return
    if not SIZE.get():
        figure.set_figwidth(figure.get_figwidth() + columns * longest)
    for panel, lines in panels.items():
        name_ends(panel, lines)


def name_ends(axes: Axes, lines: list[Any]) -> None:
    """Write each line's name right of the panel, at the height where the line ends."""
    axes.set_ylim(axes.get_ylim())
    place = axes.transData - axes.transAxes
    ends = sorted((place.transform(line.get_xydata()[-1])[1], i) for i, line in enumerate(lines))
    step = LINE * scale() * axes.figure.dpi / axes.bbox.height
    for height, (_, i) in zip(spread_out([end for end, _ in ends], step), ends, strict=True):
        colour = ink(matplotlib.colors.to_hex(lines[i].get_color()))
        how: dict[str, Any] = {"color": colour, "fontsize": "small", "va": "center"}
        axes.text(1.02, height, lines[i].get_label(), transform=axes.transAxes, **how)


def spread_out(places: Sequence[float], step: float) -> np.ndarray:
    """Spread ascending places at least a step apart, the last at 1 at most."""
    steps = step * np.arange(len(places))
    found = np.maximum.accumulate(np.minimum(places, 1.0) - steps) + steps
    return np.minimum(found, 1.0 - steps[::-1])


def legend_below(figure: Figure) -> None:
    """Put one legend for all panels below them, each label once; the figure grows by its lines."""
    found = {
        label: handle
        for panel in figure.axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    room = int(figure.get_size_inches()[0] * LETTERS / scale())
    texts = [textwrap.fill(label, max(room - 6, 10)) for label in found]
    widest = max((len(line) for text in texts for line in text.splitlines()), default=1)
    columns = max(1, min(len(found), room // (widest + 6)))
    lines = -(-sum(text.count("\n") + 1 for text in texts) // columns)
    if not SIZE.get():
        figure.set_figheight(figure.get_figheight() + LINE * scale() * max(0, lines - 1))
    figure.legend(found.values(), texts, loc="outside lower center", ncols=columns)


def escape(name: str) -> str:
    """Escape dollars, which begin mathematics for matplotlib, and a first _, which hides a line."""
    return re.sub("^_", " _", name.replace("$", r"\$"))


def name_panel(axes: Axes, text: str) -> None:
    """Write a name above a panel, broken where the panel ends."""
    grid, figure = axes.get_gridspec(), axes.get_figure(root=True)
    assert grid is not None
    assert figure is not None
    width = figure.get_figwidth() / grid.ncols
    axes.set_title(escape(textwrap.fill(text, int(10 * width / scale()))))


def add_title(figure: Figure, text: str) -> None:
    """Write a line above all panels, broken where the figure ends."""
    unbroken = escape(text).replace(" %", "\N{NO-BREAK SPACE}%")
    wrapped = textwrap.fill(unbroken, int(figure.get_size_inches()[0] * 17 / scale()))
    figure.suptitle(wrapped, fontsize="small")


def save(figure: Figure, out: Path) -> Iterator[Path]:
    """Write a figure and yield the files: the one named, or PNG and PDF without a suffix.

    Raises Unusable for a name that no file has.
    """
    if out.name in ("", ".."):
        raise Unusable(f"{out}: a directory; name the file in it")
    suffixes = [out.suffix] if has_suffix(out, *PICTURES) else [".png", ".pdf"]
    for suffix in suffixes:
        path = out.with_name(out.name.removesuffix(suffix) + suffix)
        metadata = {"CreationDate": None} if has_suffix(path, ".pdf") else None
        with whole_file(path) as file:
            figure.savefig(file, dpi=150, metadata=metadata)
        yield path
    plt.close(figure)
