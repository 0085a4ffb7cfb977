"""Tables, figures and the computed clock, from run files alone: no MPI, no torch, no simulator.

May import: host, config, record, algorithms; of comm what needs no MPI: schedule, virtual_time,
clock/.
Begin with: command.py, then groups.py and curves.py.

What needs matplotlib is not imported here: `plots`, `scaling`, `timeline` and the modules named
picture.
"""

from esac_mpi.analysis.command import opened
from esac_mpi.analysis.curves import Curve, column_curve, return_curve, training_curve
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.intervals import interquartile_mean, interval
from esac_mpi.analysis.measures import column, summary
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import outcome
from esac_mpi.analysis.returns import evaluated, evaluations, policies
from esac_mpi.analysis.run_tables import table_of

__all__ = [
    "Curve", "Unusable", "column", "column_curve", "evaluated", "evaluations", "grouped",
    "interquartile_mean", "interval", "opened", "outcome", "policies", "return_curve", "summary",
    "table_of", "training_curve",
]  # fmt: skip
