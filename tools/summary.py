"""Say where runs stand: one JSON object or one table row per run directory.

    python tools/summary.py RUN [RUN ...] [--json]

Reads files only: no MPI, no torch, no simulator, safe on a login node and while a run is going on. Cost: below 1 s a run.

status                dead = "running" in status.json, but its process has ended
generation            generations in the published history, which is at most 30 s behind; status.json is written at checkpoints
best_return           best mean return of an evaluation, of theta_es or of the SAC mean, whichever was better
final_return          the same of the last generation of a complete run; null before
last_evaluation       last mean return of theta_es and of the SAC mean, apart, and the generation it was made in
theta_sha256, state_sha256      of the newest checkpoint, made in generation `checkpoint_generation`
parallel_efficiency   mean over generations of sum(busy seconds of the ranks) / (ranks * wall seconds of the evaluation);
                      wall is rank 0's, or the busiest rank's if that is longer
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config import ConfigError
from esac_mpi.record import Refused, Run, RunFiles, Unreadable

POLICIES = ("theta_es", "sac")
KINDS = ("population", "learner", "evaluation")
COLUMNS = {
    "status": "{}", "algorithm": "{}", "task": "{}", "seed": "{}", "ranks": "{}", "generation": "{}", "env_steps": "{:,}",
    "best": "{:.1f}", "final": "{:.1f}", "theta_es": "{:.1f}", "sac": "{:.1f}", "hours": "{:.2f}", "efficiency": "{:.0%}",
    "run": "{}",
}  # fmt: skip


def summary(run: RunFiles) -> dict[str, Any]:
    """Return what can be said about a run; null where it is not known (yet)."""
    config = run.config
    evaluation = last_evaluation(run)
    final = final_return(run)
    best = [value for value in (last(run, "best_return"), final) if value is not None]
    return {
        "run": str(run.path),
        "status": run.state,
        "algorithm": config.algorithm,
        "task": config.task.id,
        "seed": config.seed,
        "ranks": run.attributes.get("ranks"),
        "generation": len(run.history["metrics/generation"]) if "metrics/generation" in run.history else 0,
        "env_steps": {kind: env_steps(run, kind) for kind in KINDS},
        "nominal_steps": last(run, "nominal_steps") or 0,
        "gradient_updates": last(run, "gradient_updates") or 0,
        "unstable_episodes": last(run, "unstable_episodes") or 0,
        "sigma": last(run, "sigma"),
        "best_return": max(best, default=None),
        "final_return": final,
        "last_evaluation": evaluation,
        "theta_sha256": run.attributes.get("theta_sha256"),
        "state_sha256": run.attributes.get("state_sha256"),
        "checkpoint_generation": run.attributes.get("checkpoint_generation"),
        "wall_seconds": last(run, "wall_seconds", "timing") or 0.0,
        "parallel_efficiency": parallel_efficiency(run),
        "time": run.status.get("time"),
    }


def last(run: RunFiles, name: str, group: str = "metrics") -> Any:
    """Return the last finite value of a column of scalars, or None."""
    column = run.history.get(f"{group}/{name}", np.zeros(0))
    finite = column[np.isfinite(column)]
    return finite[-1].item() if len(finite) else None


def env_steps(run: RunFiles, kind: str) -> int:
    """Return the environment steps of a kind, with those of the evaluation at the end."""
    apart = run.history.get(f"final/env_steps_{kind}", 0)
    return (last(run, f"env_steps_{kind}") or 0) + int(apart)


def evaluations(run: RunFiles, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], returns [m, episodes]) of the evaluations of a policy, the one at the end included."""
    returns = run.history.get(f"metrics/evaluation_{policy}", np.zeros((0, 1)))
    generations = run.history.get("metrics/generation", np.zeros(0, int))
    made = np.isfinite(returns).any(axis=1)
    generations, returns = generations[made], returns[made]
    final = run.history.get(f"final/evaluation_{policy}")
    if final is not None:
        when = run.history.get("final/generation", run.history["metrics/generation"][-1:])
        generations, returns = np.append(generations, when), np.vstack([returns, final])
    return generations, returns


def finite_mean(returns: np.ndarray) -> float | None:
    """Return the mean return of an evaluation, None if an episode of it was unstable: the run takes no such policy."""
    return float(returns.mean()) if np.isfinite(returns).all() else None


def last_evaluation(run: RunFiles) -> dict[str, Any]:
    """Return the last mean return of each policy and the generation it was made in."""
    found: dict[str, Any] = {"generation": None}
    for policy in POLICIES:
        generations, returns = evaluations(run, policy)
        found[policy] = finite_mean(returns[-1]) if len(returns) else None
        if len(returns):
            found["generation"] = int(generations[-1])
    return found


def final_return(run: RunFiles) -> float | None:
    """Return the better mean return of the last generation of a complete run, or None."""
    if run.state != "complete":
        return None
    evaluation = last_evaluation(run)
    if evaluation["generation"] != last(run, "generation"):
        return run.status.get("final_return")
    return max((evaluation[policy] for policy in POLICIES if evaluation[policy] is not None), default=None)


def parallel_efficiency(run: RunFiles) -> float | None:
    """Return the mean over generations of sum(busy) / (ranks * wall of the evaluation), or None."""
    busy = run.history.get("timing/busy_seconds", np.zeros((0, 1)))  # [generations, ranks]
    ranks = np.isfinite(busy).sum(axis=1)
    busy = np.nan_to_num(busy)
    wall = np.maximum(np.nan_to_num(run.history.get("timing/seconds_evaluate", np.zeros(len(busy)))), busy.max(axis=1))
    measured = wall > 0
    return float(np.mean(busy.sum(axis=1)[measured] / (ranks * wall)[measured])) if measured.any() else None


def table(rows: list[dict[str, Any]]) -> str:
    """Return the summaries as lines of aligned columns."""
    cells = [list(COLUMNS)]
    for row in rows:
        shown = {
            **row, **row["last_evaluation"], "generation": row["generation"], "env_steps": sum(row["env_steps"].values()),
            "best": row["best_return"], "final": row["final_return"], "hours": row["wall_seconds"] / 3600,
            "efficiency": row["parallel_efficiency"],
        }  # fmt: skip
        cells.append(["-" if shown[name] is None else form.format(shown[name]) for name, form in COLUMNS.items()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def main(argv: list[str]) -> int:
    """Print the summaries; return 2 if a directory is not a run, 65 if its files cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    rows, code = [], 0
    for path in options.runs:
        try:
            rows.append(summary(Run.open(path)))
        except (Refused, ConfigError, Unreadable) as error:
            print(error, file=sys.stderr)
            code = 65 if isinstance(error, Unreadable) else 2
    if options.json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        print(table(rows))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
