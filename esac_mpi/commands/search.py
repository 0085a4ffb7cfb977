"""Search for good settings: Optuna proposes trials, which are made as training runs.

    esac-mpi search run|jobs|show|best STUDY [--out FILE]

Examples:
    mpirun -n 8 esac-mpi search run study.toml              # trial after trial until none is left
    esac-mpi search jobs study.toml --tasks 10              # a job array, and how to submit it
    esac-mpi search best study.toml --out best.toml         # then: esac-mpi run best.toml

STUDY is a file such as this, or the directory that it makes (runs/NAME, or its directory = "..."):

    trials = 40
    measure = "best"                  # or "final": the mean return of the best, or last, evaluation
    seeds = [100]                     # of each trial, whose value is their mean; the default
    config = "configs/esac/hopper.toml"   # to begin with; may be left out
    [settings]                        # of all trials
    algorithm = "es"
    budget.env_steps = 400_000
    [search]                          # any other field of the algorithm
    es.sigma = {low = 0.005, high = 0.2, log = true}
    es.population_size = [20, 40, 80]
    [sampler]                         # these are the defaults
    kind = "tpe"                      # or "random"
    seed = 0
    startup = 10                      # trials by chance before
    [pruner]
    kind = "median"                   # or "none"
    startup = 5                       # complete trials before any is given up
    warmup = 0.3                      # share of the budget before any is given up

A trial is one run of each of the study's seeds, in an ordinary run directory. It is given up
(status pruned) if its evaluations are below the median. Any number of `run` may work at once. After
a stop the same command, or any other of the study, continues the trial exactly. More trials in the
file extend a finished study; other ranges are refused. Report results on other seeds than 100,
which chose the settings. docs/how-to/search.md has the details.

Cost: that of the runs, and 1 s a trial.
Needs optuna: pip install -c constraints.txt -e '.[search]'.
Exit codes of run: 0 no trial is left; 75 stopped, run it again; 2, 65, 74 and 1 as `esac-mpi run`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import amount, list_length, out_path, whole_number, write_text
from esac_mpi.host.invocation import look_here
from esac_mpi.host.paths import read_path
from esac_mpi.host.run_directory import STATUS


def run(options: argparse.Namespace) -> int:
    """Take trials, on all ranks there are; return the exit code."""
    from esac_mpi.comm.command_ranks import over_ranks
    from esac_mpi.studies.search.trial_ranks import search

    look_here()
    return over_ranks(
        lambda world: search(options.study, world, options.max_hours, options.run_dir)
    )


def answer(options: argparse.Namespace) -> Iterator[object]:
    """Yield what is asked of a study. Raises Unusable, Unsaved."""
    from esac_mpi.studies.search import report, study

    found = study.read(options.study)
    if options.action == "jobs":
        look_here()
        study.begin(found, study.task_source(found, study.check(found)[0]))
        yield from report.jobs(found, options.study, options.tasks)
        return
    if not options.study.is_dir():
        study.refuse_another(found)
    if options.action == "best":
        yield from write_text(report.best(found).rstrip(), options.out)
    else:
        yield from report.table(found, options.top)


def task_path(text: str) -> Path:
    """Read a task's directory, as argparse's `type`: not a run's, whose status stays."""
    return out_path(f"{text or '.'}/{STATUS}").parent


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    actions = line.add_subparsers(dest="action", required=True, prog=line.prog)
    run = actions.add_parser("run", help="take trials until none is left")
    jobs = actions.add_parser("jobs", help="write the list of a job array")
    show = actions.add_parser("show", help="the trials, the best first")
    best = actions.add_parser("best", help="the best trial as a configuration")
    text = "the study's TOML file, or its directory"
    for action in (run, jobs, show, best):
        action.add_argument("study", type=read_path, metavar="STUDY", help=text)
    text = "where status.json says how this task ended, for jobs/"
    run.add_argument("--run-dir", type=task_path, metavar="DIR", help=text)
    text = "stop, saved, before so long [h]; 0: no limit"
    run.add_argument("--max-hours", type=amount, default=0.0, metavar="H", help=text)
    text = "elements of the array (10)"
    jobs.add_argument("--tasks", type=list_length, default=10, metavar="N", help=text)
    text = "how many (10); 0: all"
    show.add_argument("--top", type=whole_number, default=10, metavar="N", help=text)
    best.add_argument("--out", type=out_path, metavar="FILE", help="write it there")


def main(options: argparse.Namespace) -> int | Iterator[object]:
    """Do what the command line says."""
    return run(options) if options.action == "run" else answer(options)
