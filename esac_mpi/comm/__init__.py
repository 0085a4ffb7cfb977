"""The ranks of a run: what travels between them, who does what, the clock of computed ranks.

May import: the folders below it, host to record. mpi.py imports mpi4py, when World is asked for.
Begin with: world.py. contracts.py, virtual_time.py, schedule.py and clock/ need no MPI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esac_mpi.comm.headers import DivergedError, boards
    from esac_mpi.comm.launch import LaunchError, abort, binding, check_launcher, library
    from esac_mpi.comm.node import free_memory
    from esac_mpi.comm.world import World
    from esac_mpi.host.stop import Abandoned

__all__ = [
    "Abandoned",
    "DivergedError",
    "LaunchError",
    "World",
    "abort",
    "binding",
    "boards",
    "check_launcher",
    "free_memory",
    "library",
]
WHERE = {
    "Abandoned": "esac_mpi.host.stop",
    "World": "esac_mpi.comm.world",
    "free_memory": "esac_mpi.comm.node",
    **dict.fromkeys(("DivergedError", "boards"), "esac_mpi.comm.headers"),
    **dict.fromkeys(
        ("LaunchError", "abort", "binding", "check_launcher", "library"), "esac_mpi.comm.launch"
    ),
}


def __getattr__(name: str) -> Any:
    """Load MPI, and all of these names, when the first of them is asked for."""
    if name not in WHERE:
        raise AttributeError(f"module 'esac_mpi.comm' has no attribute {name!r}")
    globals().update({each: getattr(import_module(module), each) for each, module in WHERE.items()})
    return globals()[name]
