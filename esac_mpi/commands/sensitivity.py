"""Draw what one parameter does: a measure against the values of a field (Figures 2 right and 6 left of the ESAC paper).

    esac-mpi sensitivity RUN [RUN ...] --field esac.amt_clip [--measure final|best|population_max|mean] [--at-steps N]
                                [--policy better|theta_es|sac|...] [--normalise] [--seeds] [--out NAME]

A point is the mean over the runs of one value, its bar the 95 % bootstrap interval of that mean; a single run is a point alone.
A panel per task, a line per algorithm and other settings. A field without a table (sigma) is each algorithm's own.
--measure mean is the population's mean fitness over all generations, as in Figure 2. --normalise divides by the best value of a
line and puts all tasks into one panel, as in Figure 6. esac-mpi sweep makes such runs. Writes NAME.png and NAME.pdf. Needs
matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import (
    add_policy,
    add_runs,
    ended,
    opened,
    parser,
    refuse_unread,
    tell_unfinished,
)
from esac_mpi.analysis.outcomes import MEASURES, OF_POLICY
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given


def pictures(line: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[Path]:
    """Draw the lines of all runs; yield the files written."""
    from esac_mpi.analysis import sensitivity
    from esac_mpi.analysis.figures import save

    refuse_unread(
        line,
        options,
        f"--measure {options.measure}",
        () if options.measure in OF_POLICY else ("policy",),
    )
    runs = opened(options.runs)
    found = sensitivity.of_runs(
        runs, options.field, options.measure, options.at_steps, options.policy
    )
    tell_unfinished(runs)
    found = sensitivity.together(found) if options.normalise else found
    measure = "measure / best of the line" if options.normalise else "episodic return"
    when = f", at {options.at_steps:,} true steps" if options.at_steps else ""
    drawing = sensitivity.figure(found, options.field, measure, options.seeds)
    yield from save(
        sensitivity.say_what(drawing, f"{MEASURES[options.measure].capitalize()}{when}"),
        options.out,
    )


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument(
        "--field", required=True, help="the parameter, as on the command line of esac_mpi"
    )
    line.add_argument("--measure", choices=[m for m in MEASURES if m != "fates"], default="final")
    line.add_argument(
        "--at-steps",
        type=whole,
        metavar="N",
        default=0,
        help="true steps of population and learner [steps]",
    )
    add_policy(line, "whose evaluations")
    line.add_argument(
        "--normalise",
        action="store_true",
        help="divide by each line's best; one panel for all tasks",
    )
    line.add_argument("--seeds", action="store_true", help="each run as a small point")
    line.add_argument("--out", type=given, default=Path("sensitivity"), metavar="NAME")
    return line


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    line = command_line()
    options = line.parse_args(argv)
    return ended(lambda: pictures(line, options))
