"""Draw runs: curves, a timeline of the ranks, scaling, or sensitivity.

    esac-mpi plot RUN...|CSV... [--what KIND] [--x AXIS] [--label TEXT]... [--out NAME]

Examples:
    esac-mpi plot runs/Walker2d-v5-esac-seed0                            # one run: its returns
    esac-mpi plot runs/Walker2d-v5-* --label ESAC --label SAC            # algorithms, over seeds
    esac-mpi plot runs/* --what losses --size 3.3 2.4 --font 8 --out fig.pdf     # a paper's column

Runs of one task, algorithm and settings are seeds of one group; of a CSV, the results.csv of an
experiment, those of one variant. A line is their interquartile mean, its band the 95 % bootstrap
interval, as far as the group's shortest run. There is a panel a task. Up to six lines are named at
their ends, more in a legend. Each algorithm has one colour in all pictures. The axis counts steps
of population and learner, not of evaluation.

return        noise-free evaluations of the better policy each time, or of --policy. One run alone:
              all its policies with a band from worst to best episode, and the noisy population
training      moving average over 50 training episodes (Figure 2 left of the ESAC paper)
sigma         standard deviation of the noise on members' weights
fitness       mean, maximum and standard deviation of the members
losses        what the learner reports: losses, mean Q, entropy
fates         how often the learner's actor was an elite, selected or discarded after its injection
              into a population, of all selections so far (Figure 11 of the PDERL paper)
updates       gradient updates, of the learner and of a population's members (Figures 6 right and 8)
waiting       the share of the ranks' time in which they wait
timeline      what every rank of a run did when
scaling       seconds per generation and per episode without the evaluation, and parallel
              efficiency, against ranks and population size (Figures 2 centre and 5 of the ESAC
              paper). Dotted: ideal; hollow: computed for --ranks from the runs on the fewest
sensitivity   --measure of `esac-mpi table` against the values of --field (Figures 2 right and 6
              left): mean and 95 % interval. A field without a table (sigma) is of each algorithm
ends          of a CSV: each variant's last returns, their mean and its 95 % interval; beside it a
              CSV has return, training, updates and sensitivity, of --measure final or mean

--x wall --ranks R computes the wall time on R ranks of this kind from recorded durations
(docs/results/scaling.md).
`esac-mpi table` has the numbers, scaling and waiting with --what. Writes NAME.png and NAME.pdf, or
NAME alone if it ends in .png, .pdf or .svg. Needs matplotlib. Cost: 2 s, and 0.1 s a run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from esac_mpi.analysis import command
from esac_mpi.analysis.curves import AXES
from esac_mpi.analysis.measures import select_begun
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import MEASURES, describe
from esac_mpi.host.paths import has_suffix
from esac_mpi.record import RunFiles

if TYPE_CHECKING:
    from esac_mpi.analysis.figures import Figure
    from esac_mpi.analysis.sensitivity import Panels

OF_CURVES = ("x", "seeds", "label", "ranks")
CURVES = ("training", "sigma", "fitness", "losses", "fates", "updates", "waiting")
OF_ROWS = ("return", "training", "updates", "sensitivity", "ends")  # of results.csv
READ = {  # options, by what is drawn
    "return": ("policy", *OF_CURVES),
    **dict.fromkeys(CURVES, OF_CURVES),
    "timeline": (),
    "scaling": ("last", "ranks", "published"),
    "sensitivity": ("field", "measure", "at_steps", "normalise", "seeds"),
    "ends": ("policy",),
}


def main(options: argparse.Namespace) -> Iterator[Path]:
    """Draw what the options ask for; yield the files written."""
    from esac_mpi.analysis.figures import save, use_size

    command.refuse_others(options, READ[options.what])
    if options.what == "sensitivity" and not options.field:
        raise Unusable("--what sensitivity needs --field: the parameter that varies")
    rows = {has_suffix(path, ".csv") for path in options.runs}
    if len(rows) > 1:
        raise Unusable(
            "run directories and results.csv: choose one, for there is no picture of both"
        )
    alone = len(options.runs) == 1 and not any(rows)
    name = "learning_curve" if options.what == "return" else options.what
    with use_size(options.size, options.font):
        drawing = plot_rows(options) if any(rows) else plot_runs(options)
        yield from save(drawing, options.out or (options.runs[0] if alone else Path()) / name)


def plot_runs(options: argparse.Namespace) -> "Figure":
    """Draw run directories. Raises Unusable."""
    from esac_mpi.analysis import plots, sensitivity, timeline

    what, runs = options.what, command.opened(options.runs)
    if what == "ends":
        raise Unusable("--what ends draws results.csv of an experiment; table has that of runs")
    if what == "timeline":
        if len(runs) > 1:
            others = "--what waiting draws who waits in several"
            raise Unusable(f"--what timeline draws one run; {others}")
        return timeline.draw(select_begun(runs, "draw")[0])
    if what == "scaling":
        return plot_scaling(runs, options)
    if what == "sensitivity":
        field, measure = options.field, options.measure
        found = sensitivity.measure_sweep(runs, field, measure, options.at_steps, options.policy)
        command.tell_unfinished(runs)
        return plot_swept(found, options)
    about = what, options.x, options.policy, options.seeds, command.ranks_of(options)
    return plots.figure(runs, *about, options.label)


def plot_rows(options: argparse.Namespace) -> "Figure":
    """Draw rows of results. Raises Unusable."""
    from esac_mpi.analysis import plots
    from esac_mpi.analysis.results import pictures, traces
    from esac_mpi.analysis.results.rows import read_rows

    what, rows, ranks = options.what, read_rows(options.runs), command.ranks_of(options)
    runs = traces.sections(traces.on_ranks(rows, ranks) if ranks else rows)
    if what == "ends":
        return pictures.draw_last_returns(runs, options.policy)
    if what == "sensitivity":
        command.refuse_unread(options, "--what sensitivity of results.csv", ["policy"])
        found = pictures.measure_sweep(runs, options.field, options.measure, options.at_steps)
        return plot_swept(found, options)
    if what not in OF_ROWS:
        raise Unusable(f"--what {what} draws run directories; of results.csv {', '.join(OF_ROWS)}")
    about = *pictures.curves_of(what, options.policy), options.x, options.seeds, ranks
    return plots.draw_curves(runs, what, *about, options.label)


def plot_scaling(runs: list[RunFiles], options: argparse.Namespace) -> "Figure":
    """Draw how generations scale. Raises Unusable."""
    from esac_mpi.analysis import published, times
    from esac_mpi.analysis.scaling import draw_scaling

    task = runs[0].config.task.id
    found = times.scaling(runs, options.last, options.ranks or [])
    printed, source = published.times(task) if options.published else ({}, "")
    title = f"{task}: mean of the last {options.last} generations"
    title += "; hollow: computed" if options.ranks else "; dotted: ideal"
    return draw_scaling(found, f"{title}; paper: {source}" if source else title, printed)


def plot_swept(found: "Panels", options: argparse.Namespace) -> "Figure":
    """Draw what a field does."""
    from esac_mpi.analysis.sensitivity import divide_by_best, draw_lines

    what, y = describe(options.measure, options.policy), "episodic return"
    title = what[0].upper() + what[1:]
    if options.at_steps:
        title += f", at {options.at_steps:,} true steps"
    if options.normalise:
        found, y = divide_by_best(found), f"{y} / best of the line"
    return draw_lines(found, options.field, y, title, options.seeds)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add = line.add_argument
    command.add_options(line, "runs", "--policy", "--ranks", "--last", "--at-steps")
    add("--what", choices=tuple(READ), metavar="KIND", default="return")
    add("--measure", choices=[name for name in MEASURES if name != "fates"], default="final")
    add("--field", help="of sensitivity: the parameter, as on the command line")
    text = "horizontal axis; default: env_steps, training_episodes for training"
    add("--x", choices=AXES, help=text)
    add("--normalise", action="store_true", help="of sensitivity: divide each line by its best")
    add("--seeds", action="store_true", help="each run as a thin line or point")
    text = "name of a group; once for each, in the order of the default names (their differences)"
    add("--label", action="append", default=[], metavar="TEXT", help=text)
    text, size = "width and height of the figure [inches]; default: by its panels", ("W", "H")
    inches, points = command.number_in(1, 100, "inches"), command.number_in(1, 100, "points")
    add("--size", type=inches, nargs=2, metavar=size, help=text)
    add("--font", type=points, metavar="POINTS", help="size of the letters [points] (10)")
    add("--published", action="store_true", help="of scaling: add what the paper prints")
    text = "default: learning_curve, or what is drawn; in the run if it is one"
    add("--out", type=command.out_path, metavar="NAME", help=text)
