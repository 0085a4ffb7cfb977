"""`esac-mpi COMMAND`: what it carries out, and what it says of no such command."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest
from commands import actions, tool
from conftest import ROOT, TINY_ES, command, finish
from short_runs import failing

from esac_mpi import __version__
from esac_mpi.commands import GROUPS, NAMES, examples
from esac_mpi.commands.__main__ import EXTRAS, command_line, main
from esac_mpi.host.data_files import data_folder


def test_every_command_has_a_file():
    files = {path.stem for path in (ROOT / "esac_mpi/commands").glob("[a-z]*.py")}
    assert set(NAMES) == files
    assert len(NAMES) == len(files) == sum(map(len, GROUPS.values()))


def test_help_has_all_commands_and_the_version_is_the_packages(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in NAMES)
    assert "    mpirun -n 64 esac-mpi run" in shown
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"esac_mpi {__version__}\n"


@pytest.mark.parametrize("given", ["3", "{", '{"a": NaN}', '{"a": null}', '{"": 1}', "[" * 10**5])
def test_what_no_task_is_made_with_is_measured_with_nothing(call, given):
    """A run's task.kwargs are none of these, and would not be compared with it."""
    told = call("experiment", "random", "CyclicMDP-v0", "--kwargs", given, code=2).err
    assert "expected an object of JSON" in told
    assert len(told) < 1000


@pytest.mark.parametrize("name", sorted({*NAMES} - {"run"}))
def test_an_option_of_several_values_may_be_repeated(name):
    """The last one alone counted: `sweep --tasks A --tasks B` had no runs of A."""
    several = {
        type(action).__name__
        for action in actions(command_line(name))
        if action.option_strings and action.nargs in ("+", "*")
    }
    assert several <= {"_ExtendAction", "_AppendAction"}
    assert several or name not in ("sweep", "experiment", "results", "summary")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which command?"),
        (["plto"], "no command 'plto'; did you mean plot?"),
        (["--verison"], "no command '--verison'"),
        (["scaling", "x"], "is now esac-mpi plot --what scaling"),
        (["operators", "x"], "is now python -m tools.operators, from a checkout"),
    ],
)
def test_what_is_no_command_is_one_sentence_from_one_rank(monkeypatch, capsys, words, said):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), said in err) == ("", 1, True)
    monkeypatch.setenv("PMI_RANK", "1")
    assert main(words) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_a_folder_of_the_packages_name_does_not_hide_it(tmp_path):
    """As one has who starts beside the checkout: Python could take it for the package."""
    (tmp_path / "esac_mpi").mkdir()
    line = [sys.executable, "-m", "esac_mpi", "--version"]
    assert finish(line, folder=tmp_path, PYTHONPATH="").stdout == f"esac_mpi {__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "words"), [(2, "esac_mpi"), (0, "esac_mpi.commands run")])
def test_a_current_directory_that_was_deleted_is_one_sentence(tmp_path, ranks, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = shlex.join(command(ranks, program=("-m", *words.split())))
    done = finish(["sh", "-c", f"cd {gone} && rmdir {gone} && exec {line}"], 2)
    program = "esac-mpi" if "commands" in words else "esac_mpi"
    said = [line for line in done.stderr.splitlines() if line.startswith("esac")]
    assert said == [f"{program}: the current directory is there no longer: cd to one that is"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("pandas.core", " needs pandas: pip install -c constraints.txt -e '.[analysis]'\n"),
        ("torch", ": torch: activate the environment that the program was installed in"),
    ],
)
def test_a_library_that_is_not_installed_is_one_sentence(monkeypatch, capsys, library, said):
    missing = Mock(side_effect=ModuleNotFoundError(library, name=library))
    monkeypatch.setattr(examples, "main", missing)
    assert main(["examples"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    text = (ROOT / "setup.cfg").read_text()
    assert all(f"\n{extra} =" in text for extra in EXTRAS.values())


@pytest.mark.parametrize(
    ("program", "loads"),
    [("esac_mpi", "esac_mpi.comm.launch"), ("esac_mpi.commands", "esac_mpi.analysis.command")],
)
def test_ctrl_c_ends_a_command_or_a_training_that_loads_without_a_traceback(program, loads):
    """By the signal, so that a shell's loop ends, too."""
    code = f"""
import sys
from {program}.__main__ import main
class Press:
    def find_spec(name, *_):
        if name == "{loads}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Press)
main(["summary", "runs/a"])
"""
    assert finish([sys.executable, "-c", code], -signal.SIGINT).stderr == ""


@pytest.mark.slow
def test_a_command_has_one_thread_whatever_variables_say():
    """As in training, whose numbers an evaluation has."""
    ask = "from esac_mpi.host.threads import openblas as o; print({get() for _, get, _ in o()})"
    code = f"from esac_mpi.commands.__main__ import main; main(['evaluate', 'nowhere']); {ask}"
    many = {"OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
    assert finish([sys.executable, "-c", code], **many).stdout == "{1}\n"


@pytest.mark.slow
def test_run_is_the_program_and_needs_no_home_directory_nor_its_plot_a_backend(tmp_path):
    done = tool("run", *TINY_ES, "--run-dir", "a", folder=tmp_path, HOME="/dev/null/home")
    assert "finished at generation 2" in done.stdout
    assert (tmp_path / "a/metrics.h5").exists()
    notebooks = {"MPLBACKEND": "module://nowhere"}  # inherited by what a notebook starts
    tool("plot", "a", "--out", "a.png", folder=tmp_path, **notebooks)
    assert (tmp_path / "a.png").exists()


def test_python_without_texts_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(examples, "__doc__", None)  # as by python -OO
    with pytest.raises(SystemExit) as end:
        main(["examples"])
    assert (end.value.code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_examples_are_copied_once(tmp_path, call):
    places = [str(tmp_path / name) for name in ("configs", "jobs")]
    assert call("examples", tmp_path).out.splitlines() == places
    for path in data_folder().glob("configs/**/*.toml"):
        assert (tmp_path / path.relative_to(data_folder())).read_bytes() == path.read_bytes()
    (tmp_path / "configs/quickstart.toml").write_text("mine")
    assert "is there already: nothing was copied" in call("examples", tmp_path, code=2).err
    assert (tmp_path / "configs/quickstart.toml").read_text() == "mine"


def test_examples_that_cannot_be_copied_leave_no_part(tmp_path, call, monkeypatch):
    with monkeypatch.context() as m:
        m.setattr("shutil.copyfile", failing())
        (said,) = call("examples", tmp_path, code=74).err.splitlines()
        assert "No space left on device" in said
        m.setattr("shutil.copyfile", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            call("examples", tmp_path)
    call("examples", tmp_path)  # then the same command copies them


def test_a_configs_folder_of_somebody_elses_is_no_checkout(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    monkeypatch.setattr("esac_mpi.host.data_files.PACKAGE", tmp_path / "esac_mpi")
    assert data_folder() == tmp_path / "esac_mpi"


@pytest.mark.slow
def test_a_wheel_has_all_that_commands_need_away_from_a_checkout(tmp_path):
    """From an empty directory, with the checkout's C extension."""
    built, here = tmp_path / "site-packages", tmp_path / "here"
    here.mkdir()
    build = ["egg_info", "--egg-base", tmp_path, "build_py", "--build-lib", built]
    finish([sys.executable, "setup.py", "-q", *build], folder=ROOT)
    for extension in ROOT.glob("esac_mpi/operators/_kernels*.so"):
        shutil.copy(extension, built / "esac_mpi/operators")
    there = {path for path in built.rglob("*") if path.is_file()}
    for folder, place in (("esac_mpi", ""), ("configs", "esac_mpi"), ("jobs", "esac_mpi")):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".sh", ".sbatch", ".typed"):
                assert built / place / path.relative_to(ROOT) in there, path
    code = f"""
import sys
sys.path.insert(0, {str(built)!r})
from esac_mpi.commands.__main__ import main
for line in ("--help", "experiment list", "experiment show fig2c", "examples"):
    assert main(line.split()) == 0
assert main(["experiment", "random", "Pendulum-v1"]) == 2
import esac_mpi
assert esac_mpi.__file__.startswith({str(built)!r})
"""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-P", "-c", code]
    done = subprocess.run(line, cwd=here, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "belongs to the installed package" in done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["configs", "jobs"]


@pytest.mark.parametrize("loads", ["esac_mpi.comm.launch", "esac_mpi.training.session"])
def test_run_without_an_mpi_library_is_one_sentence(monkeypatch, capsys, loads):
    monkeypatch.delitem(sys.modules, loads, raising=False)
    monkeypatch.delattr(loads, raising=False)

    class NoLibrary:
        def find_spec(self, name, path=None, target=None):
            if name == loads:
                raise RuntimeError(
                    "cannot load MPI library\nlibmpi.so: cannot open shared object file"
                )

    monkeypatch.setattr(sys, "meta_path", [NoLibrary(), *sys.meta_path])
    assert main(["run", "--algorithm", "es"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "no MPI library was found" in err) == ("", 1, True)
    with pytest.raises(SystemExit) as end:
        main(["run", "--algorithm", "es", "--help"])
    assert end.value.code == 0
    assert "--es.population-size" in capsys.readouterr().out.replace("_", "-")
