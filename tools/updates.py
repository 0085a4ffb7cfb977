"""Draw the number of gradient updates against steps: what learning by gradients cost (Figures 6 right and 8 of the ESAC paper).

    python tools/updates.py RUN [RUN ...] [--x env_steps|nominal_steps|wall|generation] [--seeds] [--out NAME]

Runs of one task, algorithm and settings are seeds of one group: interquartile mean and 95 % interval, a panel per task. An
update is one of all the learner's networks. The paper's horizontal axis is nominal_steps. Writes NAME.png and NAME.pdf. Needs
matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import ended, opened
from esac_mpi.analysis.curves import AXES, column, column_curve
from esac_mpi.analysis.figures import EngFormatter, headline, save
from esac_mpi.analysis.grids import grid
from esac_mpi.analysis.groups import grouped


def pictures(options: argparse.Namespace) -> Iterator[Path]:
    """Draw the updates of all runs; yield the files written."""
    runs = opened(options.runs)
    counted = {"gradient updates": lambda run, x: column_curve(run, x, column(run, "metrics/gradient_updates").astype(float))}
    figure = grid(grouped(runs), counted, options.x, options.seeds)
    for axes in figure.axes:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    headline(figure, "Gradient updates so far; interquartile mean and 95 % interval over seeds")
    yield from save(figure, options.out)


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--x", choices=AXES, default="env_steps", help="horizontal axis")
    parser.add_argument("--seeds", action="store_true", help="each run as a thin line")
    parser.add_argument("--out", type=Path, default=Path("updates"), metavar="NAME")
    options = parser.parse_args(argv)
    return ended(lambda: pictures(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
