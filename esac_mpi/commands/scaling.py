"""Draw how generations scale with ranks and population size, from real runs (Figures 2 centre and 5 of the ESAC paper).

    esac-mpi scaling RUN [RUN ...] [--last 10] [--ranks R ...] [--published] [--numbers] [--out NAME]

Four panels: seconds per generation and per episode, and parallel efficiency, against ranks; seconds per generation against
population size. A line per population size, and per algorithm and other settings. Dotted: ideal, the time on the fewest ranks
divided by how many times more there are. The parallel efficiency is ideal / measured. Bars: smallest and largest of several runs.
--ranks adds, hollow, what the runs on the fewest ranks would have taken on so many, computed (esac_mpi/analysis/clock/) as if
nothing had been evaluated; ideal lines are then left out. --published draws what the paper prints of this task beside it.
A generation's time is its wall time without the noise-free evaluation, which the paper has not; mean of the last generations on
the last number of ranks, never the first generation. Per episode: divided by the episodes of the population. One task at a time.
For a simulation without runs: python -m tools.bench scaling. Writes NAME.png and NAME.pdf. Needs matplotlib.
Cost: 2 s, and 0.1 s a run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis import published
from esac_mpi.analysis.command import add_runs, ended, opened, parser
from esac_mpi.analysis.generation_times import times_of
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given


def report(options: argparse.Namespace) -> Iterator[object]:
    """Draw the runs; yield the numbers if asked for, and the files written."""
    from esac_mpi.analysis.figures import save
    from esac_mpi.analysis.scaling import figure, numbers

    if any(ranks < 1 for ranks in options.ranks):
        raise Unusable("--ranks must be 1 or more")
    if options.last < 1:
        raise Unusable("--last must be 1 or more")
    runs = opened(options.runs)
    task = runs[0].config.task.id
    printed, source = published.times(task) if options.published else ({}, "")
    times = times_of(runs, options.last, options.ranks)
    if options.numbers:
        yield from numbers(times)
    parts = [
        f"{task}: mean of the last {options.last} generations",
        "hollow: computed" if options.ranks else "dotted: ideal",
    ]
    yield from save(
        figure(times, "; ".join([*parts, *([f"paper: {source}"] if source else [])]), printed),
        options.out,
    )


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument(
        "--last",
        type=whole,
        default=10,
        metavar="G",
        help="generations that are averaged; the paper's 10",
    )
    line.add_argument(
        "--ranks", nargs="+", type=whole, default=[], metavar="R", help="computed for so many too"
    )
    line.add_argument("--published", action="store_true", help="beside what the paper prints")
    line.add_argument("--numbers", action="store_true", help="print the numbers too")
    line.add_argument("--out", type=given, default=Path("scaling"), metavar="NAME")
    return line


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    options = command_line().parse_args(argv)
    return ended(lambda: report(options))
