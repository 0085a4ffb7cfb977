"""The algorithms, by name: the files here that config.ALGORITHMS names, or whose forms these are.

A module has five names: DECLARES, State, init(), board(), generation(); and may have expected(), for forecasts.
"""

from importlib import import_module
from types import ModuleType

from esac_mpi import config

ALGORITHMS: dict[str, ModuleType] = {
    name: import_module(f"esac_mpi.algorithms.{config.table_of(name)}") for name in config.ALGORITHMS
}
