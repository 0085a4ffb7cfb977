"""The clock of a cluster that is not here: what a recorded run would have taken on other ranks.

Returns do not depend on the number of ranks, only the clock does. recorded.py reads generations off
a run's files and recorded_tasks.py what is dealt without them, core.py brings their times to the
speed of one core, grid.py keeps them in few numbers; esac_mpi.comm.clock has the ranks and follows
both through them.
"""

from esac_mpi.analysis.clock.core import Core
from esac_mpi.analysis.clock.recorded import Machine, computed

__all__ = ["Core", "Machine", "computed"]
