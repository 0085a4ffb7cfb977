"""What rides on every exchange of the ranks beside their results, and what is read from it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from esac_mpi.host.stop import Abandoned, EndsRun, Stop

# Columns that ride on every exchange: busy seconds, wish to stop, checksum of the node's
# parameters, background unfinished, how the part was left.
HEADER = 5
BUSY, STOP, CHECKSUM, BACKGROUND, LEFT = range(HEADER)
DONE, GIVEN_UP, ENDS_RUN = range(3)  # how a part was left


class DivergedError(Exception):
    """Nodes computed different parameters."""


def boards(count: int, columns: int, ranks: int) -> tuple[int, int]:
    """Return the shape of a node's two boards for a `map`, float64: results and all headers."""
    return 2, count * columns + ranks * HEADER


def run_part(stop: Stop, part: Callable[[], None]) -> tuple[int, EndsRun | None]:
    """Run a rank's part; return how it was left, and the error in it that ends the run."""
    try:
        return (DONE if stop.carry_out(part) else GIVEN_UP), None
    except EndsRun as found:
        return ENDS_RUN, found


def judge(left: np.ndarray, found: EndsRun | None, gather: Callable[[Any], list[Any]]) -> None:
    """Raise, on all ranks, the error that one found, or else Abandoned if one gave up.

    left: how each rank left its part [ranks].
    """
    if (left == ENDS_RUN).any():
        first = next(one for one in gather(found) if one is not None)
        first.told = True
        raise first
    if left.any():
        raise Abandoned


def compare(checksums: np.ndarray, hosts: Sequence[str]) -> None:
    """Raise DivergedError, with hosts, unless all ranks' parameter checksums [ranks] agree."""
    if (checksums != checksums[0]).any():
        odd = sorted({host for host, c in zip(hosts, checksums, strict=True) if c != checksums[0]})
        differ = f"the parameters of {', '.join(odd)} differ from those of {hosts[0]}"
        why = "these nodes compute different bits (another CPU type or library version)"
        raise DivergedError(f"{differ}: {why}; run on nodes of one kind")
