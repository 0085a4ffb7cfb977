"""Quantities of runs as curves: evaluations, training returns, any column, against an axis.

Steps are the true ones of population and learner, members' episodes played again for it among them;
evaluation, which teaches nothing, is not on the axis.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esac_mpi.analysis.clock import generation_ends
from esac_mpi.analysis.measures import column, counted_steps
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.returns import BETTER, WINDOW, evaluated, training, training_returns
from esac_mpi.record import RunFiles

AXES = {
    "env_steps": "environment steps of population and learner",
    "nominal_steps": "nominal steps (the papers' count)",
    "training_episodes": "training episodes",
    "generation": "generation",
    "wall": "wall time",
}
Axis = str | int  # one of AXES, or a number of ranks: the wall time computed for these


@dataclass(frozen=True)
class Origin:
    """Which run a curve is of."""

    name: str
    task: str
    seed: int
    algorithm: str
    path: Path = Path()  # of the files, where there are any


@dataclass(frozen=True)
class Curve:
    """A quantity of one run."""

    origin: Origin
    x: np.ndarray  # [points], ascending
    y: np.ndarray  # [points]


def make_origin(run: RunFiles) -> Origin:
    """Make the origin of a run's curves: name, task, seed, algorithm and path."""
    config = run.config
    return Origin(run.path.name, config.task.id, config.seed, config.algorithm, run.path)


def position(run: RunFiles, x: Axis) -> np.ndarray:
    """Return the generations' positions on an axis, float64 [generations]; wall time in seconds.

    Raises Unusable for another axis, and for ranks where the run has no clock on others.
    """
    if isinstance(x, int | np.integer):
        return generation_ends(run, int(x))
    if x not in AXES:
        raise Unusable(f"axis {x!r}: there are {', '.join(AXES)}, or a number of ranks")
    if x == "env_steps":
        return counted_steps(run, ("population", "learner", "replayed")).astype(float)
    if x == "training_episodes":
        return training_returns(run)[0].astype(float)
    return column(run, "timing/wall_seconds" if x == "wall" else f"metrics/{x}").astype(float)


def return_curve(run: RunFiles, x: Axis, policy: str = BETTER) -> Curve:
    """Return a run's evaluations against an axis."""
    generations, returns = evaluated(run, policy)
    if not len(generations):
        return Curve(make_origin(run), np.zeros(0), returns)
    where = np.interp(generations, column(run, "metrics/generation"), position(run, x))
    return Curve(make_origin(run), where, returns)


def column_curve(run: RunFiles, x: Axis, values: np.ndarray) -> Curve:
    """Return finite values [generations] against an axis; empty values give an empty curve."""
    finite = np.isfinite(values)
    return Curve(make_origin(run), position(run, x)[: len(values)][finite], values[finite])


def per_row(rows: np.ndarray, *statistics: Callable[..., np.ndarray]) -> np.ndarray:
    """Compute statistics of the finite numbers of each row of [rows, n]; nan for a row without any.

    Returns float64 [statistics, rows].
    """
    finite = np.isfinite(rows)
    some, found = finite.any(axis=-1), np.full((len(statistics), len(rows)), np.nan)
    if some.any():
        numbers = np.where(finite, rows, np.nan)[some]
        found[:, some] = [statistic(numbers, axis=1) for statistic in statistics]
    return found


def per_generation(run: RunFiles, statistic: Callable[..., np.ndarray]) -> np.ndarray:
    """Compute a statistic of members' finite returns [generations], nan: none; [0] without."""
    return per_row(column(run, "metrics/fitness"), statistic)[0]


def training_curve(run: RunFiles, x: Axis, window: int = WINDOW) -> Curve:
    """Return training returns' moving average: by episode, or on other axes by generation."""
    episodes, average = training(run, window)
    if x == "training_episodes":
        return Curve(make_origin(run), episodes.astype(float), average)
    return column_curve(run, x, np.concatenate([[np.nan], average])[training_returns(run)[0]])


def last_before(curve: Curve, limit: float = np.inf) -> float:
    """Return a curve's last value at or before a place, nan if it has none."""
    before = np.flatnonzero(curve.x <= limit)
    return float(curve.y[before[-1]]) if before.size else np.nan
