"""Make the table of results: mean, standard deviation and median over seeds, for every task (rows) and algorithm (columns).

    esac-mpi table RUN [RUN ...] [--measure final|best|population_max|mean|fates] [--policy better|theta_es|...]
                          [--at-steps N | --at-seconds T [--ranks R [--updates-per-second U]]]
                          [--format markdown|latex|csv] [--published [PAPER ...]] [--out FILE]

Runs of one task, algorithm and settings are seeds of one column; where settings differ, the column's name says in what. The
best mean of a task is bold. The standard deviation is the sample's (n - 1); a single run has none. Columns name the measure.
ERL and its forms have a column a policy; the champion's is what their papers measure.
final            mean return of the last noise-free evaluation, of the better of a run's policies, or of --policy (default)
best             return of the best policy, that of policy.h5, on start states that did not choose it; of --policy, and of runs of
                 older versions, the best mean return of an evaluation, which flatters
population_max   largest fitness in the last generation, of the noisy population: what the public ESAC code reports
mean             mean fitness of the noisy population, mean over generations
fates            how often the learner's actor was an elite, selected or discarded after its injection into a population, of all
                 such selections [%], a column each: Table 2 of the PDERL paper (--published pderl-fates)
--at-steps N     each run as it stood after N true steps of population and learner; runs that are not that far are left out
--at-seconds T   the same after T seconds of wall time; with --ranks R (and --updates-per-second U) of that which each would have
                 taken on R ranks (with a learner of U updates/s), computed from what it recorded
--published      beside them what the papers print (esac_mpi/analysis/published.toml), other versions of the tasks: never in bold
Reads files only, no MPI, torch or simulator. Prints the table, or the path of --out. Cost: 0.1 s a run.
"""

import argparse
from collections.abc import Iterator

from esac_mpi.analysis.command import (
    add_machine,
    add_policy,
    add_runs,
    ended,
    machine_of,
    opened,
    parser,
    refuse_unread,
    written,
)
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import MEASURES, OF_POLICY, At
from esac_mpi.analysis.published import book, published
from esac_mpi.analysis.run_tables import described, table_of
from esac_mpi.analysis.tables import rendered
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import given

RATES = "pderl-fates"  # what is printed there is no return
PRINTED = tuple(name for name in book() if not name.endswith("-times"))


def tables(line: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[object]:
    """Yield the table, or where it was written."""
    refuse_unread(
        line,
        options,
        f"--measure {options.measure}",
        () if options.measure in OF_POLICY else ("policy",),
    )
    machine = machine_of(options)
    if options.at_steps and options.at_seconds:
        raise Unusable("--at-steps and --at-seconds: choose one")
    if machine and not options.at_seconds:
        raise Unusable("--ranks says what wall time is computed for: it needs --at-seconds")
    names = (
        []
        if options.published is None
        else options.published or [RATES if options.measure == "fates" else "esac"]
    )
    for name in names:
        if (name == RATES) != (options.measure == "fates"):
            raise Unusable(
                f"--published {name}: the paper prints other figures there than --measure {options.measure} has"
            )
    runs, how = (
        opened(options.runs),
        (options.measure, At(options.at_steps, options.at_seconds, machine), options.policy),
    )
    table = table_of(runs, *how)
    printed, sources = published(names, list(table))
    rates = options.measure == "fates"
    about = [described(runs, *how), *sources]
    content = rendered(
        table, printed, about, options.format, not rates, "" if rates else options.measure
    )
    yield from written(content, options.out)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    line.add_argument("--measure", choices=MEASURES, default="final")
    line.add_argument(
        "--at-steps",
        type=whole,
        metavar="N",
        default=0,
        help="true steps of population and learner [steps]",
    )
    line.add_argument("--at-seconds", type=float, metavar="T", default=0.0, help="wall time [s]")
    add_policy(line, "whose evaluations")
    add_machine(line)
    line.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")
    line.add_argument(
        "--published",
        nargs="*",
        choices=PRINTED,
        help="beside the papers'; default esac, of fates pderl-fates",
    )
    line.add_argument("--out", type=given, metavar="FILE", help="write it there")
    return line


def main(argv: list[str]) -> int:
    """Print or write the table; return 2 if there is nothing to tabulate, 65 if a run cannot be read."""
    line = command_line()
    options = line.parse_args(argv)
    return ended(lambda: tables(line, options))
