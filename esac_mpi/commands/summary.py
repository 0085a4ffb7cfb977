"""Say where runs stand: one JSON object or one table row per run directory.

    esac-mpi summary RUN [RUN ...] [--json | --resume]
    esac-mpi summary runs/* --status failed dead requeue --task 'dm_control/*' --sort need

Reads files only: no MPI, no torch, no simulator, safe on a login node and while a run is going on. Cost: 0.05 s a run.

status                dead = "running" in status.json, but its process has ended
generation            generations in the published history, which is at most 30 s behind; status.json is written at checkpoints
best_return           return of the best policy, on start states that did not choose it; of older versions the best evaluation's
final_return          mean return of the last generation of a complete run, of the better policy, or ERL's champion; null before
last_evaluation       mean return of each policy (theta_es, sac, td3 ...) in the last evaluation, and its generation
gradient_updates, member_updates  of the learner; of a population's members (CEM-RL, AES-RL, distillation)
theta_sha256, state_sha256      of the newest checkpoint, made in generation `checkpoint_generation`
parallel_efficiency   mean over generations of sum(busy seconds of the ranks) / (ranks * wall seconds of the evaluation);
                      wall is rank 0's, or the busiest rank's if that is longer
env_steps_per_second  environment steps of all kinds / wall seconds, over the whole run
time_percent          where rank 0's time went, in percent of the wall time; docs/hdf5.md has the parts (timing/seconds_*)
resume                the command that continues an unfinished run from the current directory; null where there is none

The table is sorted by task, algorithm and seed, or by --sort: need (what needs you first: failed, dead, requeue, running,
pruned, complete; of equals, what has published nothing for longest), return, left (the time), name; --json as given, or by
--sort. --status and --task choose. --resume prints the commands alone, one a line, of the runs to continue.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from esac_mpi.analysis.choice import add_choice, choice_of
from esac_mpi.analysis.command import add_runs, parser
from esac_mpi.analysis.names import POLICIES, policy_order
from esac_mpi.analysis.summaries import summary
from esac_mpi.analysis.tables import aligned
from esac_mpi.config import ConfigError
from esac_mpi.host.log import compact, duration
from esac_mpi.host.streams import as_json
from esac_mpi.record import Refused, Run, RunFiles, Unreadable

COLUMNS = {
    "status": "{}", "task": "{}", "algorithm": "{}", "seed": "{}", "ranks": "{}", "generation": "{}", "steps": "{}",
    "best": "{:.1f}", "final": "{:.1f}",
}  # fmt: skip
POLICY = "{:.1f}"  # the last return of each policy, in columns between these
TAIL = {"wall": "{}", "steps/s": "{}", "efficiency": "{:.0%}", "most time": "{}", "run": "{}"}
LEFT = {
    "status",
    "task",
    "algorithm",
    "most time",
    "run",
}  # columns of text; numbers are aligned to the right


def columns(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the columns of the table and how a number is written there; theta_es and sac have theirs always."""
    policies = policy_order(
        [
            *POLICIES,
            *(name for row in rows for name in row["last_evaluation"] if name != "generation"),
        ]
    )
    return COLUMNS | dict.fromkeys(policies, POLICY) | TAIL


def cells(row: dict[str, Any], forms: dict[str, str]) -> list[str]:
    """Return a summary as the cells of a table row."""
    most = max(row["time_percent"].items(), key=lambda part: part[1], default=None)
    shown = {
        **row, **row["last_evaluation"], "generation": row["generation"], "steps": compact(sum(row["env_steps"].values())),
        "best": row["best_return"], "final": row["final_return"], "wall": duration(row["wall_seconds"]),
        "steps/s": row["env_steps_per_second"] and compact(row["env_steps_per_second"]),
        "efficiency": row["parallel_efficiency"], "most time": most and f"{most[0]} {most[1]:.0f} %",
    }  # fmt: skip
    return [
        "-" if shown.get(name) is None else form.format(shown[name]) for name, form in forms.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the summaries as lines of aligned columns."""
    forms = columns(rows)
    return "\n".join(aligned([list(forms), *(cells(row, forms) for row in rows)], LEFT))


def footer(rows: list[dict[str, Any]], runs: list[RunFiles], unread: int) -> str:
    """Return the counts of all runs by status; of a single run, where its time went and how to go on with it."""
    if len(runs) == len(rows) == 1:
        parts = ", ".join(
            f"{part} {percent:.0f} %"
            for part, percent in rows[0]["time_percent"].items()
            if percent >= 0.5
        )
        return f"time: {parts or 'nothing published yet'}\nresume: {rows[0]['resume'] or 'nothing to resume'}"
    counts = ", ".join(
        f"{number} {status}"
        for status, number in sorted(Counter(run.state for run in runs).items())
    )
    chosen = f"; {len(rows)} chosen" if len(rows) < len(runs) else ""
    return f"{len(runs)} run{'s' * (len(runs) > 1)}: {counts}{chosen}" + (
        f"; {unread} could not be read" if unread else ""
    )


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add_runs(line)
    add_choice(line, "task")
    form = line.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="one JSON object a line, in the order given"
    )
    form.add_argument(
        "--resume", action="store_true", help="only the commands that continue unfinished runs"
    )
    return line


def main(argv: list[str]) -> int:
    """Print the summaries; return 2 if a directory is not a run, 65 if its files cannot be read."""
    options = command_line().parse_args(argv)
    runs, code = dict[Path, RunFiles](), 0
    for path in options.runs:
        try:
            runs[path] = Run.open(path)
        except (Refused, ConfigError, Unreadable) as error:
            print(error, file=sys.stderr)
            code = 65 if isinstance(error, Unreadable) else 2
    given = options.json and not options.sort
    chosen = choice_of(options, "task").of(runs)
    rows = [
        summary(runs[path])
        for path in (filter(set(chosen).__contains__, runs) if given else chosen)
    ]
    if options.json:
        print("\n".join(map(as_json, rows)), end="\n" * bool(rows))
    elif options.resume:
        print("".join(f"{row['resume']}\n" for row in rows if row["resume"]), end="")
    elif runs:
        print(
            f"{table(rows)}\n{footer(rows, list(runs.values()), len({*options.runs}) - len(runs))}"
        )
    return code
