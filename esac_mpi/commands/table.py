"""Make tables of runs: results over seeds, scaling, waiting.

    esac-mpi table RUN... [--what KIND] [--measure M] [--at-steps N] [--format F] [--out FILE]

Examples:
    esac-mpi table runs/*                                               # last returns, Markdown
    esac-mpi table runs/* --measure best --at-steps 500000 --format csv # as of 500,000 steps
    esac-mpi table runs/* --what scaling --ranks 16 64                  # computed for more ranks

results       mean, standard deviation (n - 1) and median over seeds, for every task (rows) and
              algorithm (columns), apart where settings differ. The best mean of a task is bold. ERL
              and its forms have a column a policy; their papers measure the champion
scaling       seconds per generation and per episode, and parallel efficiency, measured and computed
              for other --ranks; `esac-mpi plot --what scaling` draws them
waiting       minutes to --steps nominal steps, and the share of the ranks' time in which they
              waited; mean over seeds, measured, and computed for each of --ranks (default 1 2 6;
              docs/results/scaling.md)

--measure final  mean return of the last noise-free evaluation, of the better policy or of --policy
best             return of the best policy, that of policy.h5, on start states that did not choose
                 it; of --policy, and of older versions' runs, the best evaluation, which flatters
population_max   largest fitness in the last generation: what the public ESAC code reports
mean             mean fitness of the noisy population, mean over generations
fates            how often the learner's actor was elite, selected or discarded [%] (PDERL, Table 2)
Reads files only, no MPI, torch or simulator. Cost: 0.1 s a run.
"""

import argparse
import math
from collections.abc import Iterator
from itertools import chain

from esac_mpi.analysis import command, times
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import MEASURES, At
from esac_mpi.analysis.published import read_results, select_results
from esac_mpi.analysis.run_tables import caption, table_of
from esac_mpi.analysis.tables import FORMATS, Row, make_long, make_wide, render
from esac_mpi.record import RunFiles

RATES = "pderl-fates"  # what is printed there is no return
PRINTED = tuple(name for name in read_results() if not name.endswith("-times"))
READ = {  # options, by what is tabulated
    "results": ("measure", "at_steps", "at_seconds", "ranks", "published"),
    "scaling": ("last", "ranks"),
    "waiting": ("ranks", "steps", "published"),
}
About = list[str]  # lines above a table


def tabulate_results(runs: list[RunFiles], options: argparse.Namespace) -> tuple[list[Row], About]:
    """Return the results over seeds. Raises Unusable."""
    ranks, measure = command.ranks_of(options), options.measure
    if options.at_steps and options.at_seconds:
        raise Unusable("--at-steps and --at-seconds: choose one")
    if ranks and not options.at_seconds:
        raise Unusable("--ranks says what wall time is computed for: it needs --at-seconds")
    rates, names = measure == "fates", options.published or []
    if options.published == []:
        names = [RATES if rates else "esac"]
    for name in names:
        if (name == RATES) != rates:
            other = f"the paper prints other figures there than --measure {measure} has"
            raise Unusable(f"--published {name}: {other}")
    at = At(options.at_steps or math.inf)
    if options.at_seconds:
        at = At(options.at_seconds, ranks or "wall")
    how = measure, at, options.policy
    table = table_of(runs, *how)
    printed, sources = select_results(names, list(table))
    if options.format in ("csv", "json"):
        rows = make_long(table, printed)
    else:
        rows = make_wide(table, printed, "" if rates else measure, bold=not rates)
    return rows, [caption(runs, *how), *sources]


def tabulate_waiting(runs: list[RunFiles], options: argparse.Namespace) -> tuple[list[Row], About]:
    """Return the rows of minutes and waiting, and the paper's in a line. Raises Unusable."""
    if options.published:
        one = "of waiting one paper prints times; name none"
        raise Unusable(f"--published {' '.join(options.published)}: {one}")
    if options.published is not None and options.format == "json":
        raise Unusable("--published of waiting is a line above the table; --format json has none")
    rows = times.waiting(runs, options.ranks or [1, 2, 6], options.steps)
    if options.published is None:
        return rows, []
    paper = read_results()["aesrl-times"]
    printed = "; ".join(
        f"{task}: {', '.join(map('{} {}'.format, paper['columns'], chain(*row)))}"
        for task, row in paper["results"].items()
    )
    return rows, [f"{paper['source']}: {paper['protocol']}. {printed}."]


def main(options: argparse.Namespace) -> Iterator[object]:
    """Yield the table, or where it was written."""
    command.refuse_others(options, READ[options.what])
    what, about = options.what, list[str]()
    runs = command.opened(options.runs)
    if what == "results":
        rows, about = tabulate_results(runs, options)
    elif what == "scaling":
        rows = times.scaling(runs, options.last, options.ranks or [])
    else:
        rows, about = tabulate_waiting(runs, options)
    yield from command.write_text(render(rows, options.format, about), options.out)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    command.add_options(line, "runs", "--policy", "--ranks", "--last", "--at-steps")
    line.add_argument("--measure", choices=MEASURES, default="final")
    line.add_argument("--what", choices=tuple(READ), default="results")
    text = "compare runs at this wall time [s]; with --ranks the computed one"
    line.add_argument("--at-seconds", type=command.amount, metavar="T", default=0.0, help=text)
    text = "of waiting: nominal steps; default: what all runs of a task have"
    line.add_argument("--steps", type=command.whole_number, metavar="N", default=0, help=text)
    text = "beside what papers print, of other versions of tasks; default esac, fates: pderl-fates"
    line.add_argument("--published", nargs="*", action="extend", choices=PRINTED, help=text)
    line.add_argument("--format", choices=FORMATS, default="markdown")
    line.add_argument("--out", type=command.out_path, metavar="FILE", help="write it there")
