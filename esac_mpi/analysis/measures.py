"""Figures of a run: counters, returns, speed, where time went, time left; all in one object."""

import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.names import POLICIES, candidates, policy_order
from esac_mpi.analysis.returns import evaluations, policies
from esac_mpi.record import RunFiles

KINDS = ("population", "learner", "evaluation", "replayed")
# of a generation on rank 0: timing/seconds_<part>
PARTS = ("evaluate", "plan", "update", "offspring", "learn", "evaluation", "record")
# what needs somebody first
STATES = ("failed", "dead", "unknown", "requeue", "running", "pruned", "complete")
# states in which no process works at the run
OVER = ("complete", "pruned", "requeue", "failed", "dead", "unknown")


def column(run: RunFiles, name: str) -> np.ndarray:
    """Return a column, empty [0] where the run has none."""
    return run.columns.get(name, np.zeros(0))


def select_begun(runs: list[RunFiles], doing: str) -> list[RunFiles]:
    """Select the runs that have a generation; name the others.

    doing: a verb of what is done with them. Raises Unusable if none has a generation.
    """
    young = [run for run in runs if not column(run, "metrics/generation").size]
    if young:
        note(f"no generation is published yet in {shorten(run.path.name for run in young)}")
    if len(young) == len(runs):
        raise Unusable(f"nothing to {doing} yet: no generation is published in any run given")
    return [run for run in runs if run not in young]


def last(run: RunFiles, name: str, group: str = "metrics") -> Any:
    """Return the last finite value of a column of scalars, or None."""
    values = column(run, f"{group}/{name}")
    finite = values[np.isfinite(values)]
    return finite[-1].item() if len(finite) else None


def env_steps(run: RunFiles, kind: str) -> int:
    """Return the environment steps of a kind, with those of the evaluation at the end."""
    apart = run.columns.get(f"final/env_steps_{kind}", 0)
    return (last(run, f"env_steps_{kind}") or 0) + int(apart)


def counted_steps(run: RunFiles, kinds: Iterable[str] = KINDS) -> np.ndarray:
    """Count the environment steps of these kinds so far, by generation, int64 [generations]."""
    names = [name for kind in kinds if (name := f"metrics/env_steps_{kind}") in run.columns]
    if not names:
        return np.zeros(0, np.int64)
    # less: not counted by an older version
    return np.sum(np.maximum([run.columns[name] for name in names], 0), axis=0)


def last_evaluation(run: RunFiles) -> dict[str, Any]:
    """Return each policy's mean return in the last evaluation, and its generation.

    theta_es and sac are always there. None: the policy has none there, or one of its episodes was
    unstable.
    """
    names = policy_order([*POLICIES, *policies(run)])
    made = {policy: evaluations(run, policy) for policy in names}
    newest = max((int(when[-1]) for when, _ in made.values() if len(when)), default=None)
    found: dict[str, Any] = {"generation": newest}
    for policy, (when, returns) in made.items():
        there = len(when) > 0 and when[-1] == newest
        stable = there and bool(np.isfinite(returns[-1]).all())  # the run takes no other policy
        found[policy] = float(returns[-1].mean()) if stable else None
    return found


def final_return(run: RunFiles) -> float | None:
    """Return a complete run's mean return in its last generation, of its better policy, or None."""
    if run.state != "complete":
        return None
    evaluation = last_evaluation(run)
    if evaluation["generation"] != last(run, "generation"):
        return run.status.get("final_return")
    found = (evaluation[policy] for policy in candidates(policies(run)))
    return max((value for value in found if value is not None), default=None)


def best_return(run: RunFiles) -> float | None:
    """Look up the best policy's return on start states that did not choose it, or None."""
    if "final/best_return" in run.columns:
        found = float(run.columns["final/best_return"])
        return found if np.isfinite(found) else None
    older = [last(run, "best_return")]
    if any(name.startswith("final/") for name in run.columns):
        older.append(final_return(run))
    return max((value for value in older if value is not None), default=None)


class Busy(NamedTuple):
    """Each [generations]; empty where nothing is recorded."""

    ranks: np.ndarray  # how many there were
    total: np.ndarray  # busy seconds of all of them
    most: np.ndarray  # of the busiest
    root: np.ndarray  # of rank 0


def read_busy(run: RunFiles) -> Busy:
    """Read all ranks' busy seconds."""
    ranks, mean, most = (column(run, f"timing/busy_{name}") for name in ("ranks", "mean", "max"))
    rows = run.columns.get("timing/busy_seconds", np.zeros((0, 1)))  # [generations, some ranks]
    return Busy(ranks.astype(int), mean * ranks, most, rows[:, 0])


def generation_seconds(run: RunFiles) -> np.ndarray:
    """Return each generation's time, writing the row before it included [generations] [s]."""
    return np.diff(column(run, "timing/wall_seconds"), prepend=0)


def seconds(run: RunFiles, name: str) -> np.ndarray:
    """Return a part's seconds in every generation [generations], 0 where the algorithm has none."""
    return np.nan_to_num(run.columns.get(f"timing/seconds_{name}", np.zeros(run.generation)))


def core_share(run: RunFiles) -> np.ndarray:
    """Return the share of each generation that rank 0 had a core [generations]; 1: unknown."""
    used = run.columns.get("timing/seconds_processor")
    if used is None or str(run.provenance.get("device", "")).startswith("cuda"):
        return np.ones(run.generation)
    lasted = generation_seconds(run)
    known = np.isfinite(used) & (lasted > 0) & (read_busy(run).ranks == 1)
    return np.divide(used, lasted, out=np.ones(run.generation), where=known).clip(0, 1)


def parallel_efficiency(run: RunFiles) -> float | None:
    """Return the mean over generations of sum(busy) / (ranks * wall of the evaluation), or None."""
    ranks, total, most, _ = read_busy(run)
    evaluate = run.columns.get("timing/seconds_evaluate", np.zeros(len(most)))
    wall = np.maximum(np.nan_to_num(evaluate), most)
    measured = wall > 0
    return float(np.mean(total[measured] / (ranks * wall)[measured])) if measured.any() else None


def rate(run: RunFiles, counted: np.ndarray, rows: int = 0) -> float | None:
    """Compute the rate of a count [generations] over the last `rows` (0 = all) [1/s], or None."""
    wall = column(run, "timing/wall_seconds")
    if not len(wall) or len(counted) != len(wall):
        return None
    first = max(0, len(wall) - rows) if rows else 0
    since, start = (wall[first - 1], counted[first - 1]) if first else (0.0, 0)
    return float((counted[-1] - start) / (wall[-1] - since)) if wall[-1] > since else None


def time_percent(run: RunFiles) -> dict[str, float]:
    """Return the shares of rank 0's time, by part [% of wall time]; empty before any generation."""
    wall = last(run, "wall_seconds", "timing")
    if not wall:
        return {}
    recorded = [part for part in PARTS if f"timing/seconds_{part}" in run.columns]
    found = {part: float(seconds(run, part).sum()) for part in recorded}
    found["other"] = max(0.0, wall - sum(found.values()))
    return {part: round(100 * spent / wall, 1) for part, spent in found.items()}


def budget(run: RunFiles) -> dict[str, tuple[np.ndarray, float]]:
    """Return the limits of the budget: by name the count so far [generations] and its limit."""
    limits = run.config.budget
    counts = {
        "generation": (column(run, "metrics/generation"), limits.generations),
        "nominal_steps": (column(run, "metrics/nominal_steps"), limits.nominal_steps),
        "env_steps": (counted_steps(run), limits.env_steps),
        "minutes": (column(run, "timing/wall_seconds") / 60, limits.minutes),
    }
    return {name: (count, limit) for name, (count, limit) in counts.items() if limit and len(count)}


def progress(run: RunFiles) -> float:
    """Return the spent share of the budget, 0 to 1."""
    spent = (count[-1] / limit for count, limit in budget(run).values())
    return min(1.0, max(spent, default=0.0))


def seconds_left(run: RunFiles, rows: int = 0) -> float | None:
    """Compute the time to the end of the budget at the speed of the last `rows` [s], or None."""
    speeds = [(limit - count[-1], rate(run, count, rows)) for count, limit in budget(run).values()]
    found = [left / speed for left, speed in speeds if speed]
    return max(0.0, float(min(found))) if found else None


def summary(run: RunFiles) -> dict[str, Any]:
    """Sum up a run; None where something is not known (yet)."""
    config = run.config
    return {
        "run": str(run.path),
        "status": run.state,
        "algorithm": config.algorithm,
        "task": config.task.id,
        "seed": config.seed,
        "ranks": run.provenance.get("ranks"),
        "generation": run.generation,
        "env_steps": {kind: env_steps(run, kind) for kind in KINDS},
        "nominal_steps": last(run, "nominal_steps") or 0,
        "gradient_updates": last(run, "gradient_updates") or 0,
        "member_updates": last(run, "member_updates") or 0,
        "unstable_episodes": last(run, "unstable_episodes") or 0,
        "sigma": last(run, "sigma"),
        "best_return": best_return(run),
        "final_return": final_return(run),
        "last_evaluation": last_evaluation(run),
        **{
            name: run.provenance.get(name)
            for name in ("theta_sha256", "state_sha256", "checkpoint_generation", "command")
        },
        "wall_seconds": last(run, "wall_seconds", "timing") or 0.0,
        "parallel_efficiency": parallel_efficiency(run),
        "env_steps_per_second": rate(run, counted_steps(run)),
        "time_percent": time_percent(run),
        "time": run.status.get("time"),
        "resume": resume_command(run),
    }


def resume_command(run: RunFiles) -> str | None:
    """Return the command that continues the run by its own settings; None for none."""
    if run.state in ("running", "complete", "pruned"):
        return None
    ranks, words = run.provenance.get("ranks", 1), ["python", "-m", "esac_mpi"]
    words.append(str(run.path / "config.toml"))
    return shlex.join(["mpirun", "-n", str(ranks), *words] if ranks > 1 else words)
