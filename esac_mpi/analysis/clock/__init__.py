"""The clock of a cluster that is not here: what a run would have taken on other ranks, from what it has recorded.

Returns do not depend on the number of ranks, only the clock does. cluster.py has ranks, nodes and their network, generations.py
follows generations through them, recorded.py reads generations off a run's files, grid.py keeps their times in few numbers.
"""

from esac_mpi.analysis.clock.recorded import Machine, computed

__all__ = ["Machine", "computed"]
