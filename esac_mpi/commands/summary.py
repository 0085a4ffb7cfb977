"""Summarise runs, a table's row or a JSON object each, or compare them bit by bit.

    esac-mpi summary RUN... [--status STATUS...] [--json | --resume | --compare]

Examples:
    esac-mpi summary runs/*                                             # a line a run
    esac-mpi summary runs/* --status failed dead requeue --resume       # commands to continue them
    esac-mpi summary runs/a runs/b --compare                            # where their bits differ

Reads files only: it is safe on a login node, and while runs go on. Cost: 0.05 s a run.

status                dead = "running" in status.json, but its process has ended; unknown = that
                      file cannot be read, and no process works at the run
best_return           return of the best policy, on start states that did not choose it
final_return          mean return of the last generation of a complete run, of the better policy, or
                      ERL's champion; null before
parallel_efficiency   mean over generations of sum(busy seconds of the ranks) / (ranks * wall
                      seconds of the evaluation)
resume                the command that continues an unfinished run, from the current directory

The table's return is the last evaluation's, of the better policy. Speed, idle share of the ranks'
time and time left are of the last 20 generations; row is the age of the newest one.

--compare lists differences of the first run from each other: configuration, task, machine and
versions; and the first rows of metrics/ whose bits differ, which must not depend on ranks, restarts
or speed; also whole states, if both have a checkpoint of one generation. Cost: 0.1 s and more.
Exit codes: 0; 2 if a directory is not a run, 65 if it cannot be read. --compare: 1 if bits differ,
2 without a common generation.
"""

import argparse
from collections import Counter

from esac_mpi.analysis import views
from esac_mpi.analysis.command import add_options, distinct, open_readable, refuse_unread
from esac_mpi.analysis.comparison import compare_runs
from esac_mpi.analysis.followed import by_task, choose_runs
from esac_mpi.analysis.measures import resume_command, summary
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.tables import render
from esac_mpi.host.streams import as_json
from esac_mpi.record import RunFiles


def footer(chosen: list[RunFiles], runs: list[RunFiles], unread: int) -> str:
    """Count the runs by status; of a single one, say where its time went and how it goes on."""
    if len(runs) == len(chosen) == 1:
        about = summary(runs[0])
        parts = [f"{part} {of:.0f} %" for part, of in about["time_percent"].items() if of >= 0.5]
        time = ", ".join(parts) or "nothing published yet"
        return f"time: {time}\nresume: {about['resume'] or 'nothing to resume'}"
    counts = sorted(Counter(run.state for run in runs).items())
    text = f"{len(runs)} run{'s' if len(runs) > 1 else ''}: "
    text += ", ".join(f"{number} {status}" for status, number in counts)
    if len(chosen) < len(runs):
        text += f"; {len(chosen)} chosen"
    return text + (f"; {unread} could not be read" if unread else "")


def compare(runs: list[RunFiles]) -> int:
    """Print how each run differs from the first; return 1 if bits part, 2 without rows in both."""
    codes = []
    for other in runs[1:]:
        text, part = compare_runs(runs[0], other)
        print(text)
        codes.append(int(part) if min(runs[0].generation, other.generation) else 2)
    return max(codes)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add_options(line, "runs", "--status")
    form = line.add_mutually_exclusive_group()
    text = "one JSON object a line, in the order given"
    form.add_argument("--json", action="store_true", help=text)
    text = "only the commands that continue unfinished runs"
    form.add_argument("--resume", action="store_true", help=text)
    text = "what differs between the first run and each other one"
    form.add_argument("--compare", action="store_true", help=text)


def main(options: argparse.Namespace) -> int:
    """Print the summaries, or the comparison; return the exit code. Raises Unusable."""
    if options.compare:
        refuse_unread(options, "--compare", ["status"])
        if len(options.runs) < 2:
            raise Unusable("--compare needs two runs or more")
    places = options.runs if options.compare else distinct(options.runs)
    runs, code = open_readable(places)
    if options.compare:
        return code or compare(list(map(runs.__getitem__, places)))
    paths = choose_runs(runs, options.status, by_task)
    if options.json:
        paths = [path for path in runs if path in paths]
    shown = [runs[path] for path in paths]
    if options.json:
        for run in shown:
            print(as_json(summary(run)))
    elif options.resume:
        for run in shown:
            if command := resume_command(run):
                print(command)
    elif runs:
        unread = len(places) - len(runs)
        print(render([views.row(run) for run in shown], "text"))
        print(footer(shown, list(runs.values()), unread))
    return code
