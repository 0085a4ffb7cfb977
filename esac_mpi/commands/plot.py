"""Draw learning curves of runs, or their training returns, mutation rate, fitness, losses, or the timeline of their ranks.

    esac-mpi plot RUN [RUN ...] [--what return|training|sigma|fitness|losses|fates|timeline]
                         [--x env_steps|nominal_steps|training_episodes|wall|generation] [--policy better|theta_es|sac|...]
                         [--seeds] [--ranks R [--updates-per-second U]]
                         [--label TEXT ...] [--out NAME]

Several runs: runs of one task, algorithm and settings are seeds of one group. A line is their interquartile mean, its band the
95 % bootstrap interval; a panel per task; --seeds adds each run as a thin line. A group is drawn as far as its shortest run.
--label names the groups, once for each in the legend's order: --label "ESAC, adopting" --label ES. An algorithm keeps its colour.
One run: all its policies, unless --policy names one, with the band from worst to best episode, and mean and maximum of the noisy
population; for fitness the quartiles and extremes of the members; for timeline every rank (of several runs, or against
another --x than wall: their idle share). Returns are of noise-free evaluations, of the better of a run's
policies each time, or of --policy; training is the moving average over 50 training episodes, against their number (Figure
2 left of the ESAC paper); fates how often the learner's actor was an elite, selected or discarded after its injection into a
population, of all such selections so far (Figure 11 of the PDERL paper). Steps are those of population and learner; evaluation
steps are not on the axis.
--x wall --ranks R: the wall time that the runs would have taken on R ranks of this kind, computed from the recorded durations and
the program's own dealing (docs/performance.md), with a learner of U updates/s in place of the one that was recorded.
Writes NAME.png and NAME.pdf, or NAME alone if it ends in one of them. Needs matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import (
    add_labels,
    add_machine,
    add_policy,
    add_runs,
    ended,
    machine_of,
    opened,
    parser,
    refuse_unread,
)
from esac_mpi.analysis.curves import AXES
from esac_mpi.host.paths import given

KINDS = ("return", "training", "sigma", "fitness", "losses", "fates", "timeline")


def pictures(line: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[Path]:
    """Draw what the options ask for; yield the files written."""
    from esac_mpi.analysis.figures import save
    from esac_mpi.analysis.plots import figure

    unread = ["policy"] if options.what != "return" else []
    if options.what == "timeline":  # waiting is computed by another tool
        unread += ["ranks", "updates_per_second"]
    refuse_unread(line, options, f"--what {options.what}", unread)
    runs = opened(options.runs)
    name = "learning_curve" if options.what == "return" else options.what
    drawing = figure(
        runs,
        options.what,
        options.x,
        options.policy,
        options.seeds,
        machine_of(options),
        options.label,
    )
    yield from save(drawing, options.out or (options.runs[0] if len(runs) == 1 else Path()) / name)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument("--what", choices=KINDS, default="return")
    line.add_argument(
        "--x",
        choices=AXES,
        help="horizontal axis; default: env_steps, training_episodes for training",
    )
    add_policy(line, "whose returns")
    add_machine(line)
    add_labels(line)
    line.add_argument("--seeds", action="store_true", help="each run as a thin line")
    line.add_argument(
        "--out",
        type=given,
        metavar="NAME",
        help="default: learning_curve, or what is drawn; in the run if it is one",
    )
    return line


def main(argv: list[str]) -> int:
    """Write the pictures and print their paths; return 2 if there is nothing to draw, 65 if a run cannot be read."""
    line = command_line()
    options = line.parse_args(argv)
    return ended(lambda: pictures(line, options))
