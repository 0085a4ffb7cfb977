"""Make tables of runs: results over seeds by task and algorithm, scaling, sensitivity, waiting.

    esac-mpi table RUN [RUN ...] [--measure final|best|population_max|mean|fates]
                   [--policy better|theta_es|...]
                   [--at-steps N | --at-seconds T [--ranks R [--updates-per-second U]]]
                   [--published [PAPER ...]]
    esac-mpi table RUN [RUN ...] --what scaling [--last 10] [--ranks R ...]
    esac-mpi table RUN [RUN ...] --what sensitivity --field esac.amt_clip [--measure mean]
                   [--at-steps N]
    esac-mpi table RUN [RUN ...] --what waiting [--ranks R ...] [--steps N] [--published]
    all: [--format text|markdown|csv|json] [--out FILE]

results       mean, standard deviation and median over seeds, for every task (rows) and algorithm
              (columns). Runs of one task, algorithm and settings are seeds of one column; where
              settings differ, the column's name says in what. The best mean of a task is bold. The
              standard deviation is the sample's (n - 1); a single run has none. Columns name the
              measure. ERL and its forms have a column a policy; the champion's is what their papers
              measure. CSV and JSON have a row a cell
scaling       seconds per generation and per episode, and parallel efficiency, measured, and
              computed for other --ranks: `esac-mpi plot --what scaling` draws them and says what
              they are
sensitivity   --measure by the values of --field, mean and standard deviation over the seeds of each
waiting       minutes to N nominal steps (default: as many as all runs of a task have), and the
              share of the ranks' time in which they waited for others; mean over seeds, measured
              with whatever else the machine did, and computed from the recorded durations for each
              of --ranks (default 1 2 6; docs/results/scaling.md). AES-RL's results wait for
              their virtual order the less the nearer its update_cost [steps] and critic_cost
              [updates of an individual] are to the last columns

--measure final  mean return of the last noise-free evaluation, of the better of a run's policies,
                 or of --policy (default)
best             return of the best policy, that of policy.h5, on start states that did not choose
                 it; of --policy, and of runs of older versions, the best mean return of an
                 evaluation, which flatters
population_max   largest fitness in the last generation, of the noisy population: what the public
                 ESAC code reports
mean             mean fitness of the noisy population, mean over generations
fates            how often the learner's actor was an elite, selected or discarded after its
                 injection into a population, of all such selections [%], a column each: Table 2 of
                 the PDERL paper (--published pderl-fates)
--at-steps N     each run as it stood after N true steps of population and learner; runs that are
                 not that far are left out
--at-seconds T   the same after T seconds of wall time; with --ranks R (and --updates-per-second U)
                 of that which each would have taken on R ranks (with a learner of U updates/s),
                 computed from what it recorded
--published      beside them what the papers print (esac_mpi/analysis/published.toml), other
                 versions of the tasks: never in bold
Reads files only, no MPI, torch or simulator. Prints the table, or the path of --out. Cost: 0.1 s
a run.
"""

import argparse
from collections.abc import Iterator
from itertools import chain

from esac_mpi.analysis import sensitivity, times
from esac_mpi.analysis.command import (
    add_machine,
    add_policy,
    add_runs,
    add_scaling,
    add_sensitivity,
    ended,
    machine_of,
    opened,
    parser,
    refuse_others,
    written,
)
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import At
from esac_mpi.analysis.published import book, published
from esac_mpi.analysis.run_tables import described, table_of
from esac_mpi.analysis.tables import FORMATS, Row, long, rendered, wide
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given
from esac_mpi.record import RunFiles

RATES = "pderl-fates"  # what is printed there is no return
PRINTED = tuple(name for name in book() if not name.endswith("-times"))
READ = {  # options, by what is tabulated
    "results": ("measure", "at_steps", "at_seconds", "ranks", "updates_per_second", "published"),
    "scaling": ("last", "ranks"),
    "sensitivity": ("field", "measure", "at_steps"),
    "waiting": ("ranks", "steps", "published"),
}
About = list[str]  # lines above a table


def results(runs: list[RunFiles], options: argparse.Namespace) -> tuple[list[Row], About]:
    """Return the results over seeds. Raises Unusable."""
    machine, measure = machine_of(options), options.measure
    if options.at_steps and options.at_seconds:
        raise Unusable("--at-steps and --at-seconds: choose one")
    if machine and not options.at_seconds:
        raise Unusable("--ranks says what wall time is computed for: it needs --at-seconds")
    rates, names = measure == "fates", options.published or []
    if options.published == []:
        names = [RATES if rates else "esac"]
    for name in names:
        if (name == RATES) != rates:
            other = f"the paper prints other figures there than --measure {measure} has"
            raise Unusable(f"--published {name}: {other}")
    how = measure, At(options.at_steps, options.at_seconds, machine), options.policy
    table = table_of(runs, *how)
    printed, sources = published(names, list(table))
    if options.format in ("csv", "json"):
        rows = long(table, printed)
    else:
        rows = wide(table, printed, "" if rates else measure, bold=not rates)
    return rows, [described(runs, *how), *sources]


def waiting(runs: list[RunFiles], options: argparse.Namespace) -> tuple[list[Row], About]:
    """Return how long runs take to a number of steps, and who waits. Raises Unusable."""
    rows = times.waiting(runs, options.ranks or [1, 2, 6], options.steps)
    if options.published is None:
        return rows, []
    paper = book()["aesrl-times"]
    printed = "; ".join(
        f"{task}: {', '.join(map('{} {}'.format, paper['columns'], chain(*row)))}"
        for task, row in paper["results"].items()
    )
    return rows, [f"{paper['source']}: {paper['protocol']}. {printed}."]


def table(line: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[object]:
    """Yield the table, or where it was written."""
    refuse_others(line, options, READ[options.what])
    what, about = options.what, list[str]()
    runs = opened(options.runs)
    if what == "results":
        rows, about = results(runs, options)
    elif what == "scaling":
        rows = times.scaling(times.times_of(runs, options.last, options.ranks or []))
    elif what == "sensitivity":
        rows = sensitivity.rows(sensitivity.of_options(runs, options), options.field)
    else:
        rows, about = waiting(runs, options)
    yield from written(rendered(rows, options.format, about), options.out)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument("--what", choices=tuple(READ), default="results")
    add_sensitivity(line)
    text = "wall time at which runs are compared [s]"
    line.add_argument("--at-seconds", type=float, metavar="T", default=0.0, help=text)
    add_policy(line, "whose evaluations")
    add_machine(line)
    add_scaling(line)
    text = "of waiting: nominal steps; default: what all runs of a task have"
    line.add_argument("--steps", type=whole, metavar="N", default=0, help=text)
    text = "beside the papers'; default esac, of fates pderl-fates"
    line.add_argument("--published", nargs="*", choices=PRINTED, help=text)
    line.add_argument("--format", choices=FORMATS, default="markdown")
    line.add_argument("--out", type=given, metavar="FILE", help="write it there")
    return line


def main(argv: list[str]) -> int:
    """Print or write the table; return 2 if there is nothing in it, 65 for an unreadable run."""
    line = command_line()
    options = line.parse_args(argv)
    return ended(lambda: table(line, options))
