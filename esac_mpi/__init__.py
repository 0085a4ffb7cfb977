"""ESAC, Evolution-based Soft Actor-Critic (Suri et al., Maximum Mutation RL), on MPI clusters.

`train("configs/quickstart.toml", {"seed": 3})` trains from a script, a notebook or under mpirun.
`Policy.load("RUN/policy.h5")` is what a run learned, ready to act. `Run.open("RUN")` reads all
that a run has on disk. `Config` is a run's settings; every error is a RunError. Importing the
package starts no MPI and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esac_mpi.config import Config as Config
    from esac_mpi.host.errors import Interrupted, NoCheckpoint, NotSaved, RunError, WrongUsage
    from esac_mpi.record import Run as Run
    from esac_mpi.record.policies import Policy as Policy
    from esac_mpi.training.api import train as train

__version__ = "0.3.0"
__all__ = [
    "Config",
    "Interrupted",
    "NoCheckpoint",
    "NotSaved",
    "Policy",
    "Run",
    "RunError",
    "WrongUsage",
    "__version__",
    "train",
]
WHERE = {
    "Config": "esac_mpi.config",
    "Policy": "esac_mpi.record.policies",
    "Run": "esac_mpi.record",
    "train": "esac_mpi.training.api",
    **dict.fromkeys(
        ("Interrupted", "NoCheckpoint", "NotSaved", "RunError", "WrongUsage"),
        "esac_mpi.host.errors",
    ),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module 'esac_mpi' has no attribute {name!r}")
    return getattr(import_module(WHERE[name]), name)
