"""What is no configuration file, no key or no value: one sentence says what was meant."""

import sys
from enum import Enum
from pathlib import Path

import pytest
from conftest import ROOT, finish
from words import refused, written

from esac_mpi import __version__
from esac_mpi.__main__ import main
from esac_mpi.config import (
    ES,
    ESAC,
    Config,
    as_words,
    find_unread,
    flatten,
    load,
    read_file,
)
from esac_mpi.config.files import suggest
from esac_mpi.config.resolution import resolve_given
from esac_mpi.studies.experiments import design
from esac_mpi.studies.search import study

NEITHER = "is neither the one configuration file, which ends in .toml, nor the value of an option"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Stand where there are a run, two configuration files and a policy."""
    (tmp_path / "runs/es0").mkdir(parents=True)
    (tmp_path / "many.toml").mkdir()
    for name in "runs/es0/config.toml runs/es0/run.lock none.toml hopper.h5 README.md".split():
        (tmp_path / name).touch()
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text("# as it is\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs/es0"],
         "'runs/es0' is a run's directory: runs/es0/config.toml goes on with the run, "
         "and so does the command"),
        (["runs"], "'runs' is a directory; name the configuration file in it"),
        (["many.toml"], "'many.toml' is a directory; name the configuration file in it"),
        (["none.toml"], "none.toml: empty; "),
        (["--chek"], "unknown key 'chek'; did you mean '--check', which takes no value?"),
        (["--check=1"], "--check takes no value: leave =1 out"),
        (["--refresh", "a.toml"], "'refresh'; did you mean '--fresh', which takes no value?"),
        (["--task.id", ""], "task.id = '': must name a task, such as Hopper-v5"),
        (["--policy.hidden", "--seed", "1"], "--policy.hidden: expected a value after it"),
        (["--policy.hidden="], "policy.hidden = ['']: expected integers: [64, 64]"),
        (["hopper.h5", "--seed", "3"],
         "'hopper.h5' has no settings; to begin a run from a policy is --from hopper.h5"),
        (["Hopper-v5"], "'Hopper-v5' is a task, which is named by --task.id Hopper-v5"),
        (["README.md"], f"'README.md' {NEITHER}"),
        (["ok.tml"], f"'ok.tml' {NEITHER}"),
        (["--seed", "1", "2"], f"'2' {NEITHER}"),
        (["--seed=1", "--fresh", "true"], f"'true' {NEITHER}"),
        (["a.toml", "b.toml"], f"'b.toml' {NEITHER}"),
        (["--policy.hidden", "8", "8", "ok.tml"],
         "policy.hidden = [8, 8, 'ok.tml']: expected integers: [64, 64]"),
        (["--policy.hidden", "8,8"],
         "policy.hidden = ['8,8']: expected integers: [64, 64] in a file, "
         "--policy.hidden 64 64 on a command line"),
        (["x" * 5000], NEITHER),
    ],
)  # fmt: skip
def test_a_word_that_is_no_options_value_is_told_what_it_is(here, words, said):
    told = refused(*words)
    alone = ("none.toml", "'many.toml'", "task.id = ")
    assert told.startswith(("command line: ", *alone))
    assert said in told


def test_no_hidden_layer_is_written_as_in_a_file(here):
    Path("none.toml").write_text("policy.hidden = []\n")
    for words in (["none.toml"], ["--policy.hidden", *as_words(())], ["--policy.hidden", "[]"]):
        assert load(words)[0].policy.hidden == ()


def test_a_run_or_a_policy_is_no_configuration_file(here):
    assert "runs/es0/config.toml goes on with the run" in refused(Path("runs/es0"), by=read_file)
    assert "--from hopper.h5" in refused(Path("hopper.h5"), by=read_file)


def test_values_are_taken_as_before(here):
    line = "--policy.hidden 8 16 a.toml --task.id b.toml --from runs/es0 --run-dir=hopper.h5"
    found, _ = load(line.split())
    assert (found.policy.hidden, found.task.id) == ((8, 16), "b.toml")
    assert (found.start_from, found.run_dir) == ("runs/es0", "hopper.h5")


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("--esac.popsize 3", "esac.population_size"),
        ("--esac.sigmma 3", "esac.sigma"),
        ("--hidden 3", "policy.hidden"),
        ("--budget.timesteps 3", "budget.env_steps"),
        ("--ESAC.Sigma 3", "esac.sigma"),
        ("--rundir 3", "run_dir"),
        ("--policy.hidden_sizes 3 3", "policy.hidden"),
        ("--algo es", "algorithm"),
        ("--horizon 3", "task.horizon"),
        ("--es.workers 3", "esac.workers"),
        ("--es.sigmo 3", "esac.sigma"),
        ("--es.sigmo 3 --algorithm es", "es.sigma"),
        ("--cem.batch_siz 3 --algorithm cem_rl", "cem_rl.batch_size"),
    ],
)
def test_a_key_like_one_that_the_algorithm_reads_names_it(words, right):
    wrong = words.split()[0].removeprefix("--")
    said = f"command line: unknown key '{wrong}'; did you mean '{right}'?"
    assert refused(*words.split()) == said


@pytest.mark.parametrize("algorithm", ["esac", "es"])
@pytest.mark.parametrize("wrong", "title verbose foo esac.mirrored learning_rate".split())
def test_a_key_like_none_that_there_is_names_none(wrong, algorithm):
    said = f"command line: unknown key '{wrong}'; --algorithm {algorithm} --help lists them"
    assert refused(f"--{wrong}", "3", "--algorithm", algorithm) == said


def test_no_field_is_suggested_that_the_algorithm_does_not_read(tmp_path):
    said = "unknown key 'es.workers'; --algorithm es --help lists them"
    es = written(tmp_path / "es.toml", 'algorithm = "es"\n')
    assert refused("--algorithm", "es", "--es.workers", "3").endswith(said)
    assert refused(es, "--es.workers", "3").endswith(said)
    own = written(tmp_path / "x.toml", 'algorithm = "es"\n[es]\nworkers = 3\n')
    assert refused(own).endswith(said)
    assert said in refused(Config(algorithm="es"), {"es.workers": 3}, by=resolve_given)
    # nor one that is read with others alone, here es.noise = table
    unread = "--algorithm es --esac.noise_table_size 9".split()
    assert refused(*unread).endswith("es does not read it")


def test_of_few_names_all_are_named_where_none_is_like_it():
    assert suggest("Es", ["SAC", "ES"]) == "did you mean 'ES'?"
    assert suggest("title", ["low", "high"]) == "there are low, high"


def test_a_file_of_an_experiment_or_search_names_its_command(tmp_path):
    place = f"{ROOT}/configs/experiments/table1.toml"
    assert refused(place).startswith(f"{place} is the file of an experiment: ")
    assert refused(place).endswith(f"experiment run {place}")
    place = written(tmp_path / "x.toml", "trials = 3\n")
    assert refused(place).endswith(f"search run {place}")


STUDY = """
trials = 2
[search]
es.sigma = [0.1, 0.2]
[settings]
algorithm = "es"
budget.generations = 2
"""


def test_a_file_that_an_editor_of_windows_wrote_is_read(tmp_path):
    def written(text):
        (tmp_path / "x.toml").write_text(text, encoding="utf-8-sig")
        assert (tmp_path / "x.toml").read_bytes().startswith(b"\xef\xbb\xbf")
        return tmp_path / "x.toml"

    assert load([str(written("seed = 3\n"))])[0].seed == 3
    shipped = ROOT / "configs/experiments/table1.toml"
    assert design.experiment(str(written(shipped.read_text())))
    assert study.read(written(STUDY))


def test_the_version_is_said_without_mpi_by_one_rank(monkeypatch, capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"esac_mpi {__version__}\n"
    monkeypatch.setenv("PMI_RANK", "1")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == ""
    code = "import sys; from esac_mpi.__main__ import main; main(['--version']); "
    finish([sys.executable, "-c", f"{code} sys.exit('mpi4py' in sys.modules)"], PMI_RANK="0")


@pytest.mark.parametrize("option", ["--from", "--aes_rl.replay"])
def test_a_path_that_no_file_could_hold_is_refused(option):
    """The run's own files would have another one, and the same command other settings."""
    words = ["--algorithm", "aes_rl", "--aes_rl.order", "arrival", option, "runs/caf\udce9"]
    said = "= 'runs/caf\\udce9': not UTF-8, so that no file of the run could hold it"
    assert said in refused(*words)


def test_a_config_of_python_says_what_its_run_does_not_read(caplog):
    """But for what a preset has set, and for what a half has taken from [esac]."""
    esac, es = ESAC(sigma=0.3, crossover="off"), ES(noise_table_size=5)
    resolve_given(Config(algorithm="es", esac=esac, es=es), {})
    unread = "esac.sigma, esac.crossover, es.noise_table_size"
    assert caplog.messages == [f"Config: this run does not read {unread}"]
    for words in ("es --esac.preset corrected", "pderl", "cem"):
        resolve_given(load(["--algorithm", *words.split()])[0], {})
    resolve_given(Config(algorithm="es", esac=ESAC(sigma=0.3), es=ES(sigma=0.3)), {})
    assert len(caplog.messages) == 1


def test_a_choice_may_be_an_enum_of_texts():
    chosen = Enum("Chosen", {"ES": "es"}, type=str)
    assert resolve_given(None, {"algorithm": chosen.ES}).algorithm.__class__ is str


def test_a_whole_table_is_no_file_of_an_old_run():
    """All of [esac] alone was taken for a run's of 0.1.0, whose other values were put beside it."""
    given = dict(flatten(ESAC(sigma=0.1), "esac."))
    read = {name: given[name] for name in given.keys() - find_unread(Config(), given)}
    found = resolve_given(None, read)
    assert (found.esac, found.policy) == (ESAC(sigma=0.1), Config().policy)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({3: 1}, "settings: 3: expected the name of a field"),
        ({"esac.sigma": 0.1, "esac": {"sigma": 0.2}}, "esac.sigma is set twice"),
    ],
)
def test_settings_of_python_have_names_each_once(given, said):
    assert said in refused(None, given, by=resolve_given)
