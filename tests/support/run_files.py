"""Run directories of any rows, for what reads them."""

import numpy as np

from esac_mpi.config import Config, updated
from esac_mpi.record import Run
from esac_mpi.training.loop import busy_columns


def leave(path, rows, settings=None, provenance=None, status="complete", final=None):
    """Leave a run of these rows of (metrics, timing) behind; return its files as they are read."""
    run = Run.begin(path, updated(Config(), settings or {}), provenance or {})
    for generation, (metrics, timing) in enumerate(rows, 1):
        if "busy_seconds" in timing:
            timing = {**timing, **busy_columns(timing["busy_seconds"], generation)}
        run.append(metrics, timing)
    theta = np.ones(3, np.float32)
    run.checkpoint(len(rows), {"theta_es": theta}, {}, theta=theta)
    if final:
        run.final(final)
    run.status(status, len(rows))
    run.close()
    return Run.open(path)
