"""What a study file says, what of it is refused, what Optuna is asked, and who holds a trial."""

import json
import re
import textwrap
import tomllib
from dataclasses import replace

import optuna
import pytest
from conftest import ROOT
from small_studies import SEARCH, SETTINGS, completed, made, write

from esac_mpi.analysis.messages import Unusable
from esac_mpi.commands import search
from esac_mpi.config import Config, amend, differences, load
from esac_mpi.record import Run
from esac_mpi.studies.search import report
from esac_mpi.studies.search.journal import JOURNAL, Journal
from esac_mpi.studies.search.space import Choices, Range
from esac_mpi.studies.search.study import STUDY, check, read
from esac_mpi.training.task_set_up import make_task


def test_a_study_says_what_is_fixed_and_what_is_searched(tmp_path):
    (tmp_path / "es.toml").write_text('algorithm = "es"\n[es]\nsigma = 0.3\nlr_es = 0.05\n')
    head = f'trials = 7\nseeds = [100, 101]\nmeasure = "final"\nconfig = "{tmp_path}/es.toml"'
    space = SEARCH + "policy.hidden = [[8], [8, 8]]"
    study = read(write(tmp_path, head, 'task.id = "CyclicMDP-v0"', space))
    assert study.space == {
        "es.sigma": Range(0.01, 0.5, log=True), "es.population_size": Choices((4, 6)),
        "policy.hidden": Choices(((8,), (8, 8))),
    }  # fmt: skip
    config = study.configure({"es.sigma": 0.02, "policy.hidden": (8, 8)}, seed=101, run_dir="x")
    assert (config.es.sigma, config.es.lr_es) == (0.02, 0.05)
    assert (config.policy.hidden, config.seed) == ((8, 8), 101)
    assert (study.trials, study.measure, study.seeds) == (7, "final", [100, 101])
    assert study.sampler.kind == "tpe"
    assert read(write(tmp_path)).seeds == [100]  # a search's own, whoever reports 0, 1, 2 ...
    tail = "[pruner]\nkind = 'none'\n[sampler]\nseed = 4\nkind='random'"
    assert read(write(tmp_path, tail=tail)).sampler.seed == 4


@pytest.mark.parametrize(
    ("part", "text", "said"),
    [
        ("search", "es.sigmma = [0.1, 0.2]", "unknown key 'es.sigmma'; did you mean 'es.sigma'?"),
        ("search", "es = [{}]", "'es' is a table of settings, which has no value of its own"),
        ("search", "es.sigma = {low = 0.5, high = 0.1}", "low = 0.5 must be below high = 0.1"),
        ("search", "es.sigma = {low = 0.5, high = inf}", "low, high and step must be finite"),
        ("search", f"es.population_size = {{low = 10, high = {10**400}}}", "below 2**63"),
        ("search", "es.sigma = {low = 0.5}", "es.sigma: high is missing"),
        ("search", "es.sigma = {low = 0.0, high = 0.1, log = true}", "needs a low above 0"),
        ("search", "es.sigma = {low = 0.1, high = 0.3, log = true, step = 0.1}", "log = false"),
        ("search", "es.sigma = {low = 0.1, high = 0.3, step = 0.4}", "step = 0.4 is more than"),
        ("search", "es.sigma = {low = -0.1, high = 0.3}", "es.sigma = -0.1: must be positive"),
        ("search", 'es.sigma = [0.1, "wide"]', "es.sigma = 'wide': expected a number"),
        ("search", "es.sigma = [0.1, 0.1]", "expected two values or more, each once"),
        ("search", "es.sigma = 0.1", "es.sigma = 0.1: expected a list of values, or {low ="),
        ("search", "policy.activation = {low = 1, high = 2}", "expected 'relu'"),
        ("search", "es.population_size = [4, 5]", "population_size"),  # mirrored, and odd
        ("search", "sac.gamma = [0.9, 0.99]", "sac.gamma: algorithm = es does not read it"),
        ("search", "seed = [1, 2]", "seed: seeds = [100, 101] of the study says which"),
        ("search", 'run_dir = ["a", "b"]', 'run_dir: directory = "..." of the study says which'),
        ("search", "task.horizon = [20, 30]", "task.horizon: the same for all trials"),
        ("tail", "es.lr_es = [0.1, 0.2]\n[sampler]\nkind = 'cma'", "expected 'tpe' or 'random'"),
        ("tail", "[pruner]\nwarmup = 1.5", "pruner: warmup = 1.5: must be at most 1"),
        ("tail", "[pruner]\nkind = 'none'\nwarmup = 0.5", "pruner: none does not read warmup"),
        ("tail", "[sampler]\nkind = 'random'\nstartup = 5", "random does not read startup"),
        ("settings", SETTINGS + "es.sigma = 0.1", "under [settings] and under [search]"),
        ("settings", SETTINGS + "seed = 3", "settings: seed: seeds = [100, 101] of"),
        ("settings", SETTINGS + "td3.gamma = 0.9", "td3.gamma: algorithm = es does not read it"),
        ("settings", SETTINGS.replace("CyclicMDP-v0", "Nowhere-v0"), "Nowhere"),
        ("head", "trials = 0", "trials = 0: must be positive"),
        ("head", "trials = 2\nmeasure = 'median'", "expected 'best' or 'final'"),
        ("head", "trials = 2\nseeds = [1, 1]", "seeds = [1, 1]: expected numbers from 0 on"),
        ("head", "trials = 2\ntrails = 3", "unknown key 'trails'; did you mean 'trials'?"),
        ("head", "trials = 2\nconfig = 'none.toml'", "none.toml: No such file"),
        ("head", "trials =", "not valid TOML"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_nothing_made(tmp_path, call, part, text, said):
    file = write(tmp_path, **{part: text})
    error = call("search run", file, code=2).err
    assert said in error
    assert error.startswith(str(file))
    assert error.count("\n") == 1
    if "Nowhere" in text:
        assert call("search jobs", file, code=2).err.startswith(f"{file}: Unknown task")
    assert not (tmp_path / "study").exists()


def test_optuna_gets_the_ranges_and_choices_as_they_are_meant(tmp_path):
    space = """es.sigma = {low = 0.1, high = 0.35, step = 0.1}
es.lr_es = {low = 0.01, high = 0.5, log = true}
es.population_size = {low = 4, high = 9, step = 2}
policy.hidden = [[8], [8, 8]]"""
    study = made(tmp_path, settings=SETTINGS.replace("policy.hidden = [4]", ""), search=space)
    journal = Journal(study, fresh=True)
    journal.values(journal.begin())
    of = optuna.distributions
    assert journal._study.trials[0].distributions == {
        "es.sigma": of.FloatDistribution(0.1, 0.3, step=0.1),
        "es.lr_es": of.FloatDistribution(0.01, 0.5, log=True),
        "es.population_size": of.IntDistribution(4, 8, step=2),
        "policy.hidden": of.CategoricalDistribution(("(8,)", "(8, 8)")),
    }
    assert journal.trials()[0].found["policy.hidden"] in [(8,), (8, 8)]


def test_what_is_no_study_is_one_sentence(tmp_path, call):
    file = write(tmp_path)
    for words in (["show", "none.toml"], ["best", tmp_path], ["show", file]):
        assert call("search", *words, code=2).err.count("\n") == 1
    foreign = tmp_path / "study/thesis.tex"
    foreign.parent.mkdir()
    foreign.write_text("all of it")
    assert "not empty, and not a study" in call("search run", file, code=2).err
    foreign.unlink()
    study = made(tmp_path)
    Journal(study, fresh=True)
    (study.path / JOURNAL).write_text("")
    assert "no trial was begun yet" in call("search show", study.path, code=2).err
    for name, text in ((JOURNAL, "no\nlines\n"), (STUDY, "no\nlines\n"), (STUDY, '{"study": 3}')):
        (study.path / name).write_text(text)
        error = call("search show", study.path, code=65).err
        assert (str(study.path / name) in error, error.count("\n")) == (True, 1)


@pytest.mark.parametrize(
    ("part", "text", "said"),
    [
        ("search", SEARCH.replace("0.5", "0.6"), "0.01 to 0.5 (log) -> 0.01 to 0.6 (log)"),
        ("search", "es.lr_es = [0.1, 0.2]", "es.lr_es"),
        ("search", SEARCH.replace("[4, 6]", "[6, 8]"), "es.population_size"),
        ("settings", SETTINGS.replace("30", "40"), "task.horizon: 30 -> 40"),
        ("settings", SETTINGS.replace("ions = 10", "ions = 20"), "budget.generations: 10 -> 20"),
        ("settings", SETTINGS.replace("[4]", "[8, 8]"), "policy.hidden: 4 -> 8 8"),
        ("head", "trials = 3\nseeds = [4]", "seeds: 100 -> 4: "),
        ("tail", "[pruner]\nkind = 'none'", "pruner: "),
    ],
)
def test_a_file_that_was_changed_since_is_another_study(tmp_path, call, part, text, said):
    """Its settings would be told as those of the best trial, though no trial had them."""
    study = made(tmp_path)
    completed(study, 1.0)
    with pytest.raises(Unusable) as caught:
        made(tmp_path, **{part: text})
    assert said in str(caught.value)
    told = call("search show", write(tmp_path, **{part: text}), code=2).err
    assert "holds a study with other settings" in told
    call("search show", study.path)


def test_more_trials_are_the_same_study(tmp_path):
    made(tmp_path)
    assert read(tmp_path / "study").trials == 3
    made(tmp_path, "trials = 5", SETTINGS + "display.every_seconds = 3.0")
    assert read(tmp_path / "study").trials == 5
    made(tmp_path, "trials = 5", SETTINGS + "task.changed = 'warn'")
    assert read(tmp_path / "study").settings["task.changed"] == "warn"


def test_a_study_begun_with_an_unread_setting_goes_on(tmp_path):
    check(made(tmp_path, tail="[pruner]\nkind = 'none'\nwarmup = 0.5"))


def test_a_study_whose_task_was_edited_is_another_one(tmp_path, call, monkeypatch):
    """Unless its settings let a run go on, too."""
    file, of = write(tmp_path), "esac_mpi.studies.search.study.identity"
    for source, code in (("a 1", 0), ("a 2", 2), ("a 1", 0)):
        monkeypatch.setattr(of, lambda env, source=source: {"source": source})
        told = call("search jobs", file, code=code).err
        assert ("the task's source, which was edited: name another" in told) == bool(code)
    monkeypatch.setattr(of, lambda env: {"source": "a 2"})
    call("search jobs", write(tmp_path, settings=SETTINGS + "task.changed = 'warn'"))


def test_a_study_of_another_version_is_only_shown(tmp_path, call):
    study = made(tmp_path)
    completed(study, 1.0)
    saved = json.loads((study.path / STUDY).read_text())
    for version in ("0.1", None):  # the first ones did not write it down
        (study.path / STUDY).write_text(json.dumps({**saved, "version": version}))
        assert "settings or defaults, version: " in call("search run", study.path, code=2).err
        call("search show", study.path)
    (study.path / STUDY).write_text(json.dumps(saved))
    made(tmp_path)


def test_a_trial_begun_beyond_the_last_waits_for_a_longer_study(tmp_path, call):
    """As two tasks do that ask for the last trial at once. Nobody has it, nor has it a lock."""
    journal = Journal(made(tmp_path, "trials = 1"), fresh=True)
    assert [journal.begin(), journal.begin()] == [0, 1]
    assert [trial.number for trial in journal.trials()] == [0]
    longer = made(tmp_path, "trials = 3")
    assert [trial.state for trial in Journal(longer).trials()] == ["running"] * 2
    assert "2 of 3 trials begun: 2 left; " in call("search show", longer.path).out


def test_the_best_is_written_as_it_was_run(tmp_path, call, monkeypatch):
    study, out = made(tmp_path, "trials = 1"), tmp_path / "best.toml"
    call("search run", study.path)
    was = Run.open(study.run_of(0, 100)).config
    monkeypatch.setattr(
        "esac_mpi.studies.search.study.resolve_all", lambda *a: pytest.fail("resolved anew")
    )
    out.write_text(call("search best", study.path).out)
    found = load([str(out)])[0]
    assert found == amend(was, {"seed": 0, "run_dir": Config().run_dir, "max_hours": 0.0})


def test_a_field_that_two_choices_let_be_read_is_searched(tmp_path):
    search = 'algorithm = ["es", "erl"]\nerl.learner = ["ddpg", "td3"]\ntd3.policy_delay = [1, 3]'
    settings = SETTINGS.replace('algorithm = "es"', "es.population_size = 4")
    study = made(tmp_path, "trials = 2", settings, search)
    assert {config.algorithm for config in check(study)} == {"es", "erl"}


def test_a_field_that_is_unread_is_left_out_of_the_trial(tmp_path):
    settings = SETTINGS.replace('algorithm = "es"', "cem.population_size = 8")
    settings += "es.population_size = 8"
    search = 'es.sigma = [0.1, 0.2]\nalgorithm = ["es", "cem"]'
    study = made(tmp_path, "trials = 6", settings, search, "[sampler]\nkind = 'random'")
    check(study)
    journal = Journal(study, fresh=True)
    found = [journal.values(journal.begin()) for _ in range(6)]
    read = {one["algorithm"]: set(one) for one in found}
    assert read == {"cem": {"algorithm"}, "es": {"algorithm", "es.sigma"}}
    configs = [study.configure(one, seed=1) for one in found]
    assert {config.cem.population_size for config in configs if config.algorithm == "cem"} == {8}


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_what_is_proposed_does_not_depend_on_who_asks(tmp_path, kind):
    """One task that proposes four trials, and two that take turns, one by the study's directory."""
    tail = f"[sampler]\nkind = '{kind}'\nstartup = 2"
    proposed = []
    for folder, tasks in ((tmp_path / "a", 1), (tmp_path / "b", 2)):
        folder.mkdir()
        study = made(folder, "trials = 4", tail=tail)
        journals = [Journal(each, fresh=True) for each in (study, read(study.path))[:tasks]]
        for number in range(4):
            journal = Journal(study, fresh=True) if number == 3 else journals[number % tasks]
            assert journal.begin() == number
            found = journal.values(number)
            assert Journal(study).values(number) == found  # taken up by another task
            journal.complete(number, found["es.sigma"])
        proposed.append([trial.found for trial in journals[0].trials()])
    assert proposed[0] == proposed[1]
    assert len({one["es.sigma"] for one in proposed[0]}) == 4


@pytest.mark.parametrize("search", ["es.sigma = [0.1, 0.2]", "es.lr_es = [0.1, 0.2]"])
def test_a_study_that_was_edited_does_not_fit_its_journal(tmp_path, call, search):
    settings = SETTINGS + "es.population_size = 4"
    study = made(tmp_path, settings=settings, search="es.sigma = [0.3, 0.4]")
    completed(study, 1.0)
    saved = json.loads((study.path / STUDY).read_text())
    saved["study"]["search"] = tomllib.loads(search)
    (study.path / STUDY).write_text(json.dumps(saved))
    for action in ("show", "best", "run"):
        told = call(f"search {action}", study.path, code=65).err
        assert told.startswith(f"{study.path / JOURNAL}: trial 0 has es.sigma = ")


def test_a_study_whose_directory_cannot_be_made_is_wrong_usage(tmp_path, call):
    file = write(tmp_path)
    (tmp_path / "study").touch()
    for action in ("jobs", "run"):
        told = call(f"search {action}", file, code=2).err
        assert told.startswith(f"{tmp_path}/study: File exists; name another directory = ")
    (tmp_path / "study").unlink()
    told = call("search run", file, "--run-dir", file / "task", code=2).err
    assert told == f"{file}/task: Not a directory; choose another --run-dir\n"


@pytest.mark.parametrize("damage", [b"{\x00\x00\n", b"\xff\xfe\n", b"[1]\n", b"{}\n"])
def test_a_damaged_line_is_told_with_the_runs_that_remain(tmp_path, call, damage):
    study = made(tmp_path)
    Journal(study, fresh=True).begin()
    lines = (study.path / JOURNAL).read_bytes().splitlines(keepends=True)
    (study.path / JOURNAL).write_bytes(b"".join([*lines[:1], damage, *lines[1:]]))
    for action in ("show", "run"):
        told = call(f"search {action}", study.path, code=65).err
        assert f"{study.path}/trial-*" in told
        assert told.count("\n") == 1


def test_a_line_that_a_full_disk_has_cut_off_costs_no_other(tmp_path):
    study = made(tmp_path, "trials = 5")
    journal = completed(study, 1.0)
    cut = b'{"op_code":'
    # an editor ends lines, and a line may be longer than what is read at once
    for value, part in ((2.0, cut), (3.0, cut + b"\n"), (4.0, cut + 200_000 * b" ")):
        with (study.path / JOURNAL).open("ab") as file:
            file.write(part)
        assert len(Journal(study).trials()) == value - 1
        completed(study, value)
    journal.begin()
    assert [trial.value for trial in Journal(study).trials()] == [1.0, 2.0, 3.0, 4.0, None]


def test_trials_are_shown_the_best_first_and_why_others_failed(tmp_path, call):
    study = made(tmp_path, "trials = 30")
    journal = completed(study, *map(float, range(11)))
    journal.fail(journal.begin(), "it was late")
    lines = call("search show --top 0", study.path).out.splitlines()
    assert lines[0] == f"{study.path}: 12 of 30 trials begun: 11 complete, 1 failed"
    assert [float(line.split()[2]) for line in lines[3:14]] == [*range(10, -1, -1)]
    assert lines[15] == "trial 11 failed: it was late"
    assert len(call("search show", study.path).out.splitlines()) == 3 + 10 + 2


@pytest.mark.parametrize("words", [
    ["--algorithm", "es", "--es.sigma", "0.03", "--budget.generations", "7",
     "--policy.hidden", "8"],
    ["--esac.preset", "paper", "--esac.winner_pull", str(Config().esac.winner_pull)],
])  # fmt: skip
def test_the_best_as_a_configuration_means_the_same(tmp_path, words):
    config = load(words)[0]
    (tmp_path / "best.toml").write_text(report.as_file(replace(config, seed=100)))
    found = load([str(tmp_path / "best.toml")])[0]
    assert not differences(found, config)
    assert (found.budget, found.seed) == (config.budget, 0)


def test_names_beside_the_best_count_as_beside_any_file(tmp_path):
    """It was taken for the file of a run of 0.1.0: other values were put beside it, or none."""
    config, best = load(["--esac.transfer", "off"])[0], str(tmp_path / "best.toml")
    (tmp_path / "best.toml").write_text(report.as_file(config))
    assert load([best, "--esac.transfer", "tested"])[0].esac == Config().esac
    make_task(load([best, "--task.id", "Pendulum-v1"])[0])  # whose observations auto standardises
    for other in ("es", "sac", "td3"):
        assert load([best, "--algorithm", other])[0].algorithm == other


@pytest.mark.parametrize("where", ["help", "page"])
def test_the_studies_of_help_and_page_can_be_run(tmp_path, monkeypatch, where):
    page = (ROOT / "docs/how-to/search.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    if where == "help":
        about = textwrap.dedent(search.__doc__.partition("\n")[2])
        text = re.search(r"^    trials = .*?\n\n", about, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "study.toml").write_text(textwrap.dedent(text))
    monkeypatch.chdir(ROOT)
    assert check(read(tmp_path / "study.toml"))
