"""What the tools read from runs: evaluations, other columns, single figures.

Steps are the true ones of population and learner; evaluation, which teaches nothing, is not on the axis.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from esac_mpi.analysis.episodes import WINDOW, training, training_returns

from esac_mpi.record import RunFiles

AXES = {
    "env_steps": "environment steps of population and learner",
    "nominal_steps": "nominal steps (the papers' count)",
    "training_episodes": "training episodes",
    "generation": "generation",
    "wall": "wall time",
}
POLICIES = ("theta_es", "sac")  # of ESAC and its halves
RIVALS = ("td3", "ddpg", "ppo")
MEASURES = {
    "best": "best mean return of an evaluation",
    "final": "mean return of the last evaluation",
    "population_max": "largest fitness in the last generation, of the noisy population",
    "mean": "mean fitness of the noisy population, mean over generations",
}


@dataclass(frozen=True)
class Origin:
    """Which run a curve is of."""

    name: str
    task: str
    seed: int
    path: Path = Path()  # of the files, where there are any


@dataclass(frozen=True)
class Curve:
    """A quantity of one run."""

    origin: Origin
    x: np.ndarray  # [points], ascending
    y: np.ndarray  # [points]


def origin(run: RunFiles) -> Origin:
    """Return which run this is."""
    return Origin(run.path.name, run.config.task.id, run.config.seed, run.path)


def column(run: RunFiles, name: str) -> np.ndarray:
    """Return a column, empty [0] where the run has none."""
    return run.columns.get(name, np.zeros(0))


def position(run: RunFiles, x: str) -> np.ndarray:
    """Return where the generations lie on an axis, float64 [generations]; wall time in seconds."""
    if x == "env_steps":
        kinds = [column(run, f"metrics/env_steps_{kind}") for kind in ("population", "learner")]
        return np.sum([kind for kind in kinds if kind.size] or [np.zeros(0)], axis=0, dtype=float)
    if x == "training_episodes":
        return training_returns(run)[0].astype(float)
    return column(run, "timing/wall_seconds" if x == "wall" else f"metrics/{x}").astype(float)


def evaluations(run: RunFiles, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], returns [m, episodes]) of a policy's evaluations, the one at the end included."""
    history = run.columns
    generations = history.get("metrics/generation", np.zeros(0, int))
    returns = history.get(f"metrics/evaluation_{policy}", np.full((len(generations), 1), np.nan))
    made = np.isfinite(returns).any(axis=1)
    generations, returns = generations[made], returns[made]
    final = history.get(f"final/evaluation_{policy}")
    if final is not None:
        when = history.get("final/generation", history["metrics/generation"][-1:])
        generations, returns = np.append(generations, when), np.vstack([returns.reshape(-1, final.size), final])
    return generations, returns


def policies(run: RunFiles) -> tuple[str, ...]:
    """Return the names of policies that a figure is given for: ESAC's two, and a rival's where the run has one."""
    return (*POLICIES, *(name for name in RIVALS if f"metrics/evaluation_{name}" in run.columns))


def evaluated(run: RunFiles, policy: str = "better") -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], mean returns [m]) of one policy's evaluations, or of the better one's each time.

    As in the run itself, a policy with an unstable episode is no candidate.
    """
    found: dict[int, float] = {}
    for name in policies(run) if policy == "better" else (policy,):
        for generation, returns in zip(*evaluations(run, name), strict=True):
            if np.isfinite(returns).all():
                found[int(generation)] = max(found.get(int(generation), -np.inf), float(returns.mean()))
    generations = np.array(sorted(found), int)
    return generations, np.array([found[g] for g in generations.tolist()])


def return_curve(run: RunFiles, x: str, policy: str = "better") -> Curve:
    """Return a run's evaluations against an axis."""
    generations, returns = evaluated(run, policy)
    where = np.interp(generations, column(run, "metrics/generation"), position(run, x)) if len(generations) else np.zeros(0)
    return Curve(origin(run), where, returns)


def column_curve(run: RunFiles, x: str, values: np.ndarray) -> Curve:
    """Return values [generations] against an axis, without those that are not finite; empty values give an empty curve."""
    finite = np.isfinite(values)
    return Curve(origin(run), position(run, x)[: len(values)][finite], values[finite])


def per_generation(run: RunFiles, statistic: Callable[..., np.ndarray]) -> np.ndarray:
    """Return a statistic of the members' finite returns [generations], nan where there is none; empty without a population."""
    fitness = column(run, "metrics/fitness")
    alive = np.isfinite(fitness).any(axis=-1)
    values = np.full(len(fitness), np.nan)
    if alive.any():
        values[alive] = statistic(np.where(np.isfinite(fitness), fitness, np.nan)[alive], axis=1)
    return values


def training_curve(run: RunFiles, x: str, window: int = WINDOW) -> Curve:
    """Return a run's moving average of training returns: by episode, or against another axis at the ends of generations."""
    episodes, average = training(run, window)
    if x == "training_episodes":
        return Curve(origin(run), episodes.astype(float), average)
    return column_curve(run, x, np.concatenate([[np.nan], average])[training_returns(run)[0]])


def last_before(curve: Curve, limit: float) -> float:
    """Return a curve's last value at or before a place, nan if it has none."""
    before = np.flatnonzero(curve.x <= limit)
    return float(curve.y[before[-1]]) if before.size else np.nan


def measured(run: RunFiles, measure: str, limit: float = np.inf, policy: str = "better") -> float:
    """Return a figure of a run (MEASURES) from what it did within so many environment steps; nan where it has none."""
    if measure in ("best", "final"):
        curve = return_curve(run, "env_steps", policy)
    else:
        curve = column_curve(run, "env_steps", per_generation(run, np.nanmean if measure == "mean" else np.nanmax))
    within = curve.y[curve.x <= limit]
    if not within.size:
        return np.nan
    return float(within.max() if measure == "best" else within.mean() if measure == "mean" else within[-1])
