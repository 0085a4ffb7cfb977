"""What a task is made of, so that a run is not continued on another one: its model as compiled, its source, its wrappers.

Digests are the same in every process. Of the source only what is executed counts: neither comments, docstrings, layout nor what
a module does as a program; and only files whose version is not recorded anyway: the modules of the task's own classes, and those
of the same package or outside site-packages that they import. Of a script that holds its task and trains in it, the classes
count, and what they use.
"""

import ast
import importlib.util
import symtable
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from esac_mpi.envs import Env, import_mujoco, is_of

RECORDED = {
    "esac_mpi",
    "numpy",
    "torch",
    "gymnasium",
    "mujoco",
    "dm_control",
    "dm_env",
}  # by provenance.versions
PATHS, PICTURES = (
    ("paths", "_pathadr"),
    ("tex_", "skin_"),
)  # parts of a model's names: where its files were, how it looks
PHYSICS = ("dm_control.mujoco.engine", "Physics")
LISTED = 50  # modules named one by one
SCRIPT = "__main__"  # the module that Python was started with
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FIRST_SEEN = "__esac_mpi_first_seen__"  # attribute of a module: the spec it was imported by, and its digest then


def identity(env: Env) -> dict[str, str]:
    """Return {model: digest, source: modules and their digests, wrappers: names}; empty strings where a task has none."""
    layers = getattr(env, "layers", [])
    wrappers = " of ".join(type(layer).__qualname__ for layer in layers)
    return {"model": model(layers), "source": source(env.id, layers), "wrappers": wrappers}


def model(layers: Iterable[Any]) -> str:
    """Return a digest of the MuJoCo models that a task holds, as they are now; empty for none."""
    digest, found = sha256(), False
    for each in _models(layers):
        found = True
        for name, content in _contents(each):
            digest.update(name.encode() + content)
    return digest.hexdigest()[:16] if found else ""


def _models(layers: Iterable[Any]) -> Iterator[Any]:
    """Yield the MuJoCo models among the attributes of a task's layers, each once; dm_control has them inside a Physics."""
    known: list[Any] = []
    for layer in layers:
        for value in getattr(layer, "__dict__", {}).values():
            found = value.model.ptr if is_of(value, *PHYSICS) else value
            if isinstance(found, import_mujoco().MjModel) and not any(
                found is one for one in known
            ):
                known.append(found)
                yield found


def _contents(model: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of every array of a model, and of its options, but for PATHS and PICTURES."""
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
    """Return the modules of a task's own that are other ones on disk than when they were first looked at in this process.

    What runs is what was imported: one that was imported anew is the one on disk, if all of the task's that import it were, too.
    """
    digests, imports = _digests(env.id, getattr(env, "layers", []))
    marks = {name: getattr(sys.modules[name], FIRST_SEEN, None) for name in digests}
    stale = {
        name
        for name, mark in marks.items()
        if mark is not None and mark[0] is sys.modules[name].__spec__
    }
    changed = [
        name for name in digests if (mark := marks[name]) is not None and mark[1] != digests[name]
    ]
    found = [
        name for name in changed if name in stale or any(name in imports[other] for other in stale)
    ]
    if not found:
        for name, digest in digests.items():
            setattr(sys.modules[name], FIRST_SEEN, (sys.modules[name].__spec__, digest))
    return found


def source(id: str, layers: Iterable[Any]) -> str:
    """Return `module digest, module digest, ...` of a task's own source, by name; empty where all of it is in RECORDED."""
    entries = [f"{name} {digest}" for name, digest in sorted(_digests(id, layers)[0].items())]
    more = entries[LISTED:]
    rest = [f"{len(more)} more {sha256(' '.join(more).encode()).hexdigest()[:8]}"] if more else []
    return ", ".join(entries[:LISTED] + rest)


def _digests(id: str, layers: Iterable[Any]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return {module: digest of what it executes} of a task's own source, and what each may have imported."""
    waiting = {id.partition(":")[0]} if ":" in id else set()
    of_script = set()
    for layer in layers:
        made_of = [(base.__module__, base.__qualname__) for base in type(layer).__mro__]
        maker = getattr(
            getattr(layer, "__dict__", {}).get("spec"), "entry_point", ""
        )  # a wrapper's would be a copy
        if isinstance(maker, str):
            made_of.append((maker.partition(":")[0], maker.partition(":")[2]))
        else:
            made_of.append((getattr(maker, "__module__", ""), getattr(maker, "__qualname__", "")))
        waiting |= {module for module, _ in made_of}
        names = {name.partition(".")[0] for module, name in made_of if module == SCRIPT}
        of_script |= {
            name for name in names if name.isidentifier()
        }  # not of a lambda, which its register() brings
    packages = {name.partition(".")[0] for name in waiting}
    found, imports = dict[str, str](), dict[str, set[str]]()
    seen: set[str] = set()
    while waiting - seen:
        name = min(waiting - seen)
        seen.add(name)
        if tree := _own(name, packages):
            with suppress(SyntaxError):  # of a file that is being edited
                tree = _used(tree, of_script) if name == SCRIPT else tree
            imports[name] = _imported(tree, name)
            waiting |= imports[name]
            found[name] = sha256(_executed(tree).encode()).hexdigest()[:8]
    return found, imports


def _own(name: str, packages: set[str]) -> ast.Module | None:
    """Return the syntax of a loaded module that is one of the user's own, or of `packages`; None for another."""
    package, file = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None) or ""
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    if (
        package in RECORDED | sys.stdlib_module_names
        or not file.endswith(".py")
        or (installed and package not in packages)
    ):
        return None
    try:
        tree = ast.parse(Path(file).read_bytes())
        program = name == SCRIPT
        parts = (
            (node.body if program else node.orelse) if _is_program(node) else [node]
            for node in tree.body
        )
        tree.body = [part for these in parts for part in these]
        return tree
    except (OSError, SyntaxError, ValueError):  # removed, or broken, since it was loaded
        return None


def _is_program(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether this is `if __name__ == "__main__":`, which no import executes."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        f"__name__ == '{SCRIPT}'",
        f"'{SCRIPT}' == __name__",
    )


def _used(tree: ast.Module, names: set[str]) -> ast.Module:
    """Return of a script the statements that its task is made by; all of it if one of the names of its classes is not there.

    They are those that make these names, or what these use in turn; and those that do something with one of them, or register.
    """
    parts = [(node, _made(node), _taken(node)) for node in tree.body]
    if not names <= set().union(*(made for _, made, _ in parts)):
        return tree
    own = set().union(
        *(made for node, made, _ in parts if not isinstance(node, ast.Import | ast.ImportFrom))
    )
    needed, kept, count = {*names, "*"}, set[ast.stmt](), -1
    while count < (count := len(needed) + len(kept)):
        for node, made, taken in parts:
            does = not isinstance(node, DEFINITIONS) and (taken & needed & own or _registers(node))
            if made & needed or does:
                kept.add(node)
                needed |= taken | (made if made & needed else set())
    return ast.Module([node for node in tree.body if node in kept], [])


def registers(name: str) -> bool:
    """Return whether a loaded module of the user's own registers a task when it is imported."""
    tree = _own(name, set())
    return tree is not None and any(_registers(node) for node in tree.body)


def _registers(node: ast.stmt) -> bool:
    """Return whether a statement calls what may be gymnasium's register."""
    return any(
        isinstance(call, ast.Call) and ast.unparse(call.func).endswith("register")
        for call in ast.walk(node)
    )


def _made(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module makes, or whose attributes and entries it sets; at least these."""
    if isinstance(node, DEFINITIONS):
        return {node.name}.union(
            *(place.names for place in ast.walk(node) if isinstance(place, ast.Global))
        )
    found = set()
    for place in ast.walk(node):
        if isinstance(place, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in place.names}
        elif isinstance(place, DEFINITIONS):
            found.add(place.name)
        elif isinstance(getattr(place, "ctx", None), ast.Store | ast.Del):
            while isinstance(place, ast.Attribute | ast.Subscript):
                place = place.value
            found |= {place.id} if isinstance(place, ast.Name) else set()
    return found


def _taken(node: ast.stmt) -> set[str]:
    """Return the names of its module that a statement uses, also inside of functions; at least these."""
    tables, found = [symtable.symtable(ast.unparse(node), SCRIPT, "exec")], set[str]()
    for table in tables:
        inside = table.get_type() == "function"
        found |= {
            s.get_name()
            for s in table.get_symbols()
            if s.is_referenced() and (s.is_global() or not inside)
        }
        tables += table.get_children()
    return found


def _imported(tree: ast.Module, name: str) -> set[str]:
    """Return the names of what a module may have imported: modules, and what may be modules or names in them."""
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
    """Return what a module executes: its syntax without docstrings and positions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | DEFINITIONS):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return ast.dump(tree)
