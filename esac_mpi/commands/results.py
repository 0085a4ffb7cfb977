"""Make tables of an experiment, and its aggregate, from the CSV files of its runs.

    esac-mpi results table CSV... [--measure return|updates|fitness] [--of VARIANT] [--out FILE]
    esac-mpi results aggregate CSV... [--of VARIANT] [--leave-out NAME...] [--out FILE]

Examples:
    esac-mpi results table results.csv --out table.md                   # Markdown, with verdicts
    esac-mpi results table results.csv --ranks 8 --seconds 90           # at a computed time
    esac-mpi results aggregate a/results.csv b/results.csv              # scores over all tasks

table      for every task a line a variant, at equal true and nominal steps, at equal wall time and
           at the end; then whether --of (default ESAC) beats each other one
aggregate  normalised scores over all tasks and seeds, and probabilities of improvement; Markdown,
           or a picture if FILE is a PNG, PDF or SVG. Tasks that a variant lacks are left out
Reads the CSV files only: no run directories, MPI, torch or simulator. Cost: 1 s, a picture 2 s.
"""

import argparse
from collections.abc import Iterable, Iterator

from esac_mpi.analysis.command import amount, out_path, refuse_unread, write_text
from esac_mpi.analysis.messages import note
from esac_mpi.analysis.results import aggregate_page
from esac_mpi.analysis.results.rows import Row, read_rows
from esac_mpi.analysis.results.scores import merge_experiments, random_returns, score_study
from esac_mpi.analysis.results.standings import MEASURES, champion_of, document
from esac_mpi.analysis.results.traces import Sections, Wall, on_ranks, sections
from esac_mpi.config.exact import whole
from esac_mpi.host.paths import PICTURES, has_suffix, read_path
from esac_mpi.studies.experiments.design import FOLDER

CHAMPION = "ESAC"
# options of table that a measure does not read; papers print returns
UNREAD = {"return": (), "updates": ("of", "published"), "fitness": ("published",)}
TITLES = {"return": "returns", "updates": "gradient updates", "fitness": "fitness"}


def title(rows: Iterable[Row], what: str) -> str:
    """Return a page's title: experiments, their budgets, and what of their runs is on it."""
    budgets: dict[str, set[str]] = {}
    for row in rows:
        budgets.setdefault(row.experiment, set()).add(row.budget)
    names = [f"{name} ({', '.join(sorted(found))})" for name, found in sorted(budgets.items())]
    return f"# {', '.join(names)}: {what}\n\n"


def load(
    options: argparse.Namespace, what: str = "", together: bool = False
) -> tuple[str, Sections, Wall]:
    """Return a page's title, the runs and what their wall time is. Raises Unusable.

    together: the runs of all files as those of one experiment.
    """
    rows = read_rows(options.files)
    head = title(rows, what)
    rows = merge_experiments(rows) if together else rows
    rows = rows if options.ranks is None else on_ranks(rows, options.ranks)
    return head, sections(rows), Wall(options.ranks or 0, options.seconds)


def write_tables(options: argparse.Namespace) -> Iterator[object]:
    """Yield the tables, or where they were written."""
    refuse_unread(options, f"--measure {options.measure}", UNREAD[options.measure])
    head, runs, wall = load(options, TITLES[options.measure])
    if options.of != CHAMPION:
        champion_of(dict.fromkeys(label for found in runs.values() for label in found), options.of)
    text = document(runs, options.measure, options.published, options.of, wall)
    yield from write_text(head + text, options.out)


def write_aggregate(options: argparse.Namespace) -> Iterator[object]:
    """Yield the aggregate, or where it was written or drawn."""
    draws = options.out is not None and has_suffix(options.out, *PICTURES)
    if draws:
        refuse_unread(options, "a picture", ["of"])
    head, runs, wall = load(options, "normalised scores", together=True)
    scores = score_study(runs, random_returns(options.random), wall, options.leave_out)
    if draws:
        from esac_mpi.analysis.figures import save
        from esac_mpi.analysis.results import pictures

        for line in aggregate_page.describe_study(scores):
            note(line)
        yield from save(pictures.draw_scores(scores, wall), options.out)
        return
    yield from write_text(head + aggregate_page.document(scores, options.of, wall), options.out)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    actions = line.add_subparsers(required=True, prog=line.prog)
    tables = actions.add_parser("table", help="Markdown tables and verdicts")
    together = actions.add_parser("aggregate", help="normalised scores over all tasks and seeds")
    for action, make in ((tables, write_tables), (together, write_aggregate)):
        action.set_defaults(make=make, line=action)
        text = "wall time as computed for R ranks (1, 2, 4 .. 1024)"
        action.add_argument("--ranks", type=whole, metavar="R", help=text)
        text = "results.csv of an experiment"
        action.add_argument("files", nargs="+", type=read_path, metavar="CSV", help=text)
        action.add_argument("--out", type=out_path, metavar="FILE", help="write or draw it there")
        text = f"whom the verdicts are about; default: {CHAMPION}"
        action.add_argument("--of", default=CHAMPION, metavar="VARIANT", help=text)
        text = "compare at this wall time [s]; default: the longest that all runs have"
        action.add_argument("--seconds", type=amount, default=0.0, metavar="T", help=text)
    add = tables.add_argument
    add("--measure", choices=MEASURES, default="return")
    add("--published", action="store_true", help="beside them what the ESAC paper prints")
    add = together.add_argument
    text = "tasks, variants: not aggregated"
    add("--leave-out", nargs="+", action="extend", default=[], metavar="NAME", help=text)
    book, text = FOLDER / "random.toml", "returns of random actions"
    add("--random", type=read_path, default=book, metavar="FILE", help=text)


def main(options: argparse.Namespace) -> Iterator[object]:
    """Yield a table or a picture's file. Raises Unusable."""
    return options.make(options)
