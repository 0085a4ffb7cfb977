"""How busy a run's ranks were, whichever way it is recorded: all of them in every row, or, of more than 64, some in turn."""

from typing import NamedTuple

import numpy as np

from esac_mpi.record import RunFiles


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
