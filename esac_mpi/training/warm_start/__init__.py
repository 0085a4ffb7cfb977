"""A run that begins from another one, or from a policy alone. Only rank 0 comes here.

source.py reads the source and says what no run can begin from, plan.py says what is taken and takes
it. What a run's files hold of it is the attribute `start`; docs/how-to/warm-start.md has the rules.
"""

from esac_mpi.training.warm_start.plan import Plan, begin_policies, describe, plan, take
from esac_mpi.training.warm_start.source import Source, find, is_within

__all__ = ["Plan", "Source", "begin_policies", "describe", "find", "is_within", "plan", "take"]
