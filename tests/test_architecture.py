"""Imports point one way, and scarce libraries have one importer."""

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import esac_mpi
from esac_mpi.config import ALGORITHMS

PACKAGE = Path(__file__).parent.parent / "esac_mpi"
LAYERS = [
    {"__init__"},
    {"commands"},
    {"search"},
    {"experiments", "stress"},
    {"benchmarks", "policies"},
    {"analysis"},
    {"__main__", "library"},
    {"session"},
    {"loop", "check"},
    {"set_up", "evaluation"},
    {"warm_start"},
    {"job", "capacity", "forecast"},
    {"task"},
    {"comm", "record", "algorithms", "Policy"},
    {"population", "experience", "learners", "provenance"},
    {"rollout", "learning", "params", "selection", "distribution", "state"},
    {"transitions", "memories", "counters", "parts", "epsilon", "evolution", "genetics", "update_rules"},
    {"policy", "envs", "contracts"},
]
LAYERS.append({"config", "noise", "log", "schedule", "stop", "watchdog", "batch_system", "kernels", "_kernels", "affinity"})
LAYERS[-1] |= {"__version__", "directory", "ram", "turns", "agenda", "errors", "threads", "began", "invocation", "shipped"}
LAYERS[-1] |= {"clock", "processes", "streams", "surroundings", "accumulator", "paths"}
BESIDE = {"commands", "search", "analysis", "experiments", "policies", "benchmarks", "stress"}  # no run needs it
ANALYSED = {"record", "config", "log", "schedule", "agenda", "invocation", "clock", "paths", "__version__"}  # by analysis
HEAVY = {"mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "stable_baselines3", "evotorch"}
NAMED = {  # what has the name of an algorithm or policy as a string
    "names.py", "colours.py",
    "rows.py", "standings.py", "pictures.py", "results.py",  # return_theta_es is a column of results.csv
    "table.py",  # --published esac: a paper
    "bench.py",  # pderl: a measurement of it
}  # fmt: skip
TIMED, SHOWN = {"benchmarks"}, {"policies"}  # import simulators and torch, inside functions
SOLE = {
    "mpi4py": {"comm"},
    "h5py": {"record"},
    "torch": {"learners", "check"} | TIMED | SHOWN,  # check: whether it can be imported at all
    "gymnasium": {"envs"} | TIMED | SHOWN,
    "stable_baselines3": {"learners"} | TIMED | SHOWN,
    "mujoco": {"envs"} | TIMED | SHOWN,
    "dm_control": {"envs"} | TIMED,
    "evotorch": TIMED,
    "optuna": {"search"},
    "matplotlib": BESIDE,
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer(name: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if name in names)


def test_the_package_shows_what_it_offers_and_loads_none_of_it():
    code = "import sys, esac_mpi; print(*dir(esac_mpi)); print(*sys.modules)"
    shown, loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    assert set(esac_mpi.__all__) <= set(shown.split())
    assert not {"numpy", "mpi4py", "torch"} & set(loaded.split())


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        for name in imports(path):
            if not name.startswith("esac_mpi."):
                continue
            other = name.split(".")[1]
            if other == part(path):
                continue
            assert layer(part(path)) < layer(other) or layer(other) == len(LAYERS) - 1, f"{path.name} imports {name}"


def module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path, files: Mapping[str, Path]) -> set[str]:
    """The package's own files that a file imports, but for those that a folder's __init__ loads when it is asked for them."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            asked = path.name == "__init__.py" and node not in tree.body
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            those = {name if name in files else str(node.module) for name in names}
            found |= {name for name in those if not (asked and name.startswith(module(path)))}
    return found & set(files) - {module(path), "esac_mpi"}  # whose __version__ is asked for from below


def circle(arrows: Mapping[str, set[str]]) -> set[str]:
    """The files that only point at each other, once all are put aside that point at none of the others."""
    left = {name: set(those) for name, those in arrows.items()}
    while ends := {name for name, those in left.items() if not those & set(left)}:
        left = {name: those for name, those in left.items() if name not in ends}
    while left and (unasked := set(left) - set().union(*left.values())):
        left = {name: those for name, those in left.items() if name not in unasked}
    return set(left)


def test_no_file_imports_itself_by_way_of_others():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}
    files = {module(path): path for path in PACKAGE.rglob("*.py")}
    assert circle({name: imported(path, files) for name, path in files.items()}) == set()


def test_a_family_of_tables_knows_neither_the_other_families_nor_the_whole():
    below = {f"esac_mpi.config.{name}" for name in ("bounds", "exact", "selecting", "table")}
    for family in ("run", "evolution", "off_policy", "ppo"):
        tree = ast.parse((PACKAGE / f"config/{family}.py").read_text())
        known = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}  # not what only a type checker sees
        assert {name for name in known if name.startswith("esac_mpi")} <= below, family


def test_a_subject_of_the_check_knows_no_other_subject():
    for path in (PACKAGE / "check").glob("[a-z]*.py"):
        found = {n.split(".")[2] for n in imports(path) if n.startswith("esac_mpi.check.")}
        assert found <= {"report", "rank", "counter"} - {path.stem}, path.name


def test_algorithms_receive_world_env_and_learner_and_import_none_of_them():
    for path in (PACKAGE / "algorithms").glob("*.py"):
        names = imports(path)
        assert not [n for n in names if n.startswith(("esac_mpi.comm", "esac_mpi.record"))]
        assert not [n for n in names if n.startswith("esac_mpi.learners")]
        assert {n for n in names if n.startswith("esac_mpi.envs")} <= {"esac_mpi.envs.Env"}


def test_an_algorithm_imports_only_those_whose_variant_it_is():
    shared, parts = {"declaration"}, {"esac_state", "esac_phase", "esac_update"}
    own = {"esac_phase": {"esac_state"}, "esac_update": {"es", "esac_state"}}
    erl = {"erl_births": {"erl_play", "erl_state"}, "erl_play": {"erl_state"}, "erl": {"erl_births", "erl_play", "erl_state"}}
    aes = {
        "aes_work": {"aes_state"},
        "aes_moves": {"aes_state", "aes_work"},
        "aes_driver": {"aes_state", "aes_work", "aes_moves"},
    }
    aes["aes_rl"] = {"aes_state", "aes_work", "aes_driver"}
    variants = {"ddpg": {"td3"}, "esac": {"sac", *parts}, **own, **erl, "cem_rl": {"cem"}, **aes}
    for path in (PACKAGE / "algorithms").glob("[a-z]*.py"):
        found = {
            n.removeprefix("esac_mpi.algorithms.").split(".")[0] for n in imports(path) if n.startswith("esac_mpi.algorithms.")
        }
        assert found <= shared | variants.get(path.stem, set()), path.name


def test_nothing_that_the_world_is_handed_to_writes_its_attributes():
    shared = [
        PACKAGE / f"{name}.py" for name in ("population", "learning", "rollout", "state", "epsilon", "provenance", "set_up")
    ]
    for path in (*(PACKAGE / "algorithms").glob("*.py"), *shared):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assert not (isinstance(node.value, ast.Name) and node.value.id == "world"), f"{path.name}:{node.lineno}"


def test_no_module_of_the_program_asks_for_an_algorithm_by_its_name():
    for path in PACKAGE.rglob("*.py"):
        if part(path) in BESIDE | {"algorithms", "config", "learners"}:
            continue
        found = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not found & set(ALGORITHMS), path.name


def test_scarce_libraries_have_one_importer():
    for path in PACKAGE.rglob("*.py"):
        for name in imports(path):
            library = name.split(".")[0]
            assert part(path) in SOLE.get(library, {part(path)}), f"{path.name} imports {library}"


def test_no_module_of_the_program_imports_what_tools_are_made_of():
    for path in PACKAGE.rglob("*.py"):
        if part(path) not in BESIDE:
            assert not {n.split(".")[1] for n in imports(path) if n.startswith("esac_mpi.")} & BESIDE, path


def test_analysis_reads_files_alone():
    for path in (PACKAGE / "analysis").rglob("*.py"):
        names = imports(path)
        assert not {n.split(".")[0] for n in names} & HEAVY, path.name
        assert {n.split(".")[1] for n in names if n.startswith("esac_mpi.")} <= ANALYSED | {"analysis"}, path.name


def test_mpi_is_asked_for_where_a_launcher_has_started_ranks_and_nowhere_else_beside_the_program():
    for name in BESIDE:
        for path in (PACKAGE / name).rglob("*.py"):
            if path.name != "ranks.py":  # which imports it then
                assert not [n for n in imports(path) if n.split(".")[1:2] == ["comm"]], path.name


def at_the_top(path: Path) -> set[str]:
    """Return the libraries that a file imports whenever it is imported."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def test_simulators_and_torch_are_imported_inside_functions_beside_the_program():
    for name in BESIDE:
        for path in (PACKAGE / name).rglob("*.py"):
            assert not at_the_top(path) & HEAVY, path.name


def test_algorithms_and_policies_are_named_in_one_file_of_analysis_and_in_no_command():
    names = {"theta_es", *ALGORITHMS}
    for path in (*(PACKAGE / "analysis").rglob("*.py"), *(PACKAGE / "commands").glob("*.py")):
        found = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not found & names or path.name in NAMED, (path.name, found & names)


def test_tools_call_commands_of_the_package_and_do_nothing_else():
    for path in (PACKAGE.parent / "tools").iterdir():
        if path.name == "__pycache__":
            continue
        assert path.suffix == ".py", path.name
        assert imports(path) == {"sys", "esac_mpi.commands.__main__.main"}, path.name
        assert f'sys.exit(main(["{path.stem}", *sys.argv[1:]]))' in path.read_text()


def test_a_command_knows_no_other_command_but_the_one_that_starts_them():
    for path in (PACKAGE / "commands").glob("[a-z]*.py"):
        found = {n for n in imports(path) if n.startswith("esac_mpi.commands")}
        assert found <= {"esac_mpi.commands.NAMES", "esac_mpi.commands.WRONG_USAGE"}, path.name
