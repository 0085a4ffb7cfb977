"""What comes beside the code: compiled parts, and configs/ and jobs/, of a wheel in the package."""

import importlib
from pathlib import Path
from typing import Any

from esac_mpi.host.errors import Unbuilt

PACKAGE = Path(__file__).parents[1]


def checkout() -> Path | None:
    """Return the checkout that the package is in, None where it was installed apart from one."""
    return PACKAGE.parent if (PACKAGE.parent / "configs/quickstart.toml").is_file() else None


def extension(name: str, interface: int) -> Any:
    """Import a compiled module of the package. Raises Unbuilt where that is missing or stale.

    interface: what it has to have as INTERFACE, which is 1 where it has none.
    """
    again = f"pip install -e {checkout()}" if checkout() else "pip install esac_mpi again"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        told = f"{name} is not built in {PACKAGE}: {again}, which needs a C compiler"
        raise Unbuilt(f"{told}; or start elsewhere, if esac_mpi is installed there") from None
    if getattr(module, "INTERFACE", 1) != interface:
        raise Unbuilt(f"{module.__file__} was built from another source than the rest: {again}")
    return module


def data_folder() -> Path:
    """Return the folder that configs/ and jobs/ are in: the checkout, or the installed package."""
    return checkout() or PACKAGE
