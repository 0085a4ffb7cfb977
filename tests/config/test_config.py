"""Configuration: the paper's values, presets, files, the command line, and what is wrong."""

import math
import re
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import numpy as np
import pytest
from words import refused, written

from esac_mpi import config
from esac_mpi.config import NAMES, Config, ConfigError, amend, check, load, marks
from esac_mpi.config.bounds import INT64, NON_NEGATIVE, POSITIVE, Bound
from esac_mpi.config.fields import value_of
from esac_mpi.config.genetic import FORMS
from esac_mpi.config.presets import ERL_ACTOR, ERL_PRESETS
from esac_mpi.config.resolution import change, settings
from esac_mpi.operators import evolution

TABLES = [f.name for f in fields(Config) if is_dataclass(f.type)]


def loaded(words):
    return load(words.split())[0]


def of(table, *names):
    return tuple(getattr(table, name) for name in names)


def counts(esac):
    return config.slots(esac), config.members(esac), config.winners(esac), config.child_slots(esac)


def test_no_argument_is_the_papers_main_task_with_small_networks():
    c, fresh = load([])
    assert (c.algorithm, c.task.id, c.policy.hidden) == ("esac", "HalfCheetah-v5", "auto")
    found = of(c.esac, "population_size", "sigma", "lr_es", "winner_fraction")
    assert found == ("auto", 0.02, 0.01, 0.4)
    assert of(c.sac, "gamma", "lr_sac", "temperature") == (0.99, "auto", 0.05)
    assert (c.budget.nominal_steps, fresh) == (10**6, False)


@pytest.mark.parametrize(
    ("named", "settings", "limits"),
    [
        ("", {}, (0, 0, 1_000_000)),
        ("--budget.env_steps 7", {}, (0, 7, 0)),
        ("--budget.env_steps 7", {"budget.nominal_steps": 5}, (0, 7, 5)),  # somebody's own
        ("--budget.env_steps 7", {"budget.generations": 3}, (3, 7, 1_000_000)),
        ("--budget.env_steps 7 --budget.nominal_steps 9", {}, (0, 7, 9)),
        ("--budget.env_steps 0", {}, (0, 0, 1_000_000)),
    ],
)
def test_a_limit_beside_a_runs_file_turns_its_default_off(tmp_path, named, settings, limits):
    path = written(tmp_path / "config.toml", config.to_toml(amend(Config(), settings)))
    budget = load([path, *named.split()])[0].budget
    assert of(budget, "generations", "env_steps", "nominal_steps") == limits


def test_naming_a_limit_turns_the_default_budget_off(tmp_path):
    assert loaded("--budget.generations 5").budget == config.Budget(5, 0, 0)
    path = written(tmp_path / "x.toml", "[budget]\nenv_steps = 9\n")
    assert load([path])[0].budget == config.Budget(0, 9, 0)
    kept = change(Config(), {"budget.env_steps": 7}, "")  # a Config is taken whole
    assert kept.budget == config.Budget(0, 7, 1_000_000)


def test_slots_of_the_papers_population():
    papers = loaded("--esac.preset corrected")
    assert counts(papers.esac) == (25, 50, 20, 10)
    assert counts(amend(papers, {"esac.sampling": "onesided"}).esac) == (50, 50, 20, 20)
    assert counts(loaded("--esac.preset reference-code").esac) == (10, 20, 4, 0)


def test_command_line_goes_before_file_and_file_before_preset(tmp_path):
    text = 'seed = 3\n[esac]\nreading = "paper"\nwinner_pull = 0.2\nsigma = 0.5\n'
    c, _ = load(
        [written(tmp_path / "x.toml", text), "--esac.sigma", "0.25", "--policy.hidden", "8", "16"]
    )
    assert (c.seed, c.esac.winner_pull, c.esac.sigma, c.policy.hidden) == (3, 0.2, 0.25, (8, 16))
    assert (c.esac.gate, c.esac.sampling, c.sac.value_network) == ("normal", "onesided", True)


def test_a_config_is_taken_as_it_is():
    td3 = change(Config(), {"algorithm": "td3"}, "")
    assert (td3, td3.said) == (amend(Config(), {"algorithm": "td3"}), None)
    was = loaded("--esac.preset corrected --esac.winner_pull 0.3")
    same = change(was, {"esac.preset": "corrected", "seed": 3}, "")
    assert same == amend(was, {"seed": 3})
    assert change(was, {"esac.preset": "default"}, "") == loaded("--esac.winner_pull 0.3")


@pytest.mark.parametrize("preset", ["paper", "reference-code"])
def test_es_and_sac_follow_another_preset_beside_a_whole_file(preset):
    was, straight = (loaded(f"--algorithm es {w}") for w in ("", f"--esac.preset {preset}"))
    assert was.es.sampling != straight.es.sampling
    whole = {**dict(config.flatten(straight)), "said": straight.said}
    found = config.resolve_all(whole, {"esac.preset": "corrected"}, "", "", pytest.fail)
    assert found.es == loaded("--algorithm es --esac.preset corrected").es


def test_a_preset_that_would_set_nothing_of_a_config_is_refused():
    paper = {"esac.preset": "paper"}
    for has, named in ((amend(Config(), paper), {}), (Config(), paper)):
        told = refused(has, named, "settings", by=change)
        assert re.match(r"settings: esac.preset = paper: .* give no Config", told)


@pytest.mark.parametrize("words", [["--from", ""], ["--run-dir="], ["--run-dir", ""]])
def test_a_place_without_a_name_is_refused(words, tmp_path):
    assert re.search(r"is empty; name .*, or leave it out", refused(*words))
    empty = refused(Config(), {"start_from": ""}, "settings", by=change)
    assert empty.startswith("settings: start_from is empty")
    # but a file's source is taken away by an empty name
    path = written(tmp_path / "x.toml", 'start_from = "runs/a"\n')
    assert load([path, "--from", ""])[0].start_from == ""


@pytest.mark.parametrize("words", ["population-size 8", "population_size 8", "population-size=8"])
def test_dashes_underscores_and_equals_signs_name_the_same_field(words):
    assert loaded(f"--esac.{words}").esac.population_size == 8


@pytest.mark.parametrize("shaping", get_args(get_type_hints(config.Evolution)["fitness_shaping"]))
@pytest.mark.parametrize(
    ("sampling", "n"), [("onesided", 1), ("onesided", 2), ("mirrored", 2), ("repo", 1)]
)
def test_the_smallest_accepted_populations_have_a_gradient(sampling, n, shaping):
    own = {"population_size": n, "sampling": sampling, "fitness_shaping": shaping}
    returns = np.arange(1.0, config.members(config.ES(**own)) + 1)
    shaped = evolution.shaped(shaping, returns, returns)
    weights = evolution.slot_weights(shaped, sampling != "onesided")
    values = {f"es.{name}": value for name, value in own.items()}
    try:
        check(amend(Config(), {"algorithm": "es", **values}))
        assert weights.any()
    except ConfigError:
        assert not weights.any()


def test_only_switches_are_switched_and_texts_stay_as_they_are():
    c = loaded(
        "--run-dir true --task.id=false --esac.p_sac_annealed false --esac.sac-copy-noise=false"
    )
    assert (c.run_dir, c.task.id) == ("true", "false")
    assert of(c.esac, "p_sac_annealed", "sac_copy_noise") == (False, False)


def test_every_preset_sets_fields_to_allowed_values():
    for preset in (*config.PRESETS.values(), *ERL_PRESETS.values(), ERL_ACTOR):
        check(amend(Config(), config.from_table(config.to_plain(preset), "preset")))


def test_presets_but_the_default_transfer_by_the_paper_alone():
    names = ("phase_timing", "p_sac_annealed", "resimulated", "transfer", "transfer_wins")
    found = {each: of(loaded(f"--esac.preset {each}").esac, *names) for each in config.PRESETS}
    ours = ("continuous", False, "earning", "tested", 3)
    theirs = ("interval", True, "none", "off", 1)
    assert found == {**dict.fromkeys(config.PRESETS, theirs), "default": ours}
    assert load([])[0] == loaded("--esac.preset default")
    corrected = config.differences(load([])[0], loaded("--esac.preset corrected"))
    assert corrected.keys() == {"esac.preset", *config.PRESETS["corrected"]}


def test_erl_alone_explores_beyond_bounds_as_its_code_does():
    repo = {name: loaded(f"--algorithm {name} --erl.preset reference-code").erl for name in FORMS}
    found = {name: of(erl, "exploration_clip", "injection") for name, erl in repo.items()}
    others = dict.fromkeys(("perl", "derl", "pderl"), (True, "worst_or_next"))
    assert found == {"erl": (False, "worst"), **others}


SIZES = tuple[int, ...]
NUMBERS = [
    name
    for name in NAMES
    if {config.hint(name)} & {int, float} or {*get_args(config.hint(name))[:1]} & {int, SIZES}
]
OUTSIDE = (0, -1, math.inf, math.nan, 2**63, 2 * 10**12, 1001, 1.5, 0.5)
OUTSIDE += ("none of these", "", {"a": None}, {"a": (1, 2)}, {"": 1})


def test_every_number_has_a_least_value_and_fits_64_bits():
    assert {"policy.hidden", "seed", "max_hours", "esac.sigma"} < {*NUMBERS}
    for name in NUMBERS:
        assert (POSITIVE in marks(name)) != (NON_NEGATIVE in marks(name)), name
        assert (INT64 in marks(name)) == (config.hint(name) is not float), name


def is_outside(bound, value):
    try:
        return bool(bound.problem(value))
    except TypeError:  # of another type
        return False


@pytest.mark.parametrize(
    "name", [name for name in NAMES if any(isinstance(mark, Bound) for mark in marks(name))]
)
def test_every_bound_that_a_field_declares_is_enforced(name):
    table = name.partition(".")[0]
    runs = load(["--algorithm", table if table in config.ALGORITHMS else "esac"])[0]
    check(runs)
    for bound in (mark for mark in marks(name) if isinstance(mark, Bound)):
        values = [value for value in OUTSIDE if is_outside(bound, value)]
        assert values
        for value in values:
            many = isinstance(value_of(runs, name), tuple)
            told = refused(amend(runs, {name: (8, value) if many else value}), by=check)
            assert told.startswith(f"{name} = {value!r}: ")


def test_nothing_is_asked_of_what_a_run_does_not_read():
    check(amend(Config(), {"esac.learner_lag": 6, "esac.phase_timing": "virtual"}))
    for values in ({"es.noise_rank": 1001}, {"es.sigma": -1.0}, {"td3.batch_size": 10**7}):
        check(amend(Config(), values))
        algorithm = min(values).partition(".")[0]
        assert min(values) in refused(amend(Config(), {"algorithm": algorithm, **values}), by=check)


def test_a_table_without_declared_reads_is_no_algorithm():
    assert [*config.Display().problems("display", Config())] == []
    declared = [name for name in TABLES if hasattr(getattr(Config(), name), "READS")]
    assert declared == [*dict.fromkeys(map(config.table_of, config.ALGORITHMS))]


def test_only_fields_that_decide_results_count_as_differences():
    values = {"budget.generations": 3, "run_dir": "x", "display.every_seconds": 9.0}
    new = amend(Config(), values | {"esac.sigma": 0.1})
    assert config.differences(Config(), new) == {"esac.sigma": (0.02, 0.1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[esac]\npopulation = 3",
         "x.toml: unknown key 'esac.population'; did you mean 'esac.population_size'?"),
        ("[esac]\npopulation_size = 3.5",
         "x.toml: esac.population_size = 3.5: expected an integer"),
        ("[esac]\nsigma = '3'", "x.toml: esac.sigma = '3': expected a number"),
        ("[policy]\nhidden = [64, 'a']", "expected integers: [64, 64]"),
        ("algorithm = 'trpo'", "expected 'esac' | 'es' | 'sac'"),
        ("es = 3", "x.toml: 'es' is a table of settings, which has no value of its own: "
         "name one of them, such as es.reward_shift"),
        ("'esac.sigma' = 0.1\n[esac]\nsigma = 0.2", "x.toml: esac.sigma is set twice"),
        ("'task.kwargs.a' = 1\ntask.kwargs.a = 1", "x.toml: task.kwargs.a is set twice"),
        ("title = 3", "x.toml: unknown key 'title'; --algorithm NAME --help lists them"),
        ("[esac\n", "not valid TOML"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_naming_file_and_key(tmp_path, text, message):
    assert message in refused(written(tmp_path / "x.toml", text))


# what a person said is kept beside what was resolved


def begun(tmp_path, *words):
    """Return the file of a run of these words, as its first start resolved it, and its settings."""
    run = amend(load([*words])[0], {"esac.population_size": 28, "esac.workers": 7})
    return written(tmp_path / "config.toml", config.to_toml(run)), run


SIGMA = ("--esac.sigma", "0.02", "--esac.winner_pull", "0.3")  # the one is the default


def test_a_runs_file_lists_what_was_said(tmp_path):
    path, run = begun(tmp_path, *SIGMA, "--run-dir", "x")
    assert run.said == ("esac.sigma", "esac.winner_pull")
    assert '\nsaid = ["esac.sigma", "esac.winner_pull"]\n' in (tmp_path / "config.toml").read_text()
    again = load([path])[0]
    assert again == amend(run, {"run_dir": ""})
    assert (again.said, again.esac.population_size) == (run.said, 28)
    assert load([path, "--esac.sigma_rule", "fixed", "--seed", "0"])[0] == again
    longer = load([path, "--budget.env_steps", "5"])[0]
    assert longer.said == ("budget.env_steps", *run.said)
    assert longer.esac == again.esac


def test_what_was_said_goes_before_another_preset(tmp_path):
    path, _ = begun(tmp_path, *SIGMA)
    corrected = load([path, "--esac.preset", "corrected"])[0]
    assert corrected == load([*SIGMA, "--esac.preset", "corrected"])[0]
    assert of(corrected.esac, "population_size", "sigma", "lr_es") == (50, 0.02, 0.005)
    td3 = load([path, "--algorithm", "td3"])[0]
    assert (td3.policy.hidden, td3.policy.linear) == ((512, 512), False)
    es = load([path, "--algorithm", "es"])[0].es
    assert (es.population_size, es.sigma) == (28, 0.02)  # ES is compared at ESAC's own


def test_a_file_that_lists_nothing_said_all_that_is_no_default(tmp_path):
    path, run = begun(tmp_path, *SIGMA)
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("said = ", "# "))
    found = load([path])[0]
    assert found == run
    assert found.said == ("esac.population_size", "esac.winner_pull", "esac.workers")


def test_what_was_said_is_no_setting(tmp_path):
    unknown = "unknown key 'said'"
    assert unknown in refused("--said", "seed")
    assert unknown in refused({"said": ["seed"]}, "settings", by=settings)
    assert f"x.toml: {unknown}" in refused(written(tmp_path / "x.toml", "said = 3\n"))
