"""Settings that were renamed: files have their former names for ever, a command line does not."""
# tests/record/test_old_runs.py has runs that were begun by them.

import zlib
from types import SimpleNamespace

import pytest
from small_studies import SETTINGS, made
from words import refused, written

from esac_mpi.analysis import groups
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import rows
from esac_mpi.analysis.sensitivity import setting_of
from esac_mpi.config import NAMES, load, read_toml
from esac_mpi.config.renamed import FORMER, RENAMED, WORDS, first_names, renew_name, renew_value
from esac_mpi.config.resolution import resolve_given
from esac_mpi.studies.experiments import design
from esac_mpi.studies.search.journal import Journal
from esac_mpi.studies.search.study import what_counts

THEN = """
[esac]
reading = "mended"
adoption = "tested"
adoption_episodes = 4
adoption_interval = 2
adoption_wins = 3
adoption_moments = "reset"
replayed = "winners"
replayed_members = 3
start_states = "slot"
[erl]
reading = "repo"
"""
NOW = {
    **{"reading": "preset", "adoption": "transfer", "replayed": "resimulated"},
    **{"mended": "corrected", '"repo"': '"reference-code"', "slot": "pair"},
}


def by_present_names(text):
    for before, now in NOW.items():
        text = text.replace(before, now)
    return text


def test_each_former_name_is_no_field_and_each_present_one_is():
    assert not RENAMED.keys() & {*NAMES}
    assert {*RENAMED.values(), *WORDS} <= {*NAMES}
    for name, words in WORDS.items():
        for before, word in words.items():
            assert renew_value(name, before) == word
            assert first_names(name, word) == (FORMER.get(name, name), before)
    assert renew_name("esac.sigma") == "esac.sigma"
    assert renew_value("esac.sampling", "repo") == "repo"


def test_a_file_of_former_names_means_the_same(tmp_path):
    then = written(tmp_path / "then.toml", THEN)
    now = written(tmp_path / "now.toml", by_present_names(THEN))
    assert read_toml(then) == read_toml(now)
    assert load([then]) == load([now])
    dotted = 'esac.reading = "paper"\nesac.adoption_wins = 1\n'
    found = read_toml(written(tmp_path / "dotted.toml", dotted))
    assert found == {"esac.preset": "paper", "esac.transfer_wins": 1}
    mixed = 'esac.reading = "corrected"\nerl.preset = "repo"\nesac.sampling = "repo"\n'
    renewed = {"esac.preset": "corrected", "erl.preset": "reference-code", "esac.sampling": "repo"}
    assert read_toml(written(tmp_path / "mixed.toml", mixed)) == renewed
    text = 'said = ["esac.adoption", "esac.sigma", "esac.reading"]\n[esac]\nadoption = "off"\n'
    found = read_toml(written(tmp_path / "said.toml", text))
    assert found["said"] == ("esac.sigma", "esac.preset", "esac.transfer")


@pytest.mark.parametrize("before", [*RENAMED])
def test_a_file_with_both_names_is_refused(tmp_path, before):
    path = written(tmp_path / "both.toml", f"{RENAMED[before]} = 2\n{before} = 2\n")
    said = f"{path}: {before} is the former name of {RENAMED[before]}; leave one out"
    assert refused(path) == said


@pytest.mark.parametrize(
    ("words", "was", "now"),
    [
        ("--esac.reading mended", "esac.reading = 'mended'", "esac.preset = 'corrected'"),
        ("--esac.preset mended", "esac.preset = 'mended'", "esac.preset = 'corrected'"),
        ("--esac.reading", "esac.reading = ''", "esac.preset = ''"),
        ("--erl.reading=repo", "erl.reading = 'repo'", "erl.preset = 'reference-code'"),
        ("--esac.adoption-wins 3", "esac.adoption_wins = '3'", "esac.transfer_wins = '3'"),
        ("--es.start_states slot", "es.start_states = 'slot'", "es.start_states = 'pair'"),
    ],
)
def test_a_command_line_of_former_names_is_told_the_present_ones(words, was, now):
    assert refused(*words.split()) == f"command line: {was}: is called {now} now"


def test_a_setting_that_is_gone_says_what_there_is():
    gone = "display.style is no setting any more: a run prints"
    assert gone in refused("--display.style", "plain")


def test_settings_of_python_are_told_the_present_names():
    said = "esac.reading = 'mended': is called esac.preset = 'corrected' now"
    assert refused(None, {"esac.reading": "mended"}, by=resolve_given).endswith(said)


def test_a_search_of_former_names_means_the_same(tmp_path, call):
    settings = SETTINGS.replace('algorithm = "es"', 'algorithm = "esac"')
    settings += "esac.workers = 2\nesac.update_cost = 1.0\nesac.population_size = 8\n"
    space = 'esac.adoption_wins = {low = 1, high = 30}\nesac.replayed = ["winners", "better"]\n'
    space += 'esac.start_states = ["slot", "member"]\n'
    now = by_present_names(space)
    study = made(tmp_path, "trials = 1", settings, now)
    assert what_counts(made(tmp_path, "trials = 1", settings, space)) == what_counts(study)
    journal = Journal(study, fresh=True)
    found = journal.values(journal.begin())
    file = study.path / "journal.log"  # as a former version wrote it
    text = file.read_text().replace('\\"pair\\"', '\\"slot\\"')
    for name in ("esac.transfer_wins", "esac.resimulated"):
        text = text.replace(f'"{name}"', f'"{FORMER[name]}"')
    file.write_text(text)
    assert Journal(study).trials()[0].found == found
    call("search show", study.path)
    with pytest.raises(Unusable, match=r"esac.replayed: esac.resimulated is there, too"):
        made(tmp_path, "trials = 1", settings, now + 'esac.replayed = ["winners", "better"]\n')


def test_an_experiment_of_former_names_means_the_same(tmp_path):
    text = """
title = "a toy"
claim = "none"
[settings]
algorithm = "esac"
esac.reading = "mended"
esac.replayed = "sample"
[tasks.cyclic]
config = "cyclic-mdp"
[variants.ESAC]
esac.adoption = "tested"
[sweep]
field = "{field}"
values = [1, 2]
[[products]]
tool = "plot"
arguments = ["{{runs}}", "--what", "sensitivity", "--field", "{field}"]
out = "a.png"
[budgets.smoke]
for_variant.ESAC.esac.adoption_wins = 2
"""
    text = text.format(field="esac.replayed_members")
    then = written(tmp_path / "then.toml", text)
    now = written(tmp_path / "now.toml", by_present_names(text))
    one, other = (design.experiment(path) for path in (then, now))
    assert one.products == other.products
    then, now = (design.runs(each, "smoke", tmp_path) for each in (one, other))
    assert [each.config for each in then] == [each.config for each in now]
    assert [each.line for each in then] == [each.line for each in now]
    assert "replayed_members1" in then[0].run_dir.name  # where it was begun


def test_a_command_of_analysis_is_told_the_present_name():
    run = SimpleNamespace(config=load(["--algorithm", "esac"])[0], start=None, provenance={})
    for field in ("esac.replayed_members", "replayed_members"):
        with pytest.raises(Unusable) as caught:
            setting_of(run, field)
        said = f"--field {field}: is called --field esac.resimulated_members now"
        assert str(caught.value) == said


def test_rows_count_settings_by_their_first_names(monkeypatch):
    """The records of docs/results and of studies have such digests."""
    mine = {"esac.preset": "corrected", "esac.transfer": "means", "esac.sigma": 0.5}
    monkeypatch.setattr(groups, "settings", lambda run: mine)
    then = [("esac.adoption", "means"), ("esac.reading", "mended"), ("esac.sigma", 0.5)]
    assert rows.digest(None) == f"{zlib.crc32(repr((then, None)).encode()):08x}"


def test_rows_of_the_same_settings_have_one_digest(monkeypatch):
    """Else old rows could not be taken with new ones of the same, and could with others."""
    then = {"es.start_states": "member", "esac.start_states": "member"}
    then |= {"esac.transfer_at_once": False, "esac.sigma": 0.5}
    found = []
    for mine in ({"esac.sigma": 0.5}, then, {**then, "esac.start_states": "pair"}):
        monkeypatch.setattr(groups, "settings", lambda run, mine=mine: mine)
        found.append(rows.digest(None))
    assert found[0] == found[1] != found[2]
