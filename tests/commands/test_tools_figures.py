"""What tools of tables and figures say of what cannot be read, written or shown; what they need."""

import os
import subprocess
import sys

import pytest
from commands import command
from conftest import ROOT
from figure_runs import make

from esac_mpi.config import Config
from esac_mpi.record import Run

plot, table, experiment, results = map(command, ("plot", "table", "experiment", "results"))
SENSITIVITY = ("--what", "sensitivity", "--field", "sigma")


@pytest.mark.parametrize("tool", [plot, table])
def test_where_nothing_can_be_written(tmp_path, capsys, tool):
    (tmp_path / "file").touch()
    assert tool.main([str(make(tmp_path / "a")), "--out", str(tmp_path / "file" / "x.pdf")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("choose another --out")


UNREAD = {
    (plot, "--what timeline --ranks 4 --last 9"): (
        "--what timeline does not read --last, --ranks"
    ),
    (plot, "--what losses --policy sac"): "--what losses does not read --policy",
    (table, "--measure mean --policy sac"): "--what results --measure mean does not read --policy",
    (plot, "--what sensitivity --field sigma --measure mean --policy sac"): (
        "--what sensitivity --measure mean does not read --policy"
    ),
    (table, "--what scaling --field sigma --steps 4"): (
        "--what scaling does not read --field, --steps"
    ),
    (results, "table --measure updates --of SAC"): "--measure updates does not read --of",
    (results, "draw --out x --policy theta_es --what training"): (
        "--what training does not read --policy"
    ),
    (results, "draw --out x --what ends --x env_steps --seeds --ranks 4"): (
        "--what ends does not read --ranks, --seeds, --x"
    ),
    (results, "draw --out x --what updates --field zeta"): "--what updates does not read --field",
    (results, "draw --out x --measure return --normalise"): (
        "--what returns does not read --measure, --normalise"
    ),
    (results, "draw --out x --what sensitivity --policy learner --ranks 9"): (
        "--what sensitivity --measure fitness does not read --policy, --ranks"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tool", "line"), UNREAD)
def test_an_option_that_is_set_and_not_read_is_an_error(capsys, tool, line):
    assert tool.main([*line.split(), "nowhere"]) == 2
    out, err = capsys.readouterr()
    said = UNREAD[tool, line]
    assert (out, err) == ("", f"{said}: leave {'them' if ', ' in said else 'it'} out\n")


def test_where_an_experiment_is_shown_decides_nothing(capsys):
    with pytest.raises(SystemExit) as end:
        experiment.main(["show", "fig2c", "--root", "elsewhere"])
    assert end.value.code == 2
    assert "unrecognized arguments: --root elsewhere" in capsys.readouterr().err


@pytest.mark.parametrize("tool", [plot, table])
def test_what_cannot_be_read_is_named(tmp_path, capsys, tool):
    make(tmp_path / "good")
    (tmp_path / "mine").mkdir()
    assert (
        tool.main([str(tmp_path / "good"), str(tmp_path / "mine"), str(tmp_path / "nowhere")]) == 2
    )
    assert capsys.readouterr().err.count("not a run directory of esac_mpi") == 2
    make(tmp_path / "cut", seed=1)
    for file in (tmp_path / "cut").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(900))
    assert (
        tool.main([str(tmp_path / "good"), str(tmp_path / "cut"), str(tmp_path / "foreign")]) == 65
    )
    told = capsys.readouterr().err
    assert "truncated" in told
    assert "foreign" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        (plot, ()),
        (plot, ("--what", "losses")),
        (table, ()),
        (plot, SENSITIVITY),
        (table, SENSITIVITY),
        (plot, ("--what", "scaling")),
    ],
)
def test_a_run_without_anything_to_show_yet(tmp_path, capsys, tool, more):
    Run.begin(tmp_path / "a", Config(), {}).close()
    assert tool.main([str(tmp_path / "a"), *more]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "yet" in told or "no measured run" in told


def test_figures_and_tables_need_no_mpi_torch_or_simulator(tmp_path):
    run, files = make(tmp_path / "a"), (ROOT / "esac_mpi/analysis").rglob("*.py")
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in files
        if path.stem != "__init__"
    )
    code = f"""
import sys
sys.modules |= dict.fromkeys(["mpi4py", "torch", "mujoco", "gymnasium", "dm_control"])\
  # None: an import fails
import {", ".join(modules)}
from esac_mpi.commands import plot, table
assert plot.main([{str(run)!r}]) == table.main([{str(run)!r}]) == 0
assert "esac_mpi.comm.mpi" not in sys.modules
"""
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, "-m", "esac_mpi.commands", "plot", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "Plots need matplotlib: pip install esac_mpi[analysis]\n"
