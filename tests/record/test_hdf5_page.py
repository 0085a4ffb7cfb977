"""docs/reference/hdf5.toml, which hdf5.md shows, against files of every algorithm's runs."""

import json
import re
import sys
import tomllib
from dataclasses import fields
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from conftest import LEARNER, PHASES, POPULATION, ROOT, ROUTINE, STRATEGY, TASK, finish
from short_runs import make
from small_runs import OPTIONS as POPULATIONS
from words import of_table, words

from esac_mpi.analysis.clock import generation_ends, grid
from esac_mpi.config.genetic import FORMS
from esac_mpi.play.counters import Counters
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

DRAWN = ("cem", "cem_rl")
ALGORITHMS = ("esac", "es", "sac", "td3", "ddpg", "ppo", *FORMS, *DRAWN, "aes_rl")
VALUE = words("--sac.value_network true --sac.automatic_temperature true")
OFF_POLICY = {"steps_per_generation": 20, "start_steps": 20}
SMALL = {"batch_size": 16, "replay_capacity": 200}
AES = {"workers": 2, "start_steps": 20, "critic_chunk": 20}


OPTIONS = {  # which make every dataset there is
    "esac": [*POPULATION, *PHASES, *LEARNER, *VALUE, "--esac.transfer", "tested"],
    "es": [*STRATEGY, "--es.sigma_rule", "one_fifth"],
    "sac": [*LEARNER, "--sac.steps_per_generation", 20, *VALUE],
    **{name: of_table(name, **OFF_POLICY, **SMALL) for name in ("td3", "ddpg")},
    "ppo": of_table("ppo", steps_per_generation=20, batch_size=8, reward_normalisation="true"),
    **{name: POPULATIONS[name] for name in FORMS},
    **{name: [*POPULATIONS[name], f"--{name}.importance_mixing", "true"] for name in DRAWN},
    "aes_rl": of_table("aes_rl", **AES, **SMALL, arrivals_per_generation=6, mean_episodes=1),
}


NORMALISED = ("esac", "es", "sac", "td3", "ddpg", "ppo")
SCHEMA = tomllib.loads((ROOT / "docs/reference/hdf5.toml").read_text(encoding="utf-8"))
ATTRIBUTES = SCHEMA["attributes"]
PROGRAM = """
import json, sys
from esac_mpi import __main__, record
record.replays.SEGMENT, record.history.SEGMENT_BYTES = 40, 1  # so that short runs close segments
for argv in json.loads(sys.argv[1]):
    if code := __main__.main(argv):
        sys.exit(code)
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Runs of 7 generations, by algorithm."""
    path, lines = tmp_path_factory.mktemp("fresh"), []
    for name, options in OPTIONS.items():
        line = [*TASK, *ROUTINE, *options, "--algorithm", name, "--run-dir", path / name]
        seen = [f"--{name}.observation_normalisation", "true"] if name in NORMALISED else []
        lines.append([*map(str, line), *seen, "--budget.generations", "7"])
    finish([sys.executable, "-c", PROGRAM, json.dumps(lines)])
    return path


def test_the_policy_is_read_with_its_attributes(tmp_path, fresh):
    make(tmp_path)
    assert Run.open(tmp_path).policy is None
    arrays, attributes = Run.open(fresh / "sac").policy
    assert arrays["theta"].shape == (3 * 8 + 8 + 8 * 8 + 8 + (8 + 3) * 3 + 3,)
    assert (attributes["task"], attributes["policy"]) == ("CyclicMDP-v0", "sac")


class Entry(NamedTuple):
    """A dataset as the schema has it."""

    dtype: str
    shape: tuple[str, ...]
    algorithms: frozenset[str]


def entry(row):
    dtype, shape = re.fullmatch(r"(\w+) \[(.*)\]", row[0]).groups()
    named = row[2].replace("all", " ".join(ALGORITHMS)).replace("genetic", " ".join(FORMS))
    return Entry(dtype, tuple(filter(None, shape.split(", "))), frozenset(named.split()))


def group(section, name):
    """Return {group/dataset: Entry} of a section of the schema."""
    return {f"{name}{dataset}": entry(row) for dataset, row in SCHEMA[section].items()}


def described():
    """Return {file: {dataset: Entry}}, with those that follow from others."""
    everywhere = frozenset(ALGORITHMS)
    metrics = group("metrics", "metrics/")
    history = metrics | group("timing", "timing/")
    final = {
        name.replace("metrics", "final"): row._replace(shape=row.shape[1:])
        for name, row in metrics.items()
        if re.search("/(generation|env_steps_evaluation|best_return|evaluation_.*)$", name)
    }
    counters = {field.name for field in fields(Counters)}
    assert {f"metrics/{name}" for name in counters} <= metrics.keys()
    state = group("state", "state/")
    state |= {f"state/counters.{name}": Entry("int64", (), everywhere) for name in counters}
    learner = group("learner", "learner/")
    for name, row in group("learner", "learner/").items():
        if name.endswith("_values"):
            optimiser = name.removesuffix("values")
            learner |= {f"{optimiser}moment{moment}": row for moment in (1, 2)}
            learner[f"{optimiser}steps"] = Entry("int64", (), row.algorithms)
    return {
        "metrics.h5": {**history, **final},
        "checkpoint.h5": {**history, **state, **learner, **group("replay_tail", "replay_tail/")},
        "replay/segment-*.h5": group("replay_tail", ""),
        "history/segment-*.h5": history,
        "policy.h5": group("policy.h5", ""),
    }


def kind(value):
    """Return the type of an attribute as the schema has it."""
    if isinstance(value, str):
        return "string"
    return f"{value.dtype} array" if value.ndim else str(value.dtype)


class Found(NamedTuple):
    """A file of a fresh run; name: as the schema has it."""

    algorithm: str
    name: str
    datasets: dict[str, tuple[str, tuple[int, ...]]]
    attributes: dict[str, str]


@pytest.fixture(scope="module")
def files(fresh):
    found = []
    for file in sorted(fresh.rglob("*.h5")):
        name = file.name.replace("_prev", "")
        if "segment" in name:
            name = f"{file.parent.name}/segment-*.h5"
        datasets = {}

        def collect(name, node, datasets=datasets):
            if isinstance(node, h5py.Dataset):
                text = h5py.check_string_dtype(node.dtype)
                datasets[name] = "string" if text else str(node.dtype), node.shape

        with h5py.File(file, "r", locking=False) as opened:
            opened.visititems(collect)
            attributes = {name: kind(value) for name, value in opened.attrs.items()}
        found.append(Found(file.relative_to(fresh).parts[0], name, datasets, attributes))
    return found


def test_the_schema_has_every_dataset_as_it_is_in_the_files(files):
    found = {}
    for algorithm, file, datasets, _ in files:
        for name, (dtype, shape) in datasets.items():
            kinds = found.setdefault(file, {}).setdefault(name.removeprefix("tail/"), {})
            kinds.setdefault((dtype, len(shape)), set()).add(algorithm)
    schema = {
        file: {name: {(row.dtype, len(row.shape)): row.algorithms} for name, row in entries.items()}
        for file, entries in described().items()
    }
    assert found.keys() == schema.keys()
    for file, entries in schema.items():
        assert found[file] == entries, file


def test_a_size_of_the_schema_is_one_number_in_a_file(files):
    schema = described()
    for algorithm, file, datasets, _ in files:
        sizes, sums = {}, []
        for name, (_, shape) in datasets.items():
            if name.startswith("tail/"):  # as in the whole column, but for fewer rows
                continue
            for size, number in zip(schema[file][name].shape, shape, strict=True):
                if size.isidentifier():
                    assert sizes.setdefault(size, number) == number, f"{algorithm}: {name} {size}"
                else:
                    sums.append((size, number, name))
        for size, number, name in sums:
            assert eval(size, {}, sizes) == number, f"{algorithm}: {name} {size}"


def test_every_size_of_the_schema_has_a_meaning():
    rows = [row for entries in described().values() for row in entries.values()]
    used = re.findall("[A-Za-z_]+", " ".join(size for row in rows for size in row.shape))
    assert set(used) == SCHEMA["sizes"].keys()


def test_the_schema_has_every_attribute(files):
    run = ATTRIBUTES["metrics.h5"]
    expected = {
        "metrics.h5": run,
        "checkpoint.h5": run | ATTRIBUTES["checkpoint.h5"],
        "replay/segment-*.h5": ATTRIBUTES["replay"],
        "history/segment-*.h5": ATTRIBUTES["history"],
        "policy.h5": ATTRIBUTES["policy.h5"],
    }
    del expected["checkpoint.h5"]["checkpoint_generation"]
    for algorithm, file, _, attributes in files:
        named = {name: row[0] for name, row in expected[file].items()}
        assert attributes == named, f"{algorithm}/{file}"


PAGE = (ROOT / "docs/reference/hdf5.md").read_text(encoding="utf-8")


def test_a_meaning_of_the_schema_is_a_short_sentence():
    tables = [table for name, table in SCHEMA.items() if name not in ("attributes", "sizes")]
    for table in [*tables, *ATTRIBUTES.values()]:
        for name, (*_, meaning) in table.items():
            assert meaning.endswith("."), name
            assert len(meaning.split()) <= 25, name


def test_the_page_shows_every_table_of_the_schema():
    shown = re.findall(r"^```\{hdf5-schema\} (\S+)$", PAGE, re.MULTILINE)
    tables = [name for name in SCHEMA if name != "attributes"]
    assert sorted(shown) == sorted([*tables, *(f"attributes/{name}" for name in ATTRIBUTES)])


def test_the_examples_of_the_page_run(fresh, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/quickstart").symlink_to(fresh / "esac")
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    ours: dict = {}
    exec(first, ours)
    exec(second, {})
    fitness = ours["run"].members("fitness")
    assert capsys.readouterr().out.splitlines()[1] == f"(7, 10) {fitness[-1].max()}"
    header = (fresh / "esac/metrics.h5").read_bytes()[:512].decode().splitlines()[:4]
    assert [line.split()[0] for line in header] == ["esac_mpi", "schema", "bytes", "sha256"]


@pytest.mark.parametrize("name", ALGORITHMS[:-1])  # AES-RL's tasks go over generations' ends
def test_the_clock_of_every_algorithm_adds_up(fresh, name):
    """On the one rank that it had, a run takes its processor time; on more no longer."""
    run = Run.open(fresh / name)
    lasted = np.diff(run.columns["timing/wall_seconds"], prepend=0)
    counted = np.minimum(lasted, run.columns["timing/seconds_processor"]).cumsum()
    one = generation_ends(run, 1)
    np.testing.assert_allclose(one, counted, rtol=1e-3)
    # of barriers, where nothing else is long
    assert 0 < generation_ends(run, 8)[-1] < one[-1] + 0.005
    updates = run.columns["metrics/gradient_updates"][-1]
    assert (updates > 0) == (name not in ("es", "cem"))
    texts = grid.format_cells(run, np.arange(run.generation))
    assert [grid.time_on(text, 1, "a row") for text in texts] == pytest.approx(list(one), rel=1e-3)
