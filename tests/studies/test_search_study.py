"""What a study file says, what of it is refused, what Optuna is asked, and who holds a trial."""

import json
import re
import textwrap
from dataclasses import replace

import optuna
import pytest
from commands import command
from conftest import ROOT
from small_studies import SEARCH, SETTINGS, made, write

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import Config, differences, load, updated
from esac_mpi.record import Run
from esac_mpi.studies.search import report
from esac_mpi.studies.search.journal import JOURNAL, Journal
from esac_mpi.studies.search.space import Choices, Range
from esac_mpi.studies.search.study import STUDY, checked, read

search = command("search")


def test_a_study_says_what_is_fixed_and_what_is_searched(tmp_path):
    (tmp_path / "es.toml").write_text('algorithm = "es"\n[es]\nsigma = 0.3\nlr_es = 0.05\n')
    head = f'trials = 7\nseeds = [100, 101]\nmeasure = "final"\nconfig = "{tmp_path}/es.toml"'
    study = read(
        write(tmp_path, head, 'task.id = "CyclicMDP-v0"', SEARCH + "policy.hidden = [[8], [8, 8]]")
    )
    assert study.space == {
        "es.sigma": Range(0.01, 0.5, log=True), "es.population_size": Choices((4, 6)),
        "policy.hidden": Choices(((8,), (8, 8))),
    }  # fmt: skip
    config = study.config({"es.sigma": 0.02, "policy.hidden": (8, 8)}, seed=101, run_dir="x")
    assert (config.es.sigma, config.es.lr_es, config.policy.hidden, config.seed) == (
        0.02,
        0.05,
        (8, 8),
        101,
    )
    assert (study.trials, study.measure, study.seeds, study.sampler.kind) == (
        7,
        "final",
        (100, 101),
        "tpe",
    )
    assert read(write(tmp_path)).seeds == (100,)  # a search's own, whoever reports 0, 1, 2 ...
    assert (
        read(
            write(tmp_path, tail="[pruner]\nkind = 'none'\n[sampler]\nseed = 4\nkind='random'")
        ).sampler.seed
        == 4
    )


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


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"search": "es.sigmma = [0.1, 0.2]"}, "unknown key 'es.sigmma'; did you mean 'es.sigma'?"),
        (
            {"search": "es.sigma = {low = 0.5, high = 0.1}"},
            "es.sigma: low = 0.5 must be below high = 0.1",
        ),
        ({"search": "es.sigma = {low = 0.5, high = inf}"}, "low, high and step must be finite"),
        (
            {"search": "es.sigma = {low = 0.1, high = 0.2, step = inf}"},
            "low, high and step must be finite",
        ),
        (
            {"search": f"es.population_size = {{low = 10, high = {10**400}}}"},
            "must be finite, and below 2**63",
        ),
        (
            {"head": f"trials = 2\nseeds = [{2**63}]"},
            "expected numbers from 0 on, each once, below 2**63",
        ),
        ({"search": "es.sigma = {low = 0.5}"}, "es.sigma: high is missing"),
        (
            {"search": "es.sigma = {low = 0.5, hgih = 1.0}"},
            "unknown key 'hgih'; did you mean 'high'?",
        ),
        (
            {"search": "es.sigma = {low = 0.0, high = 0.1, log = true}"},
            "log = true needs a low above 0",
        ),
        (
            {"search": "es.sigma = {low = 0.1, high = 0.3, log = true, step = 0.1}"},
            "step must be positive, and goes with log = false",
        ),
        (
            {"search": "es.sigma = {low = 0.1, high = 0.3, step = 0.4}"},
            "step = 0.4 is more than high - low",
        ),
        (
            {"search": "es.sigma = {low = -0.1, high = 0.3}"},
            "es.sigma = -0.1: must be positive and finite",
        ),
        (
            {"search": "es.population_size = {low = 4.5, high = 8}"},
            "es.population_size = 4.5: expected an integer",
        ),
        ({"search": 'es.sigma = [0.1, "wide"]'}, "es.sigma = 'wide': expected a number"),
        ({"search": "es.sigma = [0.1, 0.1]"}, "expected two values or more, each once"),
        ({"search": "es.sigma = 0.1"}, "es.sigma = 0.1: expected a list of values, or {low = 0.01"),
        (
            {"search": "policy.activation = {low = 1, high = 2}"},
            "policy.activation = {'low': 1, 'high': 2}: expected 'relu'",
        ),
        (
            {"search": "es.population_size = [4, 5]"},
            "population_size",
        ),  # a mirrored population is even
        ({"search": "sac.gamma = [0.9, 0.99]"}, "sac.gamma: algorithm = es does not read it"),
        ({"search": "seed = [1, 2]"}, "seed: seeds = [100, 101] of the study says which"),
        (
            {"search": "task.horizon = [20, 30]"},
            "task.horizon: the same for all trials, under [settings]",
        ),
        ({"search": "budget.generations = [2, 3]"}, "budget.generations: the same for all trials"),
        (
            {"search": "es.sigma = [0.1, 0.2]\nes.lr_es = [0.1, 0.2]\n[sampler]\nkind = 'cma'"},
            "kind = 'tpe' or 'random'",
        ),
        ({"tail": "[pruner]\nwarmup = 1.5"}, "warmup from 0 to 1"),
        ({"tail": "[pruner]\nmedian = true"}, "unknown key 'median'"),
        (
            {"settings": SETTINGS + "es.sigma = 0.1"},
            "es.sigma stands under [settings] and under [search]",
        ),
        ({"settings": SETTINGS + "seed = 3"}, "settings: seed: the search sets it"),
        ({"settings": SETTINGS + "td3.gamma = 0.9"}, "td3.gamma: algorithm = es does not read it"),
        ({"settings": SETTINGS.replace("CyclicMDP-v0", "Nowhere-v0")}, "Nowhere"),
        ({"head": "trials = 0"}, "needs trials = 1 or more"),
        (
            {"head": "trials = 2\nmeasure = 'median'"},
            "measure = 'median': expected 'best' or 'final'",
        ),
        (
            {"head": "trials = 2\nseeds = [1, 1]"},
            "seeds = [1, 1]: expected numbers from 0 on, each once",
        ),
        ({"head": "trials = 2\ntrails = 3"}, "unknown key 'trails'; did you mean 'trials'?"),
        ({"head": "trials = 2\nconfig = 'none.toml'"}, "none.toml: No such file"),
        ({"head": "trials ="}, "not valid TOML"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence_and_nothing_is_made(tmp_path, capsys, parts, said):
    assert search.main(["run", str(write(tmp_path, **parts))]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith(str(tmp_path / "toy.toml"))
    assert error.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_a_list_of_jobs_for_an_unknown_task_is_refused_with_nothing_made(tmp_path, capsys):
    file = write(tmp_path, settings=SETTINGS.replace("CyclicMDP-v0", "Nowhere-v0"))
    assert search.main(["jobs", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"{file}: Unknown task 'Nowhere-v0'")
    assert not (tmp_path / "study").exists()


def test_no_study_no_trial_and_a_foreign_directory_are_one_sentence(tmp_path, capsys):
    for words in (["show", "none.toml"], ["best", str(tmp_path)], ["show", str(write(tmp_path))]):
        assert search.main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "study").mkdir()
    (tmp_path / "study/thesis.tex").write_text("all of it")
    assert search.main(["run", str(tmp_path / "toy.toml")]) == 2
    assert "not empty, and not a study" in capsys.readouterr().err
    (tmp_path / "study/thesis.tex").unlink()
    study = made(tmp_path)
    Journal(study, fresh=True)
    for file in (study.path / JOURNAL, study.path / "study.json"):
        file.write_text("no\nlines\n")
        assert search.main(["show", str(study.path)]) == 65
        error = capsys.readouterr().err
        assert (str(file) in error, error.count("\n")) == (True, 1)


def test_other_ranges_are_another_study_and_more_trials_are_not(tmp_path):
    made(tmp_path)
    for parts, said in (
        (
            {"search": SEARCH.replace("0.5", "0.6")},
            "es.sigma: 0.01 to 0.5 (log) -> 0.01 to 0.6 (log)",
        ),
        ({"settings": SETTINGS.replace("30", "40")}, "task.horizon: 30 -> 40"),
        (
            {"settings": SETTINGS.replace("generations = 10", "generations = 20")},
            "budget.generations: 10 -> 20",
        ),
        ({"head": "trials = 3\nseeds = [4]"}, "seeds: (100,) -> (4,)"),
        ({"tail": "[pruner]\nkind = 'none'"}, "pruner: "),
    ):
        with pytest.raises(Unusable) as caught:
            made(tmp_path, **parts)
        assert said in str(caught.value)
    assert read(tmp_path / "study").trials == 3
    made(tmp_path, "trials = 5", SETTINGS + "display.every_seconds = 3.0")
    assert read(tmp_path / "study").trials == 5


def test_a_study_goes_on_with_the_defaults_it_was_begun_with_or_not_at_all(tmp_path, capsys):
    study = made(tmp_path)
    journal = Journal(study, fresh=True)
    journal.values(journal.begin())
    journal.complete(0, 1.0)
    saved = json.loads((study.path / STUDY).read_text())
    for version in ("0.1", None):  # the first ones did not write it down
        (study.path / STUDY).write_text(json.dumps({**saved, "version": version}))
        for action in ("run", "best"):  # its run is gone: what its values mean is not known
            assert search.main([action, str(study.path)]) == 2
            assert "settings or defaults, version: " in capsys.readouterr().err
        assert search.main(["show", str(study.path)]) == 0
    (study.path / STUDY).write_text(json.dumps(saved))
    made(tmp_path)


def test_a_trial_begun_beyond_the_last_waits_for_a_longer_study(tmp_path):
    """As two tasks do that ask for the last trial at once."""
    study = made(tmp_path, "trials = 1")
    journal = Journal(study, fresh=True)
    assert [journal.begin(), journal.begin()] == [0, 1]
    assert [trial.number for trial in journal.trials()] == [0]
    longer = made(tmp_path, "trials = 3")
    assert [trial.state for trial in Journal(longer).trials()] == ["running"] * 2


def test_the_best_is_written_as_it_was_run_whatever_the_defaults_are_now(
    tmp_path, capsys, monkeypatch
):
    study = made(tmp_path, "trials = 1")
    assert search.main(["run", str(study.path)]) == 0
    was = Run.open(study.run_of(0, 100)).config
    monkeypatch.setattr(
        "esac_mpi.studies.search.study.joined", lambda *a: pytest.fail("resolved anew")
    )
    capsys.readouterr()
    assert search.main(["best", str(study.path)]) == 0
    (tmp_path / "best.toml").write_text(capsys.readouterr().out)
    found = load([str(tmp_path / "best.toml")])[0]
    assert found == updated(was, {"seed": 0, "run_dir": Config().run_dir, "max_hours": 0.0})


def test_a_changed_task_may_be_gone_on_with(tmp_path):
    made(tmp_path)
    made(tmp_path, settings=SETTINGS + "task.changed = 'warn'")
    assert read(tmp_path / "study").settings["task.changed"] == "warn"


@pytest.mark.parametrize("parts", [
    {"search": "es.lr_es = [0.1, 0.2]"}, {"search": SEARCH.replace("[4, 6]", "[6, 8]")},
    {"settings": SETTINGS.replace("hidden = [4]", "hidden = [8]")},
])  # fmt: skip
def test_trials_are_not_shown_as_those_of_a_file_that_was_changed_since(tmp_path, capsys, parts):
    """Its settings would be told as those of the best trial, though no trial had them."""
    study = made(tmp_path)
    journal = Journal(study, fresh=True)
    journal.values(journal.begin())
    journal.complete(0, 1.0)
    for action in ("show", "best"):
        assert search.main([action, str(write(tmp_path, **parts))]) == 2
        assert "holds a study with other settings" in capsys.readouterr().err
        assert search.main([action, str(study.path)]) == 0
    capsys.readouterr()
    assert search.main(["show", str(study.path), "--top", "-1"]) == 2
    assert capsys.readouterr().err == "--top must be 0 or more, got -1\n"


def test_a_field_that_other_choices_let_be_unread_is_left_out_of_the_trial(tmp_path):
    settings = (
        SETTINGS.replace('algorithm = "es"', "") + "cem.population_size = 8\nes.population_size = 8"
    )
    study = made(
        tmp_path,
        "trials = 6",
        settings,
        'es.sigma = [0.1, 0.2]\nalgorithm = ["es", "cem"]',
        "[sampler]\nkind = 'random'",
    )
    checked(study, print)
    journal = Journal(study, fresh=True)
    found = [journal.values(journal.begin()) for _ in range(6)]
    assert {one["algorithm"]: set(one) for one in found} == {
        "cem": {"algorithm"},
        "es": {"algorithm", "es.sigma"},
    }
    configs = [study.config(one, seed=1) for one in found]
    assert {config.cem.population_size for config in configs if config.algorithm == "cem"} == {8}


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_what_is_proposed_does_not_depend_on_who_asks(tmp_path, kind):
    """One task that proposes four trials, and two that take turns, one of them anew each time."""
    tail = f"[sampler]\nkind = '{kind}'\nstartup = 2"
    proposed = []
    for folder, tasks in ((tmp_path / "a", 1), (tmp_path / "b", 2)):
        folder.mkdir()
        study = made(folder, "trials = 4", tail=tail)
        journals = [Journal(study, fresh=True) for _ in range(tasks)]
        for number in range(4):
            journal = Journal(study, fresh=True) if number == 3 else journals[number % tasks]
            assert journal.begin() == number
            found = journal.values(number)
            assert Journal(study).values(number) == found  # taken up by another task
            journal.complete(number, found["es.sigma"])
        proposed.append([trial.found for trial in journals[0].trials()])
    assert proposed[0] == proposed[1]
    assert len({one["es.sigma"] for one in proposed[0]}) == 4


@pytest.mark.parametrize("damage", [b"{\x00\x00\n", b"\xff\xfe\n"])
def test_a_damaged_line_is_told_with_the_runs_that_remain(tmp_path, capsys, damage):
    study = made(tmp_path)
    Journal(study, fresh=True).begin()
    lines = (study.path / JOURNAL).read_bytes().splitlines(keepends=True)
    (study.path / JOURNAL).write_bytes(b"".join([*lines[:1], damage, *lines[1:]]))
    for action in ("show", "run"):
        assert search.main([action, str(study.path)]) == 65
        told = capsys.readouterr().err
        assert f"{study.path}/trial-*" in told
        assert told.count("\n") == 1


def test_what_made_trials_good_is_told_and_why_others_failed(tmp_path, capsys):
    study = made(tmp_path, "trials = 30", tail="[sampler]\nkind = 'random'")
    journal = Journal(study, fresh=True)
    for number in range(21):
        found = journal.values(journal.begin())
        journal.complete(number, -abs(found["es.sigma"] - 0.1)) if number < 20 else journal.fail(
            number, "it was late"
        )
    assert search.main(["show", str(study.path), "--top", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{study.path}: 21 of 30 trials begun: 20 complete, 1 failed"
    values = [float(line.split()[2]) for line in lines[3:23]]
    assert values == sorted(values, reverse=True)
    assert lines[24] == "trial 20 failed: it was late"
    assert lines[26].startswith("importance: es.sigma 100 %, es.population_size 0 %")


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


@pytest.mark.parametrize("where", ["help", "page"])
def test_the_studies_of_help_and_page_can_be_run(tmp_path, monkeypatch, where):
    help_text, page = (
        textwrap.dedent(search.__doc__.partition("\n")[2]),
        (ROOT / "docs/how-to/search.md").read_text(encoding="utf-8"),
    )
    text = page.partition("```toml\n")[2].partition("```")[0]
    if where == "help":
        text = re.search(r"^    trials = .*?\n\n", help_text, re.DOTALL | re.MULTILINE)[0]
    (tmp_path / "study.toml").write_text(textwrap.dedent(text))
    monkeypatch.chdir(ROOT)
    assert checked(read(tmp_path / "study.toml"), print)


def test_the_extra_has_what_the_sentence_says():
    assert "\nsearch =" in (ROOT / "setup.cfg").read_text()
