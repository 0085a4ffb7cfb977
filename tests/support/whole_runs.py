"""What two runs of the whole program have in common, and what to wait for in one."""

import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE, ROOT, finish

from esac_mpi.commands.__main__ import main
from esac_mpi.record import Run


def science(path: Path) -> dict[str, np.ndarray]:
    """Return the run's metrics rows: all that must not depend on ranks, machines or restarts."""
    columns = Run.open(path).columns.items()
    return {name: values for name, values in columns if name.startswith("metrics/")}


def summary(path: Path) -> dict:
    """Return what `esac-mpi summary RUN --json` prints, without a process for it."""
    with redirect_stdout(StringIO()) as printed:
        assert main(["summary", str(path), "--json"]) == 0
    return json.loads(printed.getvalue())


def run_once(*line: object):
    """Return a fixture: the directory of a run of this line on one process, made once a file."""

    @pytest.fixture(scope="module")
    def made(tmp_path_factory, alone) -> Path:
        path = tmp_path_factory.mktemp("once") / "run"
        alone(*line, "--run-dir", path)
        return path

    return made


def counted(path: Path, monkeypatch, make, *arguments) -> int:
    """Make a run; return the steps that environments counted but those compared at the start.

    arguments: those of a run of own_envs:Counting-v0, its directory last.
    """
    path.mkdir()
    monkeypatch.setenv("COUNT_DIR", str(path))
    make(*arguments)
    stepped = sum(file.stat().st_size for file in path.iterdir())
    return stepped - Run.open(arguments[-1]).provenance["probe_steps"]


def assert_same_run(one: Path, other: Path) -> None:
    """Compare rows, hashes, counts and returns of two runs; they must be equal to the bit."""
    np.testing.assert_equal(science(other), science(one))
    a, b = summary(one), summary(other)
    hashes = ("theta_sha256", "state_sha256")
    counts = ("env_steps", "gradient_updates", "nominal_steps")
    for key in (*hashes, *counts, "best_return", "final_return", "sigma"):
        assert a[key] == b[key], key


def same_in_parts(path, alone, together, line, *parts: tuple[int, int, int]) -> Run:
    """Compare a run with one in parts (last generation, ranks, nodes); return the former."""
    alone(*line, "--budget.generations", parts[-1][0], "--run-dir", path / "straight")
    for generations, ranks, nodes in parts:
        more = "--budget.generations", generations, "--run-dir", path / "parts"
        if ranks == 1:
            alone(*line, *more)
        else:
            said = together(ranks, *line, *more, nodes=nodes).stdout
            assert f"{ranks} rank(s) on {nodes} node(s)" in said
    assert_same_run(path / "straight", path / "parts")
    return Run.open(path / "straight")


def killed_at(points: list[tuple[str, int]], *line: object) -> None:
    """Make a run on one process, killed at one of these moments after the other (kills.py)."""
    program = [sys.executable, ROOT / "tests/support/kills.py", json.dumps(points)]
    done = finish([*program, *line])
    assert json.loads(done.stdout) == [-signal.SIGKILL] * len(points), done.stderr


def sentence(done: subprocess.CompletedProcess) -> str:
    """Return the one line by which one rank says why all end, without a traceback."""
    assert "Traceback" not in done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("esac_mpi:")]
    return said


def wait_for(condition, seconds: float = PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise TimeoutError


def ended(process: subprocess.Popen, code: int) -> tuple[str, str]:
    """Wait for a process to end; check its exit code, return its output and its errors."""
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, errors
    return output, errors


def status(path: Path) -> dict:
    """Read status.json; a run that has none yet is at generation 0."""
    file = path / "status.json"
    return json.loads(file.read_text()) if file.exists() else {"status": None, "generation": 0}


def rows_published(path: Path) -> int:
    """Return how many rows a reader of a run sees now."""
    if not (path / "metrics.h5").exists():
        return 0
    return len(Run.open(path).columns.get("metrics/generation", ()))
