"""What the tools of tables and figures say of what cannot be read, written or shown, and what they need."""

import os
import subprocess
import sys

import pytest
from commands import command
from conftest import ROOT
from figure_runs import make

from esac_mpi.config import Config
from esac_mpi.record import Run

plot, scaling, sensitivity, table, updates = map(command, ("plot", "scaling", "sensitivity", "table", "updates"))


@pytest.mark.parametrize("tool", [plot, table])
def test_where_nothing_can_be_written(tmp_path, capsys, tool):
    (tmp_path / "file").touch()
    assert tool.main([str(make(tmp_path / "a")), "--out", str(tmp_path / "file" / "x.pdf")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("choose another --out")


@pytest.mark.parametrize("tool", [plot, table, updates, scaling])
def test_what_cannot_be_read_is_named(tmp_path, capsys, tool):
    make(tmp_path / "good")
    (tmp_path / "mine").mkdir()
    assert tool.main([str(tmp_path / "good"), str(tmp_path / "mine"), str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("not a run directory of esac_mpi") == 2
    make(tmp_path / "cut", seed=1)
    for file in (tmp_path / "cut").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(900))
    assert tool.main([str(tmp_path / "good"), str(tmp_path / "cut"), str(tmp_path / "foreign")]) == 65
    told = capsys.readouterr().err
    assert "truncated" in told
    assert "foreign" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("tool", "more"), [(plot, ()), (plot, ("--what", "losses")), (table, ()), (sensitivity, ("--field", "sigma")), (scaling, ())]
)
def test_a_run_without_anything_to_show_yet(tmp_path, capsys, tool, more):
    Run.begin(tmp_path / "a", Config(), {}).close()
    assert tool.main([str(tmp_path / "a"), *more]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "yet" in told or "no measured run" in told


def test_figures_and_tables_need_no_mpi_torch_or_simulator(tmp_path):
    run, files = make(tmp_path / "a"), (ROOT / "esac_mpi/analysis").rglob("*.py")
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files if path.stem != "__init__")
    code = f"""
import sys
sys.modules |= dict.fromkeys(["mpi4py", "torch", "mujoco", "gymnasium", "dm_control"])  # None: an import fails
sys.path.insert(0, {str(ROOT / "tools")!r})
import {", ".join(modules)}
import plot, table
assert plot.main([{str(run)!r}]) == table.main([{str(run)!r}]) == 0
assert "esac_mpi.comm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "plot.py", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "Plots need matplotlib: pip install esac_mpi[analysis]\n"
