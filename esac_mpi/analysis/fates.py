"""What became of the learner's actor in the population that it was injected into: PDERL's Table 2 and Figure 11."""

import numpy as np

from esac_mpi.analysis.curves import column
from esac_mpi.record import RunFiles

FATES = (
    "elite",
    "selected",
    "discarded",
)  # in the order of the values of metrics/learner_fate; -1: no injection before


def rate(run: RunFiles, fate: str) -> np.ndarray:
    """Return in how many of the selections so far that met the learner's actor this was its fate, float64 [generations] [%].

    nan before the first of them; empty where the run has no injections.
    """
    fates = column(run, "metrics/learner_fate")
    met = (fates >= 0).cumsum()
    so_far = (fates == FATES.index(fate)).cumsum()
    return np.where(met > 0, 100 * so_far / np.maximum(met, 1), np.nan)
