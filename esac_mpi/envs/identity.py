"""What a task is made of, so that a run is not continued on another one: model, source, wrappers.

Digests are the same in every process. Of the source the files of the modules of the task's own
classes count, and of those that they import of the same package or from outside site-packages. Of a
script that holds its task and trains in it, the task's classes count.
"""

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.envs import Env, import_mujoco, is_of

# by provenance.versions
RECORDED = {"esac_mpi", "numpy", "torch", "gymnasium", "mujoco", "dm_control", "dm_env"}
PATHS = ("paths", "_pathadr")  # parts of a model's names: where its files were, how it looks
PICTURES = ("tex_", "skin_")
PHYSICS = ("dm_control.mujoco.engine", "Physics")  # holds the model of a task of the suite
LISTED = 50  # modules named one by one
SCRIPT = "__main__"  # the module that Python was started with
SCRIPT_ENTRY = "script"  # what a run records of it under; earlier versions: SCRIPT
# attribute of a module: the spec it was imported by, and its digest then; of a script's class,
# that class and its text
FIRST_SEEN = "__esac_mpi_first_seen__"


def identity(env: Env) -> dict[str, str]:
    """Digest a task: {model: digest, source: modules and digests, wrappers: names}; "" for none."""
    layers = getattr(env, "layers", [])
    wrappers = " of ".join(type(layer).__qualname__ for layer in layers)
    return {"model": model(layers), "source": source(env.id, layers), "wrappers": wrappers}


def model(layers: Iterable[Any]) -> str:
    """Digest the MuJoCo models that a task holds, as they are now, each once; "" for none."""
    values = [value for layer in layers for value in getattr(layer, "__dict__", {}).values()]
    held = [value.model.ptr if is_of(value, *PHYSICS) else value for value in values]
    models = {id(each): each for each in held if isinstance(each, import_mujoco().MjModel)}
    digest = sha256()
    for each in models.values():
        for name, content in _contents(each):
            digest.update(name.encode() + content)
    return digest.hexdigest()[:16] if models else ""


def _contents(model: Any) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of a model's arrays and options, but for PATHS and PICTURES."""
    for part, prefix in ((model, ""), (model.opt, "opt.")):
        for name in dir(part):
            if name.startswith(("_", *PICTURES)) or name.endswith(PATHS):
                continue
            value = getattr(part, name)
            if isinstance(value, np.ndarray):
                yield prefix + name, value.tobytes()
            elif isinstance(value, bytes) or (prefix and isinstance(value, int | float)):
                yield prefix + name, repr(value).encode()


def edited_modules(env: Env) -> list[str]:
    """Name a task's own modules whose files changed since this process first looked at them."""
    layers, found = getattr(env, "layers", []), set()
    digests = _digests(env.id, layers)
    parts: list[tuple[str, Any, Any, str]] = []
    if digests.pop(SCRIPT, ""):  # its digest is of this task's classes alone
        parts += [(SCRIPT, kind, kind, _text(kind)) for kind in _classes(layers, SCRIPT)]
    for name, digest in digests.items():
        parts.append((name, sys.modules[name], sys.modules[name].__spec__, digest))
    for name, holder, made, digest in parts:
        by, was = vars(holder).get(FIRST_SEEN, (FIRST_SEEN, digest))
        if by is not made:  # at the first look, or after a reload
            setattr(holder, FIRST_SEEN, (made, digest))
        elif was != digest:
            found.add(name)
    return sorted(found)


def source(id: str, layers: Iterable[Any]) -> str:
    """List `module digest, ...` of a task's own source, by name; "" where all is in RECORDED."""
    digests = sorted(_digests(id, layers).items())
    entries = [f"{SCRIPT_ENTRY if name == SCRIPT else name} {digest}" for name, digest in digests]
    more = entries[LISTED:]
    rest = [f"{len(more)} more {sha256(' '.join(more).encode()).hexdigest()[:8]}"] if more else []
    return ", ".join(entries[:LISTED] + rest)


def _digests(id: str, layers: Iterable[Any]) -> dict[str, str]:
    """Digest each module of a task's own source."""
    waiting = {id.partition(":")[0]} if ":" in id else set()
    waiting |= {base.__module__ for base in _classes(layers)}
    for layer in layers:
        spec = getattr(layer, "__dict__", {}).get("spec")  # a wrapper's would be a copy
        if spec is not None:
            waiting.add(origin(spec))
    packages = {name.partition(".")[0] for name in waiting}
    found, seen = dict[str, str](), set[str]()
    while waiting - seen:
        name = min(waiting - seen)
        seen.add(name)
        content = _read_own(name, packages)
        if name == SCRIPT and content:
            content = "".join(sorted(map(_text, _classes(layers, SCRIPT)))).encode()
        elif content:
            with suppress(SyntaxError, ValueError):  # edited since, and no Python now
                waiting |= _imported_names(ast.parse(content), name)
        if content:
            found[name] = sha256(content).hexdigest()[:8]
    return found


def _classes(layers: Iterable[Any], module: str = "") -> set[type]:
    """List the classes of a task's layers, or those of a module."""
    bases = {base for layer in layers for base in type(layer).__mro__}
    return {base for base in bases if base.__module__ == module or not module}


def _text(kind: type) -> str:
    """Read the source of a class, its name where it has none."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError, SyntaxError):
        return kind.__qualname__


def origin(spec: Any) -> str:
    """Name the module of what makes a registered environment."""
    maker = spec.entry_point
    return maker.partition(":")[0] if isinstance(maker, str) else getattr(maker, "__module__", "")


def _read_own(name: str, packages: set[str]) -> bytes:
    """Read the file of a loaded module that is the user's own, or of `packages`; else nothing."""
    package, file = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None) or ""
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    recorded = package in RECORDED | sys.stdlib_module_names
    if recorded or not file.endswith(".py") or (installed and package not in packages):
        return b""
    try:
        return Path(file).read_bytes()
    except OSError:  # removed since it was loaded
        return b""


def _imported_names(tree: ast.Module, name: str) -> set[str]:
    """Name what a module may have imported: modules, and what may be modules or names in them."""
    module = sys.modules[name]
    package = name if hasattr(module, "__path__") else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # a relative import that was not made
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found
