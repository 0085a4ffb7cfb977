"""Make the table of results: mean, standard deviation and median over seeds, for every task (rows) and algorithm (columns).

    python tools/table.py RUN [RUN ...] [--measure best|final|population_max|mean] [--at-steps N] [--policy better|theta_es|sac]
                          [--format markdown|latex|csv] [--published [esac|pderl|aesrl ...]] [--out FILE]

Runs of one task, algorithm and settings are seeds of one column; where settings differ, the column's name says in what. The
best mean of a task is bold. The standard deviation is the sample's (n - 1); a single run has none.
best             best mean return of a noise-free evaluation, of the better of theta_es and the SAC mean, or of --policy
final            the same of the last evaluation
population_max   largest fitness in the last generation, of the noisy population: what the public ESAC code reports
mean             mean fitness of the noisy population, mean over generations
--at-steps N     each run as it stood after N true steps of population and learner; runs that are not that far are left out
--published      beside them what the papers print (tools/published.toml), other versions of the tasks: never in bold
Reads files only, no MPI, torch or simulator. Prints the table, or the path of --out. Cost: 0.1 s a run.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from esac_mpi.analysis.tables import Cell, Table, rendered
from esac_mpi.analysis.command import Unusable, ended, note, opened, some, tell_unfinished
from esac_mpi.analysis.curves import MEASURES, POLICIES, RIVALS, measured, position
from esac_mpi.analysis.groups import grouped

from esac_mpi.record import RunFiles

PUBLISHED = Path(__file__).with_name("published.toml")


def cell(runs: list[RunFiles], options: argparse.Namespace) -> Cell | None:
    """Return the results of a group, None if no run of it has any."""
    limit = options.at_steps or np.inf
    reached = [run for run in runs if not options.at_steps or position(run, "env_steps")[-1:].sum() >= limit]
    found = [(run, measured(run, options.measure, limit, options.policy)) for run in reached]
    seen = [(run, value) for run, value in found if np.isfinite(value)]
    if left := [run.path.name for run in runs if run not in [run for run, _ in seen]]:
        where = f" within the first {options.at_steps:,} steps" if options.at_steps else ""
        note(f"left out, {'not that far or ' if where else ''}nothing to measure{where}: {some(left)}")
    if not seen:
        return None
    values = np.array([value for _, value in seen])
    std = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return Cell(float(values.mean()), std, float(np.median(values)), tuple(sorted(run.config.seed for run, _ in seen)))


def ours(runs: list[RunFiles], options: argparse.Namespace) -> Table:
    """Return the table of the runs. Raises Unusable if it would be empty."""
    made = {task: {name: cell(group, options) for name, group in found.items()} for task, found in grouped(runs).items()}
    table = {task: {name: c for name, c in row.items() if c is not None} for task, row in made.items()}
    if not any(table.values()):
        raise Unusable(f"nothing to tabulate yet: no run given has a {options.measure} return")
    tell_unfinished(runs)
    return {task: row for task, row in table.items() if row}


def published(names: list[str], tasks: list[str]) -> tuple[Table, list[str]]:
    """Return what the papers print on these tasks, and a line about each source."""
    book = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    table: Table = {task: {} for task in tasks}
    for name in names:
        for task in tasks:
            algorithms = book[name]["columns"]
            for algorithm, numbers in zip(algorithms, book[name]["results"].get(task, [[]] * len(algorithms)), strict=True):
                if numbers:
                    mean, std, median = [*map(float, numbers), np.nan, np.nan][:3]
                    table[task][f"{algorithm} [{name}]"] = Cell(mean, std, median, source=book[name]["source"])
    return table, [f"[{name}] {book[name]['source']}: {book[name]['protocol']}." for name in names]


def tables(options: argparse.Namespace) -> Iterator[object]:
    """Yield the table, or where it was written."""
    table = ours(opened(options.runs), options)
    whose = {"better": "the better of theta_es and the SAC mean"}.get(options.policy, options.policy)
    measure: str = MEASURES[options.measure] + (f", {whose}" if options.measure in ("best", "final") else "")
    when = f", at {options.at_steps:,} true steps of population and learner" if options.at_steps else ""
    about = [f"Measure {options.measure}: {measure}{when}. Mean ± std over seeds (median, n seeds); bold: best mean of a task."]
    names = [] if options.published is None else options.published or ["esac"]
    printed, sources = published(names, list(table))
    content = rendered(table, printed, [*about, *sources], options.format)
    if options.out is None:
        yield content
        return
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(content + "\n", encoding="utf-8")
    yield options.out


def main(argv: list[str]) -> int:
    """Print or write the table; return 2 if there is nothing to tabulate, 65 if a run cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--measure", choices=MEASURES, default="best")
    parser.add_argument("--at-steps", type=int, metavar="N", help="true steps of population and learner [steps]")
    parser.add_argument("--policy", choices=("better", *POLICIES, *RIVALS), default="better", help="whose evaluations")
    parser.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")
    parser.add_argument("--published", nargs="*", choices=("esac", "pderl", "aesrl"), help="beside the papers'; default esac")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there")
    options = parser.parse_args(argv)
    return ended(lambda: tables(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
