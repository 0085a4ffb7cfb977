"""Imports point one way, and scarce libraries have one importer."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "esac_mpi"
LAYERS = [
    {"__main__"},
    {"train", "check"},
    {"set_up"},
    {"job", "capacity"},
    {"comm", "record", "algorithms"},
    {"population", "learners", "provenance"},
    {"rollout", "learning", "params"},
    {"transitions", "counters", "epsilon", "evolution", "state"},
    {"policy", "envs", "contracts"},
]
LAYERS.append({"config", "noise", "log", "schedule", "stop", "watchdog", "batch", "kernels", "_kernels", "affinity"})
LAYERS[-1] |= {"__init__", "__version__", "directory", "ram"}
SOLE = {
    "mpi4py": {"comm"},
    "h5py": {"record"},
    "torch": {"learners", "check"},  # check: whether it can be imported at all
    "gymnasium": {"envs"},
    "stable_baselines3": {"learners"},
    "mujoco": {"envs"},
    "dm_control": {"envs"},
}

TOOLS = {  # what a tool may import, inside its functions but for bench.py
    "bench.py": {"torch", "mujoco", "gymnasium", "dm_control"},  # what it times
    "export.py": {"torch"},
    "torch_policy.py": {"torch", "gymnasium"},
    "stage.py": {"mujoco"},
    "posture.py": {"mujoco"},
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


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        for name in imports(path):
            if not name.startswith("esac_mpi."):
                continue
            other = name.split(".")[1]
            if other == part(path):
                continue
            assert layer(part(path)) < layer(other) or layer(other) == len(LAYERS) - 1, f"{path.name} imports {name}"


def test_a_family_of_tables_knows_neither_the_other_families_nor_the_whole():
    below = {"esac_mpi.config.bounds", "esac_mpi.config.table"}
    for family in ("run", "evolution", "off_policy", "ppo"):
        tree = ast.parse((PACKAGE / f"config/{family}.py").read_text())
        known = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}  # not what only a type checker sees
        assert {name for name in known if name.startswith("esac_mpi")} <= below, family


def test_algorithms_receive_world_env_and_learner_and_import_none_of_them():
    for path in (PACKAGE / "algorithms").glob("*.py"):
        names = imports(path)
        assert not [n for n in names if n.startswith(("esac_mpi.comm", "esac_mpi.record"))]
        assert not [n for n in names if n.startswith("esac_mpi.learners")]
        assert {n for n in names if n.startswith("esac_mpi.envs")} <= {"esac_mpi.envs.Env"}


def test_scarce_libraries_have_one_importer():
    for path in PACKAGE.rglob("*.py"):
        for name in imports(path):
            library = name.split(".")[0]
            assert part(path) in SOLE.get(library, {part(path)}), f"{path.name} imports {library}"


def test_tools_import_neither_mpi_nor_the_simulators_nor_torch():
    for path in (PACKAGE.parent / "tools").glob("*.py"):
        forbidden = {"mpi4py", "torch", "mujoco", "gymnasium", "dm_control"} - TOOLS.get(path.name, set())
        assert not {n.split(".")[0] for n in imports(path)} & forbidden, path.name
        if path.name != "ranks.py":  # which imports it where a launcher has started several ranks
            assert "esac_mpi.comm" not in {".".join(n.split(".")[:2]) for n in imports(path)}
