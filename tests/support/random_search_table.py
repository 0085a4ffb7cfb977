"""The table of random search."""

from dataclasses import dataclass

from esac_mpi.config.bounds import PositiveFloat, PositiveInt
from esac_mpi.config.table import Reads, Table


@dataclass(frozen=True)
class RandomSearch(Table):
    """algorithm = "random_search": the best of points around the best so far (Rastrigin 1963)."""

    READS = Reads()

    points: PositiveInt = 10
    """Points drawn in a generation [points]. Ours."""
    radius: PositiveFloat = 0.1
    """Their standard deviation around the best so far [standard deviation of a weight]. Ours."""
