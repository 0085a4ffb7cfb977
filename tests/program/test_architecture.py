"""Imports point down, file by file and without circles, and scarce libraries have one importer."""

import ast
import graphlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import esac_mpi
from esac_mpi.config import ALGORITHMS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "esac_mpi"
ORDER = (  # the folders from the ground up: a file imports its own folder and those before it
    "host",  # the machine and the process
    "config",  # tables of settings
    "operators",  # pure functions on arrays
    "envs",  # tasks
    "record",  # run files
    "comm",  # ranks
    "play",  # episodes
    "learners",  # gradient learners
    "algorithms",
    "analysis",  # tables and figures
    "policies",  # what is done with a trained policy
    "training",  # session, loop, set-up, warm start, check
    "studies",  # experiments, search
    "__main__",  # the training program, a file
    "commands",  # `esac-mpi NAME`
)
BESIDE = {"analysis", "policies", "studies", "commands"}  # no run needs it
# by analysis, and of comm what needs no MPI
READ = {"host", "config", "record", "algorithms", "analysis"}
NO_MPI = {f"esac_mpi.comm.{name}" for name in ("contracts", "schedule", "virtual_time", "clock")}
HEAVY = {"mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "stable_baselines3", "evotorch"}
NAMED = {  # what has the name of an algorithm or policy as a string
    "names.py", "colours.py",
    "rows.py", "standings.py", "pictures.py", "results.py",  # return_theta_es: a column
    "table.py",  # --published esac: a paper
}  # fmt: skip
SOLE = {  # a library: the folders or files that import it; policies and studies inside functions,
    # the check to see whether it can be imported at all
    "mpi4py": {"comm/mpi.py"},
    "h5py": {"record"},
    "torch": {"learners", "training/check", "policies"},
    "gymnasium": {"envs", "policies"},
    "stable_baselines3": {"learners"},
    "mujoco": {"envs", "policies"},
    "dm_control": {"envs"},
    "evotorch": set(),
    "optuna": {"studies/search"},
    "matplotlib": BESIDE,
}


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LAZY = {"esac_mpi": esac_mpi.WHERE}  # names loaded when asked for


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(node: ast.AST, *without: type) -> Iterator[ast.AST]:
    """Yield all that stands below a node, but for what is below one of these kinds."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, without):
            yield child
            yield from statements(child, *without)


def names(nodes: Iterator[ast.AST]) -> set[str]:
    """Return what import statements ask for, dotted."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def imports(path: Path) -> set[str]:
    """Return what a file imports, inside functions and for a type checker too."""
    return names(statements(parsed(path)))


@cache
def loads(path: Path) -> set[str]:
    """Return what is imported whenever a file is."""
    typed = set()
    for node in statements(parsed(path), *FUNCTIONS):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typed |= names(statements(node))
    return names(statements(parsed(path), *FUNCTIONS)) - typed


def target(name: str) -> str:
    """Return the module that something imported is in; "" for what is not the package's."""
    if name in FILES:
        return name
    folder, _, what = name.rpartition(".")
    if folder in LAZY and what in LAZY[folder]:
        return LAZY[folder][what]
    return folder if folder in FILES else ""


def floor(name: str) -> str:
    """Return the folder at the package's root that a module is in, "" for the package itself."""
    return [*name.split("."), ""][1]


def alike(pattern: str) -> list[Path]:
    """Return the package's files of a pattern, which fits some: else nothing would be held."""
    found = sorted(PACKAGE.glob(pattern))
    assert found, pattern
    return found


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in alike(f"{folder}/**/*.py")]


def libraries(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def needs_mpi(name: str) -> bool:
    """Return whether a module is one of comm that needs it."""
    return floor(name) == "comm" and not any(f"{name}.".startswith(f"{n}.") for n in NO_MPI)


def test_the_package_shows_what_it_offers():
    assert set(esac_mpi.__all__) <= set(dir(esac_mpi))


def test_the_packages_root_has_its_folders_and_two_files():
    found = {path.name for path in PACKAGE.iterdir()} - {"__pycache__", "configs", "jobs"}
    assert found == {"__init__.py", "__main__.py", "py.typed", *ORDER} - {"__main__"}
    assert len(ORDER) - 1 <= 14
    folders = [name for name in found if "." not in name]
    assert all(ast.get_docstring(parsed(PACKAGE / name / "__init__.py")) for name in folders)


def test_the_order_of_the_folders_is_the_one_that_is_told():
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    rows = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert rows[::-1] == [name for name in ORDER if name != "__main__"]


def test_imports_point_down():
    for name, path in FILES.items():
        for asked in imports(path):
            if name == "esac_mpi" or not (other := floor(target(asked))):
                continue
            assert ORDER.index(other) <= ORDER.index(floor(name)), f"{name} imports {asked}"


def imported(path: Path) -> set[str]:
    """Return the package's files that a file imports; of an __init__ none that it loads later."""
    asked = imports(path)
    if path.name == "__init__.py":
        asked = {name for name in asked if not name.startswith(f"{module(path)}.")} | loads(path)
    return {target(name) for name in asked} - {"", module(path), "esac_mpi"}


def test_no_file_imports_itself_by_way_of_others():
    graphlib.TopologicalSorter({name: imported(path) for name, path in FILES.items()}).prepare()


@cache
def reached(name: str) -> set[str]:
    """Return all files of the package that are loaded where one is imported."""
    found, left = set(), {name}
    while left:
        one = left.pop()
        found.add(one)
        asked = {target(what) for what in loads(FILES[one])} | {one.rpartition(".")[0]}
        left |= {each for each in asked if each in FILES} - found
    return found


@pytest.mark.parametrize("folder", ["analysis", "policies", "commands"])
def test_what_a_login_node_needs_loads_no_mpi_and_no_simulator(folder):
    assert "esac_mpi.comm.mpi" in reached("esac_mpi.comm.world")
    assert "esac_mpi.comm.world" in reached("esac_mpi.training.session")
    for path in files(folder):
        for name in reached(module(path)):
            heavy = libraries(loads(FILES[name])) & HEAVY
            assert not heavy, f"{module(path)} loads {heavy} by {name}"


TABLES = "bounds exact selecting table"
SIBLINGS = {  # files of a folder, and which others of it they may import
    **{f"config/{name}.py": TABLES for name in ("run", "evolution", "off_policy", "ppo")},
    "training/check/[a-z]*.py": "report ranks memory",
    "commands/[a-z]*.py": "NAMES",
}


@pytest.mark.parametrize("pattern", SIBLINGS)
def test_what_is_alike_knows_no_other_of_its_kind(pattern):
    for path in alike(pattern):
        folder = f"{module(path.parent)}."
        beside = [name for name in imports(path) if name.startswith(folder)]
        found = {name.removeprefix(folder).split(".")[0] for name in beside}
        assert found <= {*SIBLINGS[pattern].split(), path.stem}, path.name


def test_an_algorithm_imports_itself_and_what_it_varies():
    variants = {"ddpg": "td3", "esac": "sac", "esac_update": "es"}  # cem_rl's is cem
    for path in alike("algorithms/[a-z]*.py"):
        asked = [n.split(".")[2] for n in imports(path) if n.startswith("esac_mpi.algorithms.")]
        others = {name for name in asked if name.split("_")[0] != path.stem.split("_")[0]}
        assert others <= {"declaration", "laps", variants.get(path.stem)}, path.name


def test_algorithms_import_neither_world_env_nor_learner():
    for path in files("algorithms"):
        found = {target(name) for name in imports(path)}
        assert not [n for n in found if needs_mpi(n) or floor(n) in ("record", "learners")], path
        assert {n for n in imports(path) if n.startswith("esac_mpi.envs")} <= {"esac_mpi.envs.Env"}


def test_nothing_writes_attributes_of_the_world():
    training = [PACKAGE / f"training/{name}.py" for name in ("provenance", "set_up")]
    for path in (*files("play"), *files("algorithms"), *training):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assert ast.unparse(node.value) != "world", f"{path.name}:{node.lineno}"


def strings(path: Path) -> set[object]:
    return {node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)}


def test_no_module_asks_for_an_algorithm_by_its_name():
    for name, path in FILES.items():
        if floor(name) not in BESIDE | {"algorithms", "config", "learners"}:
            assert not strings(path) & set(ALGORITHMS), path.name


def test_scarce_libraries_have_one_importer():
    for name, path in FILES.items():
        asked = libraries(imports(path))
        assert not asked & {"tools", "tests"}, f"{name}: what is not installed"
        own = path.relative_to(PACKAGE)
        for library in asked & set(SOLE):
            assert any(own.is_relative_to(place) for place in SOLE[library]), (name, library)


def test_the_program_imports_nothing_of_the_commands():
    for name, path in FILES.items():
        if floor(name) not in BESIDE | {"", "__main__"}:
            assert not {floor(target(asked)) for asked in imports(path)} & BESIDE, name


def test_analysis_reads_files_alone():
    for path in files("analysis"):
        assert not libraries(imports(path)) & HEAVY, path.name
        for name in {target(asked) for asked in imports(path)} - {"", "esac_mpi"}:
            own = floor(name) in READ or (floor(name) == "comm" and not needs_mpi(name))
            assert own, f"{path.name}: {name}"


def test_beside_the_program_mpi_and_simulators_load_late():
    """MPI where a launcher has started ranks; simulators and torch inside functions."""
    for path in files(*BESIDE):
        with_mpi = {name for name in map(target, imports(path)) if needs_mpi(name)}
        assert with_mpi <= {"esac_mpi.comm.command_ranks"}, path.name  # which imports it then
        assert not libraries(loads(path)) & HEAVY, path.name
    assert "esac_mpi.comm.mpi" not in reached("esac_mpi.comm.command_ranks")


def test_analysis_names_algorithms_and_policies_in_one_file():
    found = {"theta_es", *ALGORITHMS}
    for path in (*files("analysis"), *alike("commands/*.py")):
        assert not strings(path) & found or path.name in NAMED, (path.name, strings(path) & found)
