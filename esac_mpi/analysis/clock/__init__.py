"""The clock of a cluster that is not here: what a recorded run would have taken on other ranks.

Returns do not depend on the number of ranks, only the clock does. recorded.py reads generations off
a run's files and recorded_tasks.py what is dealt without them, grid.py keeps their times in few
numbers; esac_mpi.comm.clock has the ranks and follows both through them.
"""

from esac_mpi.analysis.clock.recorded import describe_ranks, generation_ends

__all__ = ["describe_ranks", "generation_ends"]
