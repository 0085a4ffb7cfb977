"""What can be said of a run in figures, from its columns: counters, returns, speed, where time went, time left."""

from typing import Any, NamedTuple

import numpy as np

from esac_mpi.analysis.evaluations import evaluations, policies
from esac_mpi.analysis.names import POLICIES, candidates, policy_order
from esac_mpi.record import RunFiles

KINDS = ("population", "learner", "evaluation", "replayed")
# of a generation on rank 0: timing/seconds_<part>
PARTS = ("evaluate", "plan", "update", "offspring", "learn", "evaluation", "record")
OVER = (
    "complete",
    "pruned",
    "requeue",
    "failed",
    "dead",
)  # states in which no process works at the run


def last(run: RunFiles, name: str, group: str = "metrics") -> Any:
    """Return the last finite value of a column of scalars, or None."""
    column = run.columns.get(f"{group}/{name}", np.zeros(0))
    finite = column[np.isfinite(column)]
    return finite[-1].item() if len(finite) else None


def env_steps(run: RunFiles, kind: str) -> int:
    """Return the environment steps of a kind, with those of the evaluation at the end."""
    apart = run.columns.get(f"final/env_steps_{kind}", 0)
    return (last(run, f"env_steps_{kind}") or 0) + int(apart)


def counted_steps(run: RunFiles) -> np.ndarray:
    """Return the environment steps of all kinds so far, by generation, int64 [generations]."""
    kinds = [
        run.columns[name] for kind in KINDS if (name := f"metrics/env_steps_{kind}") in run.columns
    ]
    return (
        np.sum(np.maximum(kinds, 0), axis=0) if kinds else np.zeros(0, np.int64)
    )  # less: not counted by an older version


def finite_mean(returns: np.ndarray) -> float | None:
    """Return the mean return of an evaluation, None if an episode of it was unstable: the run takes no such policy."""
    return float(returns.mean()) if np.isfinite(returns).all() else None


def last_evaluation(run: RunFiles) -> dict[str, Any]:
    """Return the mean return of each policy, theta_es and sac always, in the last evaluation, and its generation.

    None: the policy has none there, or one of its episodes was unstable.
    """
    made = {
        policy: evaluations(run, policy) for policy in policy_order([*POLICIES, *policies(run)])
    }
    newest = max(
        (int(generations[-1]) for generations, _ in made.values() if len(generations)), default=None
    )
    there = {policy: len(g) > 0 and g[-1] == newest for policy, (g, _) in made.items()}
    means = {
        policy: finite_mean(returns[-1]) if there[policy] else None
        for policy, (_, returns) in made.items()
    }
    return {"generation": newest, **means}


def final_return(run: RunFiles) -> float | None:
    """Return the mean return of the last generation of a complete run, of the better of its policies, or None."""
    if run.state != "complete":
        return None
    evaluation = last_evaluation(run)
    if evaluation["generation"] != last(run, "generation"):
        return run.status.get("final_return")
    return max(
        (
            evaluation[policy]
            for policy in candidates(policies(run))
            if evaluation[policy] is not None
        ),
        default=None,
    )


def best_return(run: RunFiles) -> float | None:
    """Return the return of the best policy, on start states that did not choose it, or None.

    Of a run of an older version it is the best mean return of any evaluation.
    """
    if "final/best_return" in run.columns:
        found = float(run.columns["final/best_return"])
        return found if np.isfinite(found) else None
    older = [final_return(run)] if any(name.startswith("final/") for name in run.columns) else []
    return max(
        (value for value in (last(run, "best_return"), *older) if value is not None), default=None
    )


class Busy(NamedTuple):
    """Each [generations]; empty where nothing is recorded."""

    ranks: np.ndarray  # how many there were
    total: np.ndarray  # busy seconds of all of them
    most: np.ndarray  # of the busiest
    root: np.ndarray  # of rank 0


def busy(run: RunFiles) -> Busy:
    """Return the busy seconds of all ranks; where a row has not every rank they are the recorded mean times the ranks."""
    rows = run.columns.get(
        "timing/busy_seconds", np.zeros((0, 1))
    )  # [generations, ranks], nan where a rank was not there
    there, values = np.isfinite(rows).sum(axis=1), np.nan_to_num(rows)
    ranks, mean, most = (
        run.columns.get(f"timing/busy_{name}", np.full(len(rows), np.nan))
        for name in ("ranks", "mean", "max")
    )
    some = ranks > there
    return Busy(
        ranks=np.where(some, ranks, there).astype(int),
        total=np.where(some, mean * ranks, values.sum(axis=1)),
        most=np.where(some, most, values.max(axis=1)),
        root=values[:, 0],
    )


def parallel_efficiency(run: RunFiles, rows: int = 0) -> float | None:
    """Return the mean over the last `rows` generations (0 = all) of sum(busy) / (ranks * wall of the evaluation), or None."""
    ranks, total, most, _ = (part[-rows:] for part in busy(run))
    evaluate = run.columns.get("timing/seconds_evaluate")
    wall = np.nan_to_num(evaluate[-rows:]) if evaluate is not None else np.zeros(len(most))
    wall = np.maximum(wall, most)
    measured = wall > 0
    return float(np.mean(total[measured] / (ranks * wall)[measured])) if measured.any() else None


def rate(run: RunFiles, counted: np.ndarray, rows: int = 0) -> float | None:
    """Return how fast a cumulative count [generations] grew over the last `rows` generations (0 = all) [1/s], or None."""
    wall = run.columns.get("timing/wall_seconds", np.zeros(0))
    if not len(wall) or len(counted) != len(wall):
        return None
    first = max(0, len(wall) - rows) if rows else 0
    since, start = (wall[first - 1], counted[first - 1]) if first else (0.0, 0)
    return float((counted[-1] - start) / (wall[-1] - since)) if wall[-1] > since else None


def time_percent(run: RunFiles) -> dict[str, float]:
    """Return where rank 0's time went, by part of a generation, in percent of the wall time; empty before the first."""
    wall = last(run, "wall_seconds", "timing")
    if not wall:
        return {}
    found = {
        p: float(np.nansum(run.columns[name]))
        for p in PARTS
        if (name := f"timing/seconds_{p}") in run.columns
    }
    found["other"] = max(0.0, wall - sum(found.values()))
    return {part: round(100 * seconds / wall, 1) for part, seconds in found.items()}


def budget(run: RunFiles) -> dict[str, tuple[np.ndarray, float]]:
    """Return what the budget limits: by name the count so far [generations] and its limit."""
    limits = run.config.budget
    names = {"generation": limits.generations, "nominal_steps": limits.nominal_steps}
    found: dict[str, tuple[np.ndarray, float]] = {
        n: (run.columns[f"metrics/{n}"], limit)
        for n, limit in names.items()
        if limit and f"metrics/{n}" in run.columns
    }
    if limits.env_steps:
        found["env_steps"] = counted_steps(run), limits.env_steps
    if limits.minutes and "timing/wall_seconds" in run.columns:
        found["minutes"] = run.columns["timing/wall_seconds"] / 60, limits.minutes
    return found


def progress(run: RunFiles) -> float:
    """Return how much of the budget is spent, 0 to 1."""
    return min(
        1.0,
        max(
            (count[-1] / limit for count, limit in budget(run).values() if len(count)), default=0.0
        ),
    )


def seconds_left(run: RunFiles, rows: int = 0) -> float | None:
    """Return the time to the end of the budget at the speed of the last `rows` generations (0 = all) [s], or None."""
    found = [
        (limit - count[-1]) / speed
        for count, limit in budget(run).values()
        if (speed := rate(run, count, rows))
    ]
    return max(0.0, float(min(found))) if found else None
