"""What rides on every exchange of the ranks beside their results, and what is read from it."""

from collections.abc import Sequence

import numpy as np

# Columns that ride on every exchange: busy seconds, wish to stop, checksum of the node's parameters, background unfinished,
# part given up.
HEADER = 5
BUSY, STOP, CHECKSUM, BACKGROUND, GIVEN_UP = range(HEADER)


class DivergedError(Exception):
    """Nodes computed different parameters."""


def boards(count: int, columns: int, ranks: int) -> tuple[int, int]:
    """Return the shape of what a node keeps for a `map`, float64: two boards in turn, each the results and all ranks' headers."""
    return 2, count * columns + ranks * HEADER


def compare(checksums: np.ndarray, hosts: Sequence[str]) -> None:
    """Raise DivergedError, naming hosts, unless all ranks' checksums [ranks] of their nodes' parameters are equal."""
    if (checksums != checksums[0]).any():
        odd = sorted({host for host, c in zip(hosts, checksums, strict=True) if c != checksums[0]})
        raise DivergedError(
            f"the parameters of {', '.join(odd)} differ from those of {hosts[0]}: these nodes compute different bits "
            "(another CPU type or library version); run on nodes of one kind"
        )
