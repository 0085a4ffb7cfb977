"""ESAC: Evolution-based Soft Actor-Critic on MPI clusters (Suri et al., Maximum Mutation Reinforcement Learning).

`Policy` is what a run left, ready to act: `Policy.load("RUN/policy.h5")`. It needs numpy and h5py alone, and only who asks for it
pays for them.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Policy", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Policy":
        return import_module("esac_mpi.record.policies").Policy
    raise AttributeError(f"module 'esac_mpi' has no attribute {name!r}")
