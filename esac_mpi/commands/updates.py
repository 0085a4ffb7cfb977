"""Draw the number of gradient updates against steps: what learning by gradients cost (Figures 6 right and 8 of the ESAC paper).

    esac-mpi updates RUN [RUN ...] [--x env_steps|nominal_steps|wall|generation] [--seeds] [--label TEXT ...] [--out NAME]

Runs of one task, algorithm and settings are seeds of one group: interquartile mean and 95 % interval, a panel per task. An
update is one of all the learner's networks; those of a population's members (CEM-RL, AES-RL, distillation) have panels of their
own. The paper's horizontal axis is nominal_steps. --label names the groups, once for each in the legend's order. Writes
NAME.png and NAME.pdf. Needs matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import add_labels, add_runs, ended, opened, parser
from esac_mpi.analysis.curves import AXES
from esac_mpi.host.paths import given


def pictures(options: argparse.Namespace) -> Iterator[Path]:
    """Draw the updates of all runs; yield the files written."""
    from esac_mpi.analysis.figures import save
    from esac_mpi.analysis.plots import updates

    yield from save(
        updates(opened(options.runs), options.x, options.seeds, options.label), options.out
    )


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument("--x", choices=AXES, default="env_steps", help="horizontal axis")
    line.add_argument("--seeds", action="store_true", help="each run as a thin line")
    add_labels(line)
    line.add_argument("--out", type=given, default=Path("updates"), metavar="NAME")
    return line


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    options = command_line().parse_args(argv)
    return ended(lambda: pictures(options))
