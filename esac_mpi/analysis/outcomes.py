"""What a run came to, as one figure: best and final return, or fitness of the population."""

import numpy as np

from esac_mpi.analysis.curves import column_curve, per_generation, return_curve
from esac_mpi.analysis.evaluations import BETTER
from esac_mpi.record import RunFiles

MEASURES = {
    "best": "best mean return of an evaluation",
    "final": "mean return of the last evaluation",
    "population_max": "largest fitness in the last generation, of the noisy population",
    "mean": "mean fitness of the noisy population, mean over generations",
}
OF_POLICY = ("best", "final")  # the others are the population's


def outcome(run: RunFiles, measure: str, limit: float = np.inf, policy: str = BETTER) -> float:
    """Return a figure of a run (MEASURES) from what it did within so many environment steps; nan where it has none."""
    if measure in OF_POLICY:
        curve = return_curve(run, "env_steps", policy)
    else:
        curve = column_curve(run, "env_steps", per_generation(run, np.nanmean if measure == "mean" else np.nanmax))
    within = curve.y[curve.x <= limit]
    if not within.size:
        return np.nan
    return float(within.max() if measure == "best" else within.mean() if measure == "mean" else within[-1])
