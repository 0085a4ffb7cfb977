"""Tables and figures from the files of runs, for tools/ and notebooks. No MPI, no torch, no simulator.

What needs matplotlib is not imported here: `figure` of `esac_mpi.analysis.plots`, `sensitivity`, `scaling`, `timeline`.
"""

from esac_mpi.analysis.command import opened
from esac_mpi.analysis.curves import Curve, column, column_curve, return_curve, training_curve
from esac_mpi.analysis.evaluations import evaluated, evaluations, policies
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.intervals import interquartile_mean, interval
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.outcomes import outcome
from esac_mpi.analysis.run_tables import table_of
from esac_mpi.analysis.summaries import summary

__all__ = [
    "Curve",
    "Unusable",
    "column",
    "column_curve",
    "evaluated",
    "evaluations",
    "grouped",
    "interquartile_mean",
    "interval",
    "opened",
    "outcome",
    "policies",
    "return_curve",
    "summary",
    "table_of",
    "training_curve",
]
