"""A run whose numbers can be told at sight, and how its files are damaged."""

import numpy as np

from esac_mpi.config import Config, updated
from esac_mpi.record import Run


def make(path, generations=3, **final):
    """Leave a run behind: fitness [g, i] = 10 g + i, sigma = g / 10, a second a generation."""
    run = Run.begin(path, updated(Config(), {"seed": 5}), {"ranks": 2, "versions": "numpy 2.4.6"})
    for g in range(1, generations + 1):
        run.append(
            {"generation": g, "sigma": g / 10, "fitness": 10.0 * g + np.arange(4)},
            {"wall_seconds": float(g)},
        )
    run.checkpoint(generations, {"theta_es": np.arange(3, dtype=np.float32)}, {})
    if final:
        run.final(final)
    run.status("requeue", generations)
    return run


def damage(path, keep=-600):
    path.write_bytes(path.read_bytes()[:keep])
