"""A run that begins where another one stands, or from a policy alone. Only rank 0 comes here.

source.py reads it and refuses what would be nonsense, plan.py says what is taken, transfer.py takes
it. What a run's files hold of it is the attribute `start`; docs/warm-start.md has the rules.
"""

from esac_mpi.training.warm_start.plan import Plan, plan, told
from esac_mpi.training.warm_start.source import Source, find, is_within
from esac_mpi.training.warm_start.transfer import begin_from, of

__all__ = ["Plan", "Source", "begin_from", "find", "is_within", "of", "plan", "told"]
