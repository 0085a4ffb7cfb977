"""Tell how long runs take to a number of steps, and who waits: measured, and computed for other numbers of ranks.

    esac-mpi waiting RUN [RUN ...] [--ranks R [R ...]] [--steps N] [--published] [--out FILE]

A line for the runs of one task, algorithm, settings and number of ranks, mean over seeds: minutes to N nominal steps (default: as
many as all runs of a task have), and in brackets the share of the ranks' time in which they waited for others. Beside what was
measured, what is computed from the recorded durations for each of --ranks (docs/performance.md). AES-RL's results wait for their
virtual order the less the nearer update_cost and critic_cost are to the last column: what updates took here.
--published      below it the times that the AES-RL paper prints
Reads files only, no MPI, torch or simulator. Prints the table, or the path of --out. Cost: seconds a run.
"""

import argparse
from collections.abc import Iterator
from itertools import chain

from esac_mpi.analysis import waiting
from esac_mpi.analysis.command import add_runs, ended, opened, parser, written
from esac_mpi.analysis.published import book
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given


def tables(options: argparse.Namespace) -> Iterator[object]:
    """Yield the table, or where it was written."""
    content = waiting.text(
        list(waiting.lines(opened(options.runs), options.ranks, options.steps)),
        options.ranks,
        options.steps,
    )
    content += published() * options.published
    yield from written(content, options.out)


def published() -> str:
    """Return what the paper prints, as a paragraph."""
    paper = book()["aesrl-times"]
    rows = [
        (task, ", ".join(map("{} {}".format, paper["columns"], chain(*row))))
        for task, row in paper["results"].items()
    ]
    return f"\n\n{paper['source']}: {paper['protocol']}. {'; '.join(map(': '.join, rows))}."


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument(
        "--ranks",
        type=whole,
        nargs="+",
        metavar="R",
        default=[1, 2, 6],
        help="to compute the time for",
    )
    line.add_argument(
        "--steps",
        type=whole,
        metavar="N",
        default=0,
        help="nominal steps; default: what all runs of a task have",
    )
    line.add_argument("--published", action="store_true", help="below them the paper's")
    line.add_argument("--out", type=given, metavar="FILE", help="write it there")
    return line


def main(argv: list[str]) -> int:
    """Print or write the table; return 2 if there is nothing to tell, 65 if a run cannot be read."""
    options = command_line().parse_args(argv)
    return ended(lambda: tables(options))
