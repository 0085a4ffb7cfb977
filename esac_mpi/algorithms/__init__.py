"""The algorithms, by name: the files here that config.ALGORITHMS names, or whose forms these are.

And the modules of other packages that are entry points of the group esac_mpi.algorithms.

May import: host, config, operators, play, comm's contracts; world, env and learner are handed in.
Begin with: esac.py: generation(); declaration.py says what the rest knows of an algorithm.

A module has the five NAMES, and may have expected(), for forecasts.
"""

from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from esac_mpi import config
from esac_mpi.config.whole import INSTALLED, load_installed
from esac_mpi.host.errors import BrokenAlgorithm

NAMES = "DECLARES", "State", "init", "board", "generation"
POINTS = {point.name: point for point in entry_points(group="esac_mpi.algorithms")}
if alone := POINTS.keys() - INSTALLED.keys():
    raise BrokenAlgorithm(
        f"entry point {min(alone)} of esac_mpi.algorithms has no table of its name in "
        "esac_mpi.tables"
    )


def load(name: str) -> ModuleType:
    """Import an algorithm's module. Raises BrokenAlgorithm for an installed one that cannot be."""
    if name not in INSTALLED:
        return import_module(f"esac_mpi.algorithms.{config.table_of(name)}")
    if name not in POINTS:
        lacks = "has none beside it in esac_mpi.algorithms, which names its module"
        raise BrokenAlgorithm(f"entry point {name} of esac_mpi.tables {lacks}")
    module: ModuleType = load_installed(POINTS[name], check_module)
    return module


def check_module(module: Any) -> None:
    """Raise AttributeError unless a module has the names that an algorithm has."""
    if missing := [name for name in NAMES if not hasattr(module, name)]:
        raise AttributeError(f"it has no {', '.join(missing)}")


ALGORITHMS: dict[str, ModuleType] = {name: load(name) for name in config.ALGORITHMS}


def head_scale_of(policy: str) -> float:
    """Look up the factor on a policy's last layer in discrete tasks; 1.0 for an unknown name."""
    return next(
        (a.DECLARES.head_scale for a in ALGORITHMS.values() if policy in a.DECLARES.policies), 1.0
    )
