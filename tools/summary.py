"""Say where runs stand: one JSON object or one table row per run directory.

    python tools/summary.py RUN [RUN ...] [--json | --resume]

Reads files only: no MPI, no torch, no simulator, safe on a login node and while a run is going on. Cost: 0.05 s a run.

status                dead = "running" in status.json, but its process has ended
generation            generations in the published history, which is at most 30 s behind; status.json is written at checkpoints
best_return           best mean return of an evaluation, of whichever policy of the run was better
final_return          the same of the last generation of a complete run; null before
last_evaluation       last mean return of theta_es, of the SAC mean and of a rival's actor, and the generation it was made in
theta_sha256, state_sha256      of the newest checkpoint, made in generation `checkpoint_generation`
parallel_efficiency   mean over generations of sum(busy seconds of the ranks) / (ranks * wall seconds of the evaluation);
                      wall is rank 0's, or the busiest rank's if that is longer
env_steps_per_second  environment steps of all kinds / wall seconds, over the whole run
time_percent          where rank 0's time went, in percent of the wall time; docs/hdf5.md has the parts (timing/seconds_*)
resume                the command that continues an unfinished run from the current directory; null where there is none

The table is sorted by task, algorithm and seed; --resume prints the commands alone, one a line, of the runs to continue.
"""

import argparse
import json
import shlex
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from esac_mpi.analysis import measures
from esac_mpi.analysis.measures import last

from esac_mpi.config import ConfigError
from esac_mpi.log import compact, duration
from esac_mpi.record import Refused, Run, RunFiles, Unreadable

COLUMNS = {
    "status": "{}", "task": "{}", "algorithm": "{}", "seed": "{}", "ranks": "{}", "generation": "{}", "steps": "{}",
    "best": "{:.1f}", "final": "{:.1f}", "theta_es": "{:.1f}", "sac": "{:.1f}", "wall": "{}", "steps/s": "{}",
    "efficiency": "{:.0%}", "most time": "{}", "run": "{}",
}  # fmt: skip
LEFT = {"status", "task", "algorithm", "most time", "run"}  # columns of text; numbers are aligned to the right


def summary(run: RunFiles) -> dict[str, Any]:
    """Return what can be said about a run; null where it is not known (yet)."""
    config = run.config
    return {
        "run": str(run.path),
        "status": run.state,
        "algorithm": config.algorithm,
        "task": config.task.id,
        "seed": config.seed,
        "ranks": run.provenance.get("ranks"),
        "generation": run.generation,
        "env_steps": {kind: measures.env_steps(run, kind) for kind in measures.KINDS},
        "nominal_steps": last(run, "nominal_steps") or 0,
        "gradient_updates": last(run, "gradient_updates") or 0,
        "unstable_episodes": last(run, "unstable_episodes") or 0,
        "sigma": last(run, "sigma"),
        "best_return": measures.best_return(run),
        "final_return": measures.final_return(run),
        "last_evaluation": measures.last_evaluation(run),
        **{name: run.provenance.get(name) for name in ("theta_sha256", "state_sha256", "checkpoint_generation", "command")},
        "wall_seconds": last(run, "wall_seconds", "timing") or 0.0,
        "parallel_efficiency": measures.parallel_efficiency(run),
        "env_steps_per_second": measures.rate(run, measures.counted_steps(run)),
        "time_percent": measures.time_percent(run),
        "time": run.status.get("time"),
        "resume": resume_command(run),
    }


def resume_command(run: RunFiles) -> str | None:
    """Return the command that continues the run from the current directory, None where there is nothing to continue.

    It is the command that started it, less --fresh, where that would come back to this directory from here; else one that
    names the run's own config.toml.
    """
    command = run.provenance.get("command", "python -m esac_mpi")
    if run.state in ("running", "complete"):
        return None
    words = [word for word in shlex.split(command) if word != "--fresh"]
    named = [value for name, value in pairwise(words) if name in ("--run-dir", "--run_dir")]
    here = named and Path(named[-1]).resolve() == run.path.resolve()
    if not (here and all(Path(word).exists() for word in words if word.endswith(".toml"))):
        words = [*words[:3], str(run.path / "config.toml"), "--run-dir", str(run.path)]
    ranks = run.provenance.get("ranks", 1)
    return shlex.join([*(("mpirun", "-n", str(ranks)) if ranks > 1 else ()), *words])


def cells(row: dict[str, Any]) -> list[str]:
    """Return a summary as the cells of a table row."""
    most = max(row["time_percent"].items(), key=lambda part: part[1], default=None)
    shown = {
        **row, **row["last_evaluation"], "generation": row["generation"], "steps": compact(sum(row["env_steps"].values())),
        "best": row["best_return"], "final": row["final_return"], "wall": duration(row["wall_seconds"]),
        "steps/s": row["env_steps_per_second"] and compact(row["env_steps_per_second"]),
        "efficiency": row["parallel_efficiency"], "most time": most and f"{most[0]} {most[1]:.0f} %",
    }  # fmt: skip
    return ["-" if shown[name] is None else form.format(shown[name]) for name, form in COLUMNS.items()]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the summaries as lines of aligned columns, sorted."""
    rows = sorted(rows, key=lambda row: (row["task"], row["algorithm"], row["seed"], row["run"]))
    lines = [list(COLUMNS), *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    adjust = [str.ljust if name in LEFT else str.rjust for name in COLUMNS]
    return "\n".join("  ".join(a(c, w) for a, c, w in zip(adjust, line, widths, strict=True)).rstrip() for line in lines)


def footer(rows: list[dict[str, Any]], unread: int) -> str:
    """Return the counts by status; of a single run, where its time went and how to go on with it."""
    if len(rows) == 1:
        parts = ", ".join(f"{part} {percent:.0f} %" for part, percent in rows[0]["time_percent"].items() if percent >= 0.5)
        return f"time: {parts or 'nothing published yet'}\nresume: {rows[0]['resume'] or 'nothing to resume'}"
    counts = ", ".join(f"{number} {status}" for status, number in sorted(Counter(row["status"] for row in rows).items()))
    return f"{len(rows)} runs: {counts}" + (f"; {unread} could not be read" if unread else "")


def main(argv: list[str]) -> int:
    """Print the summaries; return 2 if a directory is not a run, 65 if its files cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line, in the order given")
    form.add_argument("--resume", action="store_true", help="only the commands that continue unfinished runs")
    options = parser.parse_args(argv)
    rows, code = [], 0
    for path in options.runs:
        try:
            rows.append(summary(Run.open(path)))
        except (Refused, ConfigError, Unreadable) as error:
            print(error, file=sys.stderr)
            code = 65 if isinstance(error, Unreadable) else 2
    if options.json:
        print("\n".join(map(json.dumps, rows)), end="\n" * bool(rows))
    elif options.resume:
        print("".join(f"{row['resume']}\n" for row in rows if row["resume"]), end="")
    elif rows:
        print(f"{table(rows)}\n{footer(rows, len(options.runs) - len(rows))}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
