"""The commands of tools/ as modules, for tests that call their main() in this process."""

import importlib.util
from functools import cache
from types import ModuleType

from conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "tools").glob("*.py"))


@cache
def command(name: str) -> ModuleType:
    """Return a file of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
