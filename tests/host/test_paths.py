"""Paths as a person gives them: ~ and variables, in options, TOML and Python; and whole files."""

from contextlib import suppress
from pathlib import Path

import pytest
from commands import actions
from conftest import TINY_ES
from in_process import started

import esac_mpi
from esac_mpi.commands import NAMES
from esac_mpi.commands.__main__ import command_line
from esac_mpi.config import Config, ConfigError, load
from esac_mpi.config.resolution import change
from esac_mpi.host import paths
from esac_mpi.record import Refused, Unreadable

NOBODY = "~no-such-user/x"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory, and another one to be in."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def test_a_path_is_read_as_a_shell_reads_it(home):
    told = {"~": home, "~/x": home / "x", "x/~": Path("x/~"), "a~": Path("a~"), "": Path()}
    told |= {f"./{name}/x": home.parent / "here" / name / "x" for name in ("~", "$A")}
    told |= {"~root": Path("/root"), b"~/x": home / "x"}
    for text, path in told.items():
        assert paths.read_path(text) == path
        assert paths.read_path(paths.read_path(text)) == path
    # what needs no home stays as it was written
    assert paths.expand_home("./runs//x/") == "./runs//x/"
    for text in (NOBODY, "$SCRATCH/x", "${USER}/b"):
        with pytest.raises(ValueError, match="write the path itself"):
            paths.read_path(text, ValueError)
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(ValueError, match="no path has a NUL"):
            paths.read_path(text, ValueError)
    assert paths.expand_home(b"a\xff") == "a\udcff"
    Path("a$b").mkdir()
    assert paths.read_path("a$b/../a$b") == Path("a$b/../a$b")
    assert paths.read_path("/a/$HOME; 'x'") == Path("/a/$HOME; 'x'")  # a name like any


def test_options_a_file_and_settings_mean_the_home_directory(home):
    text = 'algorithm = "aes_rl"\nrun_dir = "~/r"\nstart_from = "~/s"\naes_rl.order = "arrival"\n'
    (home / "f.toml").write_text(text)
    for argv in (["~/f.toml"], ["~/f.toml", "--run-dir=~/r", "--from=~/s"]):
        config, _ = load([*argv, "--aes_rl.replay=~/t"])
        assert (config.run_dir, config.start_from) == (f"{home}/r", f"{home}/s")
        assert config.aes_rl.replay == f"{home}/t"
    found = change(Config(run_dir="~/r"), {"start_from": "~/s"}, "settings")
    assert (found.run_dir, found.start_from) == (f"{home}/r", f"{home}/s")


def test_a_home_that_is_not_there_is_one_sentence(home):
    for word in (f"--run-dir={NOBODY}", f"--from={NOBODY}", f"{NOBODY}.toml", "--run-dir=$A/x"):
        with pytest.raises(ConfigError, match="write the path itself"):
            load([word])
    for opens, kind in ((esac_mpi.Run.open, Refused), (esac_mpi.Policy.load, Unreadable)):
        with pytest.raises(kind, match="has no home directory"):
            opens(NOBODY)
    with pytest.raises(esac_mpi.WrongUsage, match="has no home directory"):
        esac_mpi.train(None, {"algorithm": "es"}, run_dir=NOBODY)
    assert list(Path().iterdir()) == []


def test_a_run_is_made_and_found_in_the_home_directory(home, call):
    assert started(*TINY_ES, "--run-dir=~/run") == 0
    assert esac_mpi.Run.open("~/run").generation == 2
    assert esac_mpi.Policy.load("~/run").path == home / "run/policy.h5"
    assert started("~/run/config.toml", "--budget.generations", 3) == 0
    assert started(*TINY_ES, "--from=~/run", "--run-dir=~/other", "--seed=1") == 0
    assert 'start_from = "' + str(home) in (home / "other/config.toml").read_text()
    call("summary", "~/run")
    assert sorted(path.name for path in home.iterdir()) == ["other", "run"]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"run"}))
def test_every_path_of_a_command_is_read_so(name):
    assert Path not in [action.type for action in actions(command_line(name))]


def test_a_study_may_lie_in_the_home_directory(home):
    study = pytest.importorskip("esac_mpi.studies.search.study")
    text = 'config = "~/c.toml"\ndirectory = "~/s"\ntrials = 1\n[search]\n"es.sigma" = [0.1, 0.2]\n'
    (home / "c.toml").write_text('algorithm = "es"\n')
    (home / "study.toml").write_text(text)
    found = study.read(paths.read_path("~/study.toml"))
    assert (found.path, found.file) == (home / "s", {"algorithm": "es"})
    (home / "study.toml").write_text(text.replace("~/s", NOBODY))
    with pytest.raises(study.ConfigError, match="has no home directory"):
        study.read(home / "study.toml")


def test_what_cannot_be_written_whole_leaves_what_was_there(tmp_path):
    file, link = tmp_path / "made/x.txt", tmp_path / "link.txt"
    link.symlink_to(file)
    with paths.whole_file(link) as place:
        place.write_text("one")
    file.chmod(0o640)
    with paths.whole_file(link) as place:
        place.write_text("two")
    with suppress(OSError), paths.whole_file(file) as place:
        place.write_text("th")
        raise OSError(28, "No space left on device")
    with paths.whole_file(file.with_name("y.txt")) as one, paths.whole_file(file) as other:
        one.write_text("y")  # as a process of the same number on another host
        other.write_text("two")
    file.with_name("y.txt").unlink()
    assert [*file.parent.iterdir()] == [file]
    assert (link.readlink(), file.read_text(), file.stat().st_mode & 0o777) == (file, "two", 0o640)
    long = tmp_path / f"made/{'x' * 300}.txt"
    with pytest.raises(OSError, match=f"File name too long: '{long}'"), paths.whole_file(long):
        pytest.fail("work is done for a name that no file has")
    with paths.whole_file(Path("/dev/null")) as place:
        assert place == Path("/dev/null")
