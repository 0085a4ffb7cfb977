"""What a task is made of, so that a run is not continued on another one: model, source, wrappers.

Digests are the same in every process. Of the source the modules of the task's own classes count,
and what they import of the same package or from outside site-packages; all without comments,
docstrings, layout and what a module does as a program. Of a script that holds its task and trains
in it, imports, definitions, constants and what is registered count.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from esac_mpi.envs import Env, import_mujoco, is_of

# by provenance.versions
RECORDED = {"esac_mpi", "numpy", "torch", "gymnasium", "mujoco", "dm_control", "dm_env"}
# parts of a model's names: where its files were, how it looks
PATHS = ("paths", "_pathadr")
PICTURES = ("tex_", "skin_")
PHYSICS = ("dm_control.mujoco.engine", "Physics")
LISTED = 50  # modules named one by one
SCRIPT = "__main__"  # the module that Python was started with
SCRIPT_ENTRY = "script"  # what a run records of it under; earlier versions: SCRIPT
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# attribute of a module: the spec it was imported by, and its digest then
FIRST_SEEN = "__esac_mpi_first_seen__"


def identity(env: Env) -> dict[str, str]:
    """Digest a task: {model: digest, source: modules and digests, wrappers: names}; "" for none."""
    layers = getattr(env, "layers", [])
    wrappers = " of ".join(type(layer).__qualname__ for layer in layers)
    return {"model": model(layers), "source": source(env.id, layers), "wrappers": wrappers}


def model(layers: Iterable[Any]) -> str:
    """Digest the MuJoCo models that a task holds, as they are now; "" for none."""
    models = list(_models(layers))
    digest = sha256()
    for each in models:
        for name, content in _contents(each):
            digest.update(name.encode() + content)
    return digest.hexdigest()[:16] if models else ""


def _models(layers: Iterable[Any]) -> Iterator[Any]:
    """Yield the MuJoCo models that a task's layers hold, each once; dm_control's in a Physics."""
    known: list[Any] = []
    for layer in layers:
        for value in getattr(layer, "__dict__", {}).values():
            found = value.model.ptr if is_of(value, *PHYSICS) else value
            is_model = isinstance(found, import_mujoco().MjModel)
            if is_model and not any(found is one for one in known):
                known.append(found)
                yield found


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


def edited(env: Env) -> list[str]:
    """Name a task's own modules whose files changed since this process first looked at them.

    What runs is what was imported: one that was imported anew is the one on disk, if all of the
    task's that import it were, too.
    """
    digests, imports = _digests(env.id, getattr(env, "layers", []))
    modules = {name: sys.modules[name] for name in digests}
    marks = {name: mark for name, it in modules.items() if (mark := getattr(it, FIRST_SEEN, None))}
    stale = {name for name, (spec, _) in marks.items() if spec is modules[name].__spec__}
    imported = stale.union(*(imports[name] for name in stale))
    found = [name for name, (_, was) in marks.items() if was != digests[name] and name in imported]
    if not found:
        for name, module in modules.items():
            setattr(module, FIRST_SEEN, (module.__spec__, digests[name]))
    return found


def source(id: str, layers: Iterable[Any]) -> str:
    """List `module digest, ...` of a task's own source, by name; "" where all is in RECORDED."""
    digests = sorted(_digests(id, layers)[0].items())
    entries = [f"{SCRIPT_ENTRY if name == SCRIPT else name} {digest}" for name, digest in digests]
    more = entries[LISTED:]
    rest = [f"{len(more)} more {sha256(' '.join(more).encode()).hexdigest()[:8]}"] if more else []
    return ", ".join(entries[:LISTED] + rest)


def _digests(id: str, layers: Iterable[Any]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Digest each module of a task's own source, and name what each may have imported."""
    waiting = {id.partition(":")[0]} if ":" in id else set()
    for layer in layers:
        waiting |= {base.__module__ for base in type(layer).__mro__}
        spec = getattr(layer, "__dict__", {}).get("spec")  # a wrapper's would be a copy
        if spec is not None:
            waiting.add(origin(spec))
    packages = {name.partition(".")[0] for name in waiting}
    found, imports = dict[str, str](), dict[str, set[str]]()
    seen: set[str] = set()
    while waiting - seen:
        name = min(waiting - seen)
        seen.add(name)
        if tree := _own(name, packages):
            imports[name] = _imported(tree, name)
            waiting |= imports[name]
            found[name] = sha256(_executed(tree).encode()).hexdigest()[:8]
    return found, imports


def origin(spec: Any) -> str:
    """Name the module of what makes a registered environment."""
    maker = spec.entry_point
    return maker.partition(":")[0] if isinstance(maker, str) else getattr(maker, "__module__", "")


def _own(name: str, packages: set[str]) -> ast.Module | None:
    """Parse a loaded module that is the user's own, or of `packages`; None for another."""
    package, file = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None) or ""
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    recorded = package in RECORDED | sys.stdlib_module_names
    if recorded or not file.endswith(".py") or (installed and package not in packages):
        return None
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):  # removed, or broken, since it was loaded
        return None
    body: list[ast.stmt] = []
    for node in tree.body:
        body += (node.body if name == SCRIPT else node.orelse) if _is_program(node) else [node]
    tree.body = [node for node in body if name != SCRIPT or _declares(node)]
    return tree


def _is_program(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether this is `if __name__ == "__main__":`, which no import executes."""
    tests = (f"__name__ == '{SCRIPT}'", f"'{SCRIPT}' == __name__")
    return isinstance(node, ast.If) and ast.unparse(node.test) in tests


def _declares(node: ast.stmt) -> bool:
    """Whether a statement of a script may make its task, rather than train in it."""
    calls = any(isinstance(part, ast.Call) for part in ast.walk(node))
    return not calls or isinstance(node, DEFINITIONS) or _registers(node)


def registers(name: str) -> bool:
    """Whether the import of a loaded module of the user's own registers a task."""
    tree = _own(name, set())
    return tree is not None and any(_registers(node) for node in tree.body)


def _registers(node: ast.stmt) -> bool:
    """Whether a statement calls what may be gymnasium's register."""
    return any(
        isinstance(call, ast.Call) and ast.unparse(call.func).endswith("register")
        for call in ast.walk(node)
    )


def _imported(tree: ast.Module, name: str) -> set[str]:
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


def _executed(tree: ast.Module) -> str:
    """Dump what a module executes: its syntax without docstrings and positions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | DEFINITIONS):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return ast.dump(tree)
