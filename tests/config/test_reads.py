"""What an algorithm does not read is refused or named; what is declared of that is true."""

import re
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from conftest import ROOT
from warm_starts import OFF_POLICY, options
from words import written

from esac_mpi import config
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import NAMES, Config, amend, load, reads
from esac_mpi.config.bounds import Bound
from esac_mpi.record import Run, read
from esac_mpi.studies.experiments import design
from esac_mpi.training import loop

pytestmark = pytest.mark.slow

QUICKSTART = ROOT / "configs/quickstart.toml"
SHIPPED = [
    QUICKSTART,
    *sorted(path for name in ("esac", "aes_rl", "tuned")
            for path in (ROOT / "configs" / name).glob("*.toml")),
]  # fmt: skip
ALONE = {f"{table}.{name}": value for table in ("sac", "td3") for name, value in OFF_POLICY.items()}
SMALL = {  # beside the small runs of warm_starts.py
    **ALONE, "td3.episodes_per_generation": 1, "ddpg.episodes_per_generation": 1,
    "budget.generations": 3, "budget.nominal_steps": 0, "display.every_seconds": 1e9,
    "esac.p_sac_decay": 2.0, "esac.noise_table_size": 1000, "es.noise_table_size": 1000,
}  # fmt: skip
CASES = [  # together they leave each field unread for each reason that there is
    {"algorithm": "es"},
    {"algorithm": "es", "es.noise": "table", "es.sampling": "onesided",
     "es.observation_normalisation": True},
    {"algorithm": "esac", "esac.phase_timing": "virtual", "esac.resimulated": "sample",
     "esac.transfer": "tested"},
    {"algorithm": "esac", "esac.noise": "table", "esac.sampling": "onesided",
     "esac.observation_normalisation": True},
    {"algorithm": "esac", "esac.p_sac_annealed": False, "esac.amt_clip": 0.0},
    {"algorithm": "esac", "esac.transfer": "tested", "esac.sigma_rule": "one_fifth",
     "esac.transfer_wins": 1, "esac.population_size": 8},
    {"algorithm": "esac", "esac.sac_phases": False, "esac.sac_copies": 0}, {"algorithm": "sac"},
    {"algorithm": "esac", "esac.winner_fraction": 0.0}, {"algorithm": "td3"},
    {"algorithm": "td3", "td3.episodes_on": "ranks", "td3.policy_noise": 0.0},
    {"algorithm": "ddpg"}, {"algorithm": "ddpg", "ddpg.episodes_on": "ranks"},
    {"algorithm": "ppo"}, {"algorithm": "erl"},
    {"algorithm": "erl", "erl.learner": "td3", "erl.super_probability": 0.0},
    {"algorithm": "erl", "erl.mutation_probability": 0.0},
    {"algorithm": "erl", "erl.mutated_fraction": 0.0},
    {"algorithm": "perl", "erl.mutation": "proximal", "erl.mutation_probability": 0.0},
    {"algorithm": "perl", "erl.mutation": "proximal", "erl.learner": "sac"},
    {"algorithm": "cem", "cem.importance_mixing": True},
    {"algorithm": "cem_rl", "cem_rl.importance_mixing": True, "cem_rl.policy_noise": 0.0},
    {"algorithm": "cem_rl", "cem_rl.critic": "parallel", "cem_rl.sampling": "onesided"},
    {"algorithm": "aes_rl", "aes_rl.mean_rule": "sigmoid", "aes_rl.sigmoid_signless": True},
    {"algorithm": "aes_rl", "aes_rl.mean_rule": "full_move", "aes_rl.variance_rule": "success"},
    {"algorithm": "aes_rl", "aes_rl.mean_rule": "rank_oldest", "aes_rl.ring_size": 4,
     "aes_rl.order": "arrival", "aes_rl.policy_noise": 0.0, "aes_rl.rl_gain": 0.0,
     "aes_rl.damp_tau": 1.0},
    {"algorithm": "pderl", "erl.crossover": "distillation", "erl.mutation": "proximal",
     "erl.parent_selection": "mixed"},
    {"algorithm": "sac", "policy.hidden": ()}, {"algorithm": "sac", "sac.updates_per_step": 0.0},
    {"algorithm": "td3", "td3.updates_per_step": 0.0},
    {"algorithm": "ddpg", "ddpg.updates_per_step": 0.0},
    {"algorithm": "erl", "erl.updates_per_step": 0.0}, {"algorithm": "cem", "cem.damp_tau": 1.0},
    {"algorithm": "cem", "cem.damp_tau": 0.0}, {"algorithm": "cem_rl", "cem_rl.damp_tau": 0.0},
    {"algorithm": "cem_rl", "cem_rl.damp_tau": 1.0, "cem_rl.trained_fraction": 0.0},
    {"algorithm": "aes_rl", "aes_rl.update_cost": 0.0},
]  # fmt: skip


def small(case) -> Config:
    """Return the settings of a small run of a case."""
    found = load([str(word) for word in options(case["algorithm"])])[0]
    return amend(Config(), dict(config.flatten(found)) | SMALL | case)


def other(name, value):
    """Return another value of a field's type."""
    hint = config.hint(name)
    if isinstance(value, tuple):
        return tuple(entry + 1 for entry in value)
    if value in ("survival", "auto") and hint is not str and get_origin(hint) is not Literal:
        return False if bool in get_args(hint) else 3
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 or 0.5
    return value + ("x" if isinstance(value, str) else 1)


def possible(hint) -> set:
    """List the values of a switch, of words, or of a switch with words in its place."""
    if hint is bool:
        return {True, False}
    parts = get_args(hint)
    return {*parts} if get_origin(hint) is Literal else set().union(*map(possible, parts))


def test_the_declarations_name_what_exists():
    assert {*config.ALGORITHMS} == ALGORITHMS.keys()
    tables = {name.rpartition(".")[0] for name in NAMES} - {""}
    declared = [reads.declared_reads(algorithm) for algorithm in config.ALGORITHMS]
    own_tables = map(config.table_of, config.ALGORITHMS)
    borrowed = chain.from_iterable(own.tables for own in declared)
    assert {*reads.COMMON, *own_tables, *borrowed} == tables
    assert {name for own in declared for name in (*own.also, *own.without)} <= {*NAMES}
    for own in declared:
        assert {*own.only_if} <= {*own.tables, *NAMES}
    values = dict(config.flatten(Config()))
    for condition in chain.from_iterable(map(reads.conditions, NAMES)):
        for name, allowed in condition.items():
            if isinstance(allowed, Bound):
                assert not {type(values[name]), *get_args(config.hint(name))} & {bool, str}
                continue
            assert {*allowed} < possible(config.hint(name)), name
            types = {type(value) for value in possible(config.hint(name))}
            assert {type(value) for value in allowed} in (types, {type(values[name])})


def test_every_declared_condition_is_unmet_in_one_of_the_cases():
    found = [reads.find_unread(small(case), NAMES) for case in CASES]
    conditional = {name for name in NAMES if reads.conditions(name)}
    assert len(conditional) == 123
    for name in conditional:
        reasons = [names[name] for names in found if name in names]
        assert any(why.startswith("read only") for why in reasons), name


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case.values())))
def test_what_is_declared_unread_changes_no_bit(case, world, tmp_path):
    base = small(case)
    idle = reads.find_unread(base, NAMES)
    values = dict(config.flatten(base))
    changed = amend(base, {name: other(name, values[name]) for name in idle})
    assert {name for name, now in config.flatten(changed) if now != values[name]} == {*idle}
    assert config.differences(base, changed) == {}
    for name, chosen in (("base", base), ("changed", changed)):
        assert loop.train(amend(chosen, {"run_dir": str(tmp_path / name)}), False, world, []) == 0
    for file in ("checkpoint.h5", "metrics.h5"):
        one, two = (read(tmp_path / name / file)[0] for name in ("base", "changed"))
        timings = [name for name in one if name.startswith("timing/")]
        np.testing.assert_equal(two, one | {name: two[name] for name in timings})
    hashes = [Run.open(tmp_path / name).provenance["state_sha256"] for name in ("base", "changed")]
    assert hashes[0] == hashes[1]


def told(*argv):
    warned = []
    return load([*map(str, argv)], warned.append)[0], warned


def test_es_takes_from_esac_what_its_own_table_leaves_open(tmp_path):
    found, warned = told(QUICKSTART, "--algorithm", "es")
    assert (found.es.population_size, found.es.sigma, found.es.lr_es) == (10, 0.02, 0.01)
    assert warned[0].startswith(f"{QUICKSTART}: this run does not read esac.workers, ")
    text = 'algorithm = "es"\n[esac]\nsigma = 0.1\nlr_es = 0.2\n[es]\nsigma = 0.3\n'
    found, warned = told(written(tmp_path / "x.toml", text), "--es.lr_es", "0.4")
    assert (found.es.sigma, found.es.lr_es) == (0.3, 0.4)
    assert warned == [f"{tmp_path}/x.toml: this run does not read esac.sigma, esac.lr_es"]
    text = 'algorithm = "es"\n[esac]\npreset = "reference-code"\n'
    es = told(written(tmp_path / "y.toml", text))[0].es
    assert (es.population_size, es.sampling) == (10, "repo")


def test_sac_takes_from_esac_its_standardisation(tmp_path):
    path = written(tmp_path / "x.toml", "[esac]\nobservation_normalisation = false\n")
    found, warned = told(path, "--algorithm=sac")
    assert (found.sac.observation_normalisation, warned) == (False, [])
    resolved = written(tmp_path / "esac.toml", config.to_toml(load([path])[0]))
    assert not told(resolved, "--algorithm=sac")[0].sac.observation_normalisation
    named = told(path, "--algorithm=sac", "--sac.observation_normalisation=true")[0]
    assert named.sac.observation_normalisation
    assert not told(path, "--algorithm=td3")[0].td3.observation_normalisation


def test_a_resolved_file_of_esac_gives_es_the_same_settings(tmp_path):
    def of(chosen):
        return written(tmp_path / "x.toml", config.to_toml(chosen))

    found, _ = told(of(load([str(QUICKSTART)])[0]), "--algorithm=es")
    assert (found.es.population_size, found.es.sigma) == (10, 0.02)
    # it was said when the run began
    assert told(of(found)) == (amend(found, {"run_dir": ""}), [])
    # es's default, and meant
    assert told(of(amend(found, {"es.sigma": 0.005})))[0].es.sigma == 0.005


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name} {path.stem}")
def test_a_shipped_file_sets_nothing_in_vain(path):
    assert told(path)[1] == []


@pytest.mark.parametrize("name", design.names())
def test_es_is_compared_at_the_settings_of_esac(name):
    """But for the population's size where both fill their ranks, as in aggregate."""
    found = design.experiment(name)
    filled = {"population_size"} if name == "aggregate" else set()
    for budget in found.budgets:
        planned = [run for run in design.runs(found, budget, Path()) if run.seed == 0]
        for run in (run for run in planned if run.config.algorithm == "esac"):
            own = found.variants[run.variant]
            meant = {*own, *config.PRESETS[own.get("esac.preset", "default")]}
            shared = {
                f.name for f in fields(config.Evolution) if f"esac.{f.name}" not in meant
            } - filled
            for other in planned:
                beside = (other.task, other.value) == (run.task, run.value)
                if beside and other.config.algorithm == "es":
                    idle = reads.find_unread(other.config, [f"es.{n}" for n in shared])
                    for n in shared - {name.removeprefix("es.") for name in idle}:
                        es, esac = getattr(other.config.es, n), getattr(run.config.esac, n)
                        assert es == esac, (n, run.task, run.variant)


@pytest.mark.parametrize("algorithm", ["td3", "sac", "pderl"])
def test_a_half_takes_nothing_from_a_table_that_no_run_has_read(tmp_path, algorithm):
    """Beside a run's own file of TD3 --algorithm es had what is ESAC's default."""
    own = written(tmp_path / "own.toml", config.to_toml(load(["--algorithm", algorithm])[0]))
    for half in ("es", "sac"):
        assert load([own, "--algorithm", half])[0].own == load(["--algorithm", half])[0].own


@pytest.mark.parametrize("algorithm", config.ALGORITHMS)
def test_help_of_an_algorithm_explains_what_it_reads(capsys, monkeypatch, algorithm):
    monkeypatch.setenv("COLUMNS", "1" if algorithm == "es" else "80")
    monkeypatch.setattr(config.Task, "__doc__", None)  # as by python -OO
    with pytest.raises(SystemExit) as end:
        load(["--algorithm", algorithm, "--help"])
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "[task]\n" in out
    said = dict(re.findall(r"^  --([\w.]+) \S.*\n((?: {6}.+\n)+)", out, re.MULTILINE))
    assert said.keys() == {name for name in NAMES if reads.reads(algorithm, name)}
    assert all(len(text.split("(default:")[0].split()) > 1 for text in said.values()), said
    pages = re.findall(r"docs/[^\s)#;]*", out)  # whole, as a reader copies them
    assert pages
    assert all((ROOT / page.rstrip(".")).is_file() for page in pages), pages


@pytest.mark.parametrize("words", [f"{ROOT}/configs/esac/hopper.toml", "--esac.preset corrected"])
def test_help_has_the_values_of_a_preset_as_defaults(capsys, words):
    with pytest.raises(SystemExit):
        load([*words.split(), "--algorithm", "esac", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--policy.hidden int ...|auto Units" in told
    assert "512 512; C: 256 256. (default: 512 512)" in told
