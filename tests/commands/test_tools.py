"""What all tools hold to: commands, no training stack needed, what cannot be read is named."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from itertools import takewhile

import pytest
from commands import command
from conftest import ROOT
from growing_runs import make

from esac_mpi import record
from esac_mpi.commands import NAMES, OVER_RANKS
from esac_mpi.commands.completion import actions


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_what_it_does(name, capsys):
    header = command(name).__doc__
    assert f"    esac-mpi {name}" in header
    assert re.search(r"Cost: |about \d minute", header)
    if name == "run":
        return  # its help is the program's
    more = [argparse.Namespace(rank=0)] if name in OVER_RANKS else []
    with pytest.raises(SystemExit) as end:
        command(name).main(["--help"], *more)
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"usage: esac-mpi {name} ")
    assert lines.count(header.splitlines()[0]) == 1
    examples = lines[lines.index("Examples:") + 1 :]
    assert len(list(takewhile(bool, examples))) == 3
    known = {word for one in actions(command(name).command_line()) for word in one.option_strings}
    asked = " ".join(lines[: lines.index(header.splitlines()[0])])
    assert {*re.findall(r"--[a-z-]+", asked)} <= known


HIDE = """
import importlib, runpy, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "Box2D") \
or name == "esac_mpi.comm.mpi":
            raise ImportError(name + " is hidden")
sys.meta_path.insert(0, Hidden())
from esac_mpi.analysis import measures, plots, views
sys.argv = {argv!r}
runpy.run_module("esac_mpi.commands", run_name="__main__")
"""


@pytest.mark.parametrize(
    "line",
    [
        ["summary", "a"],
        ["summary", "a", "--json"],
        ["watch", "a", "--once"],
        ["summary", "a", "a", "--compare"],
    ],
)
def test_the_tools_run_without_mpi_torch_and_simulators(tmp_path, line):
    make(tmp_path / "a", generations=10).close()
    code = HIDE.format(argv=["esac-mpi", *line])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "HalfCheetah-v5" in done.stdout or line[-1] == "--compare"


@pytest.mark.parametrize(
    ("name", "code"), [("mine", 2), ("newer", 2), ("foreign", 65), ("short", 65)]
)
def test_bad_input_is_one_clear_sentence(tmp_path, monkeypatch, capsys, name, code):
    make(tmp_path / "good", generations=2).close()
    monkeypatch.setattr(record.files, "SCHEMA", 9 if name == "newer" else record.files.SCHEMA)
    make(tmp_path / "newer", generations=2).close()
    monkeypatch.undo()
    shutil.copytree(tmp_path / "good", tmp_path / "short")
    for file in (tmp_path / "short").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "mine").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    said = {
        "mine": "not a run",
        "newer": "schema 9, written by",
        "foreign": "not a file of esac_mpi",
        "short": "truncated",
    }
    for program, *before in (
        ["summary"],
        ["watch", "--once"],
        ["summary", "--compare", str(tmp_path / "good")],
    ):
        assert command(program).main([*before, str(tmp_path / name)]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert said[name] in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["bench", "gpu_check", "torture"])
def test_a_tool_that_is_not_installed_says_what_it_does(name):
    line = [sys.executable, "-m", f"tools.{name}", "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: python -m tools.{name} ")
    assert "minutes" in done.stdout
