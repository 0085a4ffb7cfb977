"""A run whose numbers can be told at sight, and how its files are damaged."""

import numpy as np
from run_files import write


def make(path, generations=3, **final):
    """Leave a run behind: fitness [g, i] = 10 g + i, sigma = g / 10, a second a generation."""
    rows = []
    for g in range(1, generations + 1):
        row = {"generation": g, "sigma": g / 10, "fitness": 10.0 * g + np.arange(4)}
        rows.append((row, {"wall_seconds": float(g)}))
    provenance = {"ranks": 2, "versions": "numpy 2.4.6"}
    theta = np.arange(3, dtype=np.float32)
    return write(path, rows, {"seed": 5}, provenance, "requeue", final, theta)


def damage(path, keep=-600):
    path.write_bytes(path.read_bytes()[:keep])
