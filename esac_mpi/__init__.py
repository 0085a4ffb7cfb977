"""ESAC: Evolution-based Soft Actor-Critic on MPI clusters (Suri et al., Maximum Mutation Reinforcement Learning).

`Policy` is what a run left, ready to act: `Policy.load("RUN/policy.h5")`. It needs numpy and h5py alone, and only who asks for it
pays for them. `Run.open("RUN")` reads all that a run has on disk (docs/analysis.md).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Policy", "Run", "__version__"]
WHERE = {"Policy": "esac_mpi.record.policies", "Run": "esac_mpi.record"}


def __getattr__(name: str) -> Any:
    if name in WHERE:
        return getattr(import_module(WHERE[name]), name)
    raise AttributeError(f"module 'esac_mpi' has no attribute {name!r}")
