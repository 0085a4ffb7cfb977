"""The commands as modules, for tests that call their main() in this process."""

import importlib
from types import ModuleType


def command(name: str) -> ModuleType:
    """Return the module of a command."""
    return importlib.import_module(f"esac_mpi.commands.{name}")
