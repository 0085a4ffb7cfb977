"""Run directories of any rows, for what reads them: the one way to write a small run file."""

import numpy as np

from esac_mpi.config import Config, amend
from esac_mpi.record import Run
from esac_mpi.record.files import image, replace
from esac_mpi.training.loop import busy_columns

THETA = np.ones(3, np.float32)


def write(path, rows, settings=None, provenance=None, status="complete", final=None):
    """Write a run of rows of (metrics, timing); return it, held. settings: a Config, or changes."""
    config = settings if isinstance(settings, Config) else amend(Config(), settings or {})
    run = Run.begin(path, config, provenance or {})
    for generation, (metrics, timing) in enumerate(rows, 1):
        if "busy_seconds" in timing:
            timing = {**timing, **busy_columns(timing["busy_seconds"], generation)}
        run.append(metrics, timing)
    run.checkpoint(len(rows), {"theta_es": THETA}, {})
    if final:
        run.final(final)
    run.status(status, len(rows))
    return run


def leave(*arguments, **options):
    """Write a run as `write` does, whose process has ended; return its files as they are read."""
    run = write(*arguments, **options)
    run.close()
    return Run.open(run.path)


def young(path):
    """Leave a run behind that has published nothing; return its path."""
    Run.begin(path, Config(), {}).close()
    return path


def publish(path, arrays, attributes, previous=False):
    """Replace a file by one of these arrays and attributes, as runs publish theirs."""
    replace(path, image(arrays, attributes).parts, previous)
