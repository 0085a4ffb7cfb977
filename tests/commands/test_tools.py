"""What all commands hold to: no training stack needed, what cannot be read or written is named."""

import re
import shlex
import shutil
import sys
from importlib import import_module
from itertools import takewhile
from unittest.mock import Mock

import pytest
from commands import actions
from conftest import ROOT, finish
from figure_runs import make as figured
from growing_runs import make
from run_files import young
from short_runs import flip

from esac_mpi import record
from esac_mpi.analysis.command import print_all
from esac_mpi.commands import NAMES, summary
from esac_mpi.commands.__main__ import command_line, main
from esac_mpi.record import Unreadable


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_what_it_does(name, call):
    header = import_module(f"esac_mpi.commands.{name}").__doc__
    assert f"    esac-mpi {name}" in header
    assert re.search(r"Cost: |about \d minute", header)
    if name == "run":
        return  # its help is the program's
    lines = call(name, "--help").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"usage: esac-mpi {name} ")
    assert lines.count(header.splitlines()[0]) == 1
    examples = list(takewhile(bool, lines[lines.index("Examples:") + 1 :]))
    assert len(examples) == 3
    for line in examples:
        (words,) = re.findall(rf"esac-mpi {name}(.*?)(?:#|&&|$)", line)
        assert command_line(name).parse_args(shlex.split(words))
    known = {word for one in actions(command_line(name)) for word in one.option_strings}
    asked = " ".join(lines[: lines.index(header.splitlines()[0])])
    assert {*re.findall(r"--[a-z-]+", asked)} <= known


ALONE = """
import sys
hidden = ["mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "Box2D", "esac_mpi.comm.mpi"]
sys.modules |= dict.fromkeys(hidden)  # None: an import fails
import {modules}
from esac_mpi.commands.__main__ import main
sys.exit(any([main(line.split()) for line in {lines!r}]))
"""


@pytest.mark.slow
def test_commands_of_analysis_need_no_mpi_torch_or_simulator(tmp_path):
    pytest.importorskip("matplotlib.font_manager")  # which says so where it makes its cache first
    make(tmp_path / "a", generations=10)
    figured(tmp_path / "b")
    files = (ROOT / "esac_mpi/analysis").rglob("*.py")
    modules = [path.relative_to(ROOT).with_suffix("") for path in files if path.stem[0] != "_"]
    lines = ["summary a", "summary a --json", "watch a --once", "summary a a --compare"]
    lines += ["plot b", "table b", "experiment show fig2c"]
    code = ALONE.format(modules=", ".join(".".join(m.parts) for m in sorted(modules)), lines=lines)
    done = finish([sys.executable, "-c", code], folder=tmp_path)
    assert done.stderr == ""
    assert done.stdout.count("HalfCheetah-v5") >= 3


@pytest.mark.slow
def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    line = [sys.executable, "-m", "esac_mpi.commands", "plot", tmp_path]
    done = finish(line, 2, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.stderr == "Plots need matplotlib: pip install -c constraints.txt -e '.[analysis]'\n"


BAD = {  # a directory: the exit code, and what is said of it
    "mine": (2, "not a run"),
    "nowhere": (2, "no such directory"),
    "newer": (2, "schema 9, written by"),
    "foreign": (65, "not a file of esac_mpi"),
    "short": (65, "truncated"),
}
READERS = ["summary", "watch --once", "summary --compare", "plot", "table"]


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_sentence(tmp_path, monkeypatch, call, name):
    make(tmp_path / "good", generations=2)
    monkeypatch.setattr(record.files, "SCHEMA", 9 if name == "newer" else record.files.SCHEMA)
    make(tmp_path / "newer", generations=2)
    monkeypatch.undo()
    shutil.copytree(tmp_path / "good", tmp_path / "short")
    for file in (tmp_path / "short").glob("*.h5"):
        file.write_bytes(file.read_bytes()[:-600])
    (tmp_path / "mine").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/metrics.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    code, expected = BAD[name]
    for reader in READERS:
        tool, *words = reader.split()
        good = [tmp_path / "good"] if tool in ("plot", "table") or "--compare" in words else []
        said = call(tool, *words, *good, tmp_path / name, code=code)
        assert said.out == ""
        assert expected in said.err
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("line", ["summary", "summary --json", "watch --once"])
def test_a_run_that_is_damaged_within_hides_no_other(tmp_path, monkeypatch, call, line):
    monkeypatch.setattr(record.history, "SEGMENT_BYTES", 1)
    for name in ("bad", "good"):
        make(tmp_path / name, "es", generations=4)
    segment = next((tmp_path / "bad/history").iterdir())
    flip(segment)
    said = call(line, tmp_path / "bad", tmp_path / "good", code=65)
    assert said.err == f"{segment}: damaged: its sha256 differs from the one written with it\n"
    assert "good" in said.out


def test_a_run_that_is_replaced_while_it_is_read_is_a_sentence(monkeypatch, capsys):
    gone = Mock(side_effect=Unreadable("a/metrics.h5: the run has gone back"))
    monkeypatch.setattr(summary, "main", gone)
    assert main(["summary", "a"]) == 65
    assert capsys.readouterr().err == "a/metrics.h5: the run has gone back\n"


def test_a_terminal_of_another_encoding_gets_every_line(tmp_path):
    line = [sys.executable, "-m", "esac_mpi.commands", "watch", "--once", figured(tmp_path / "a")]
    assert "\\x" in finish(line, PYTHONIOENCODING="ascii").stdout.replace("\\u", "\\x")


@pytest.mark.parametrize("tool", ["plot", "table"])
def test_where_nothing_can_be_written(tmp_path, call, tool):
    (tmp_path / "file").touch()
    run = figured(tmp_path / "a")
    # the last one: also asked whether it is a run's
    for out in ("file/x", f"{'x' * 300}/config.toml"):
        said = call(tool, run, "--out", tmp_path / out, code=2).err
        assert said.splitlines()[-1].endswith("choose another --out")


FULL = OSError(28, "No space left on device", "x")


@pytest.mark.parametrize(
    ("error", "options", "code", "said"),
    [
        (FULL, ["out", "root"], 2, "x: No space left on device; choose another --out"),
        (FULL, ["root"], 2, "x: No space left on device; choose another --root"),
        (FULL, [], 2, "x: No space left on device"),
        # as matplotlib's, where neither HOME nor TMPDIR can be written
        (OSError("set MPLCONFIGDIR"), ["out"], 74, "set MPLCONFIGDIR"),
    ],
)
def test_what_cannot_be_written_is_told_with_an_option_that_there_is(
    capsys, error, options, code, said
):
    def writes():
        raise error
        yield

    assert print_all(writes(), options) == code
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("name", ["policy.h5", "checkpoint.h5", "config.toml", "link"])
@pytest.mark.parametrize(
    "line", ["table", "export --format npz", "sweep --tasks Hopper-v5", "search best study.toml"]
)
def test_nothing_is_written_over_a_file_of_a_run(tmp_path, call, line, name):
    run = figured(tmp_path / "a")
    (run / "link").symlink_to(run / "policy.h5")
    before = {file: file.read_bytes() for file in run.glob("*.*")}
    words = [] if line.startswith("s") else [run]
    said = call(*line.split(), *words, "--out", run / name, code=2)
    assert f"{run / name}: a file of a run, which stays; choose another" in said.err
    assert before == {file: file.read_bytes() for file in run.glob("*.*")}


def test_a_task_of_a_search_has_no_runs_directory_for_its_status(tmp_path, call):
    run = figured(tmp_path / "a")
    before = {file: file.read_bytes() for file in run.glob("*.*")}
    said = call("search run study.toml --run-dir", run, code=2).err
    assert f"{run}/status.json: a file of a run, which stays" in said
    assert before == {file: file.read_bytes() for file in run.glob("*.*")}


@pytest.mark.parametrize(
    "line", ["table a", "plot a", "export a --format csv", "sweep", "search best a", "render a",
             "results table a"],
)  # fmt: skip
def test_standard_output_is_no_file(tmp_path, monkeypatch, call, line):
    monkeypatch.chdir(tmp_path)
    assert "--out: -: standard output is no file; ./- is" in call(f"{line} --out -", code=2).err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("out", [".", "..", "/"])
def test_a_picture_has_a_name(tmp_path, call, out):
    said = call("plot", figured(tmp_path / "a"), "--out", out, code=2)
    assert said == ("", f"{out}: a directory; name the file in it\n")


def test_a_text_has_no_pictures_name(tmp_path, call):
    call("table", figured(tmp_path / "a"), "--out", tmp_path / "a.PNG", code=2)
    assert not (tmp_path / "a.PNG").exists()


UNREAD = {
    "plot --what timeline --ranks 4 --last 9": "--what timeline does not read --last, --ranks",
    "plot --what losses --policy sac": "--what losses does not read --policy",
    "table --measure mean --policy sac": "--what results --measure mean does not read --policy",
    "plot --what sensitivity --field sigma --measure mean --policy sac":
        "--what sensitivity --measure mean does not read --policy",
    "table --what scaling --measure best --steps 4":
        "--what scaling does not read --measure, --steps",
    "results table --measure updates --of SAC": "--measure updates does not read --of",
    "results aggregate --of SAC --out x.png": "a picture does not read --of",
    "plot --ranks 4 --what ends --x env_steps --seeds":
        "--what ends does not read --ranks, --seeds, --x",
    "plot --what updates --field zeta": "--what updates does not read --field",
    "plot --measure best --normalise": "--what return does not read --measure, --normalise",
    "summary --status failed --compare": "--compare does not read --status",
    "watch --once --every 9": "--once does not read --every",
}  # fmt: skip


def test_a_run_is_compared_with_another_one(call):
    assert call("summary --compare nowhere", code=2) == ("", "--compare needs two runs or more\n")


@pytest.mark.parametrize("line", UNREAD)
def test_an_option_that_is_set_and_not_read_is_an_error(call, line):
    said = call(*line.split(), "nowhere", code=2)
    pronoun = "them" if ", " in UNREAD[line] else "it"
    assert said == ("", f"{UNREAD[line]}: leave {pronoun} out\n")


def test_where_an_experiment_is_shown_decides_nothing(call):
    said = call("experiment", *"show fig2c --root elsewhere".split(), code=2).err
    assert "unrecognized arguments: --root elsewhere" in said


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("watch --sort left", "`sort` orders the table's lines"),
        ("summary --task Ant-v5", "a shell's patterns choose by the runs' names"),
        ("plot --updates-per-second 9", "--check forecasts other learners"),
        ("search --json show", "Optuna reads the study's journal.log (docs/how-to/search.md)"),
    ],
)
def test_an_option_of_before_is_told_what_there_is_in_its_place(call, line, instead):
    option = line.split()[1]
    said = call(*line.split(), "nowhere", code=2).err
    assert said.endswith(f"; {option} is no option any more: {instead}\n")


def test_a_run_without_anything_to_show_yet(tmp_path, call):
    run = young(tmp_path / "a")
    whats = ("losses", "sensitivity --field sigma", "scaling")
    for line in ("plot", "table", *(f"plot --what {what}" for what in whats)):
        told = call(line, run, code=2).err.splitlines()[-1]
        assert "yet" in told or "no measured run" in told, line


@pytest.mark.parametrize("name", ["bench.__main__", "gpu_check", "torture"])
def test_a_tool_that_is_not_installed_says_what_it_does(name, capsys):
    with pytest.raises(SystemExit):
        import_module(f"tools.{name}").main(["--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m tools.{name.removesuffix('.__main__')} ")
    assert "minutes" in said
