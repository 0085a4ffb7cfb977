"""Watch runs on a terminal, from their files alone, until all of them have ended.

    esac-mpi watch RUN... [--status STATUS...] [--once]

Examples:
    esac-mpi watch runs/Hopper-v5-esac-seed0                            # one run in detail
    esac-mpi watch runs/* --status failed dead requeue                  # those that need you
    esac-mpi watch runs/* --once                                        # one look

Several runs have a line each, what needs you first: failed, dead, unknown (status.json cannot be
read), stopped (requeue), running (those that have published nothing for longest), pruned, complete.
Files are published at most every 30 s; "row" and "checkpoint" are the age of the newest ones.
Speed, idle share and time left are of the last 20 generations. A pipe gets the last view alone. A
killed run is recognised by its free lock; on another host, once it has published nothing for two
minutes. Ctrl-C ends the watching, not the runs. Needs no MPI or torch.
Cost: 0.05 s a run whenever its files have changed.
Exit codes: 0; 2 if a directory is not a run; 65 if none of its files can be read; 130 after Ctrl-C.
"""

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from esac_mpi.analysis import views
from esac_mpi.analysis.command import add_options, pause, refuse_unread
from esac_mpi.analysis.followed import Followed
from esac_mpi.record import RunFiles

UNCUT = 10_000  # width of a pipe or a file [characters]
TITLES = 3  # lines of a terminal that rows of runs leave free


def view(runs: dict[Path, RunFiles | str], statuses: Collection[str], lines: int = 0) -> Any:
    """Show one run, or of several or chosen ones at most so many lines (0 = all)."""
    if len(runs) > 1 or statuses:
        return views.show_runs(runs, statuses, lines)
    run = next(iter(runs.values()))
    return escape(run) if isinstance(run, str) else views.show_run(run)


def watch(followed: Followed, statuses: Collection[str], every: float, console: Console) -> None:
    """Redraw until all runs are over; always leave the last view and a visible cursor."""

    def seen() -> Any:
        lines = max(1, console.height - TITLES) if console.is_terminal else 0
        return view(followed.runs, statuses, lines)

    live = Live(seen(), console=console, auto_refresh=False)
    try:
        live.start(refresh=True)
        console.show_cursor(True)  # a killed process must not leave a terminal without a cursor
        for _ in followed.poll(every):
            live.update(seen(), refresh=True)
    finally:
        live.stop()
        console.show_cursor(True)


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add_options(line, "runs", "--status")
    text = "time between looks at the files (default 5)"
    line.add_argument("--every", type=pause, default=5.0, metavar="SECONDS", help=text)
    line.add_argument("--once", action="store_true", help="print one view and end")


def main(options: argparse.Namespace) -> int:
    """Watch; return 2 if a directory is no run, 65 if it is unreadable, 130 after Ctrl-C.

    Raises Unusable.
    """
    if options.once:
        refuse_unread(options, "--once", ["every"])
    terminal = sys.stdout.isatty()  # whatever FORCE_COLOR says
    console = Console(force_terminal=terminal, width=None if terminal else UNCUT)
    followed, statuses = Followed(options.runs), options.status
    if not followed.runs:
        return followed.code
    try:
        if options.once:
            console.print(view(followed.runs, statuses))
        else:
            watch(followed, statuses, max(0.1, options.every), console)
    except KeyboardInterrupt:
        return 130
    return followed.code
