"""Runs of every algorithm as they are read, and docs/reference/hdf5.md held against their files."""

import json
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
from conftest import LEARNER, PHASES, POPULATION, ROOT, ROUTINE, STRATEGY, TASK, environment
from read_runs import make
from small_cem import options as drawn
from small_erl import options as genetic

from esac_mpi.analysis.clock import Machine, computed, grid
from esac_mpi.config.genetic import FORMS
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

ALGORITHMS = (
    "esac",
    "es",
    "sac",
    "td3",
    "ddpg",
    "ppo",
    "erl",
    "perl",
    "derl",
    "pderl",
    "cem",
    "cem_rl",
    "aes_rl",
)
DRAWN = ("cem", "cem_rl")
AES = {
    **{
        "workers": 2,
        "start_steps": 20,
        "batch_size": 16,
        "critic_chunk": 20,
        "replay_capacity": 200,
    },
    **{"arrivals_per_generation": 6, "mean_episodes": 1},
}
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
    """Runs of 7 generations whose options make every dataset there is, by algorithm."""
    path = tmp_path_factory.mktemp("fresh")
    value = ["--sac.value_network", "true", "--sac.automatic_temperature", "true"]
    more = {
        "esac": [*POPULATION, *PHASES, *LEARNER, *value, "--esac.adoption", "tested"],
        "es": [*STRATEGY, "--es.sigma_rule", "one_fifth"],
        "sac": [*LEARNER, "--sac.steps_per_generation", 20, *value],
    }
    for name in ("td3", "ddpg"):
        table = {
            "steps_per_generation": 20,
            "start_steps": 20,
            "batch_size": 16,
            "replay_capacity": 200,
        }
        more[name] = [token for key, value in table.items() for token in (f"--{name}.{key}", value)]
    more["ppo"] = [
        "--ppo.steps_per_generation",
        20,
        "--ppo.batch_size",
        8,
        "--ppo.reward_normalisation",
        "true",
    ]
    more |= {name: genetic(name) for name in FORMS}
    more |= {name: [*drawn(name), f"--{name}.importance_mixing", "true"] for name in DRAWN}
    more["aes_rl"] = [token for key, value in AES.items() for token in (f"--aes_rl.{key}", value)]
    common = [*TASK, *ROUTINE, "--budget.generations", 7]
    seen = {
        name: [f"--{name}.observation_normalisation", "true"]
        for name in more
        if name not in (*FORMS, *DRAWN, "aes_rl")
    }
    own = [
        ["--algorithm", name, "--run-dir", path / name, *seen.get(name, [])] for name in ALGORITHMS
    ]
    lines = [
        [*common, *options, *more[name]] for name, options in zip(ALGORITHMS, own, strict=True)
    ]
    arguments = json.dumps([list(map(str, line)) for line in lines])
    line = [sys.executable, "-c", PROGRAM, arguments]
    done = subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return path


def test_the_policy_is_read_with_its_attributes(tmp_path, fresh):
    run = make(tmp_path)
    assert Run.open(tmp_path).policy is None
    run.close()
    arrays, attributes = Run.open(fresh / "sac").policy
    assert arrays["theta"].shape == (3 * 8 + 8 + 8 * 8 + 8 + (8 + 3) * 3 + 3,)
    assert attributes["task"] == "CyclicMDP-v0"
    assert attributes["policy"] == "sac"


def page():
    """Return {section: {dataset: (dtype, rank, algorithms)}} and {section: {attribute: (type,
    algorithms)}} of docs/reference/hdf5.md.
    """
    datasets, attributes, section = {}, {}, ""
    for line in (ROOT / "docs/reference/hdf5.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or cells[0] in ("dataset", "attribute"):
            continue
        if len(cells) == 6:
            name, dtype, shape, _, algorithms, _ = cells
            assert re.fullmatch(r"\[.*\]", shape), line
            rank = len(shape.strip("[]").split(",")) if shape != "[]" else 0
            entry = dtype, rank, named(algorithms)
            assert datasets.setdefault(section, {}).setdefault(name, entry) is entry, (
                f"{name} stands twice"
            )
        else:
            name, kind, algorithms, _ = cells
            attributes.setdefault(section, {})[name] = kind, named(algorithms)
    return datasets, attributes


def named(algorithms):
    """Return the algorithms of a cell of the page."""
    if algorithms == "all":
        return frozenset(ALGORITHMS)
    return frozenset(
        algorithms.replace("genetic", " ".join(FORMS)).replace("drawn", " ".join(DRAWN)).split()
    )


def kind(value):
    """Return the type of an attribute as the page has it."""
    if isinstance(value, str):
        return "string"
    return f"{value.dtype} array" if value.ndim else str(value.dtype)


def found(path):
    """Return the same of the files of fresh runs, read with plain h5py."""
    datasets, attributes, of = {}, {}, {}
    for file in sorted(path.rglob("*.h5")):
        algorithm = file.relative_to(path).parts[0]
        section = (
            f"{file.parent.name}/segment-*.h5"
            if "segment" in file.name
            else file.name.replace("_prev", "")
        )
        with h5py.File(file, "r", locking=False) as opened:
            nodes = []
            opened.visititems(lambda name, node, nodes=nodes: nodes.append((name, node)))
            for name, node in nodes:
                name = name.removeprefix("tail/")
                if isinstance(node, h5py.Dataset):
                    dtype = "string" if h5py.check_string_dtype(node.dtype) else str(node.dtype)
                    datasets.setdefault(section, {}).setdefault(name, set()).add((dtype, node.ndim))
                    of.setdefault((section, name), set()).add(algorithm)
            for name, value in opened.attrs.items():
                attributes.setdefault(section, {}).setdefault(name, set()).add(kind(value))
                of.setdefault((section, f"@{name}"), set()).add(algorithm)
    return datasets, attributes, of


def test_the_page_has_every_dataset_as_it_is_in_the_files(fresh):
    (described, _), (datasets, _, of) = page(), found(fresh)
    history = {n: e for n, e in described["metrics.h5"].items() if not n.startswith("final/")}
    described["checkpoint.h5"] |= history
    described["history/segment-*.h5"] = history
    assert described.keys() == datasets.keys()
    for section, entries in described.items():
        assert entries.keys() == datasets[section].keys(), section
        for name, (dtype, rank, algorithms) in entries.items():
            assert datasets[section][name] == {(dtype, rank)}, f"{section}: {name}"
            assert of[section, name] == algorithms, f"{section}: {name}"


def test_the_page_has_every_attribute(fresh):
    (_, described), (_, attributes, of) = page(), found(fresh)
    described["checkpoint.h5"] |= described["metrics.h5"]
    del described["checkpoint.h5"]["checkpoint_generation"]
    assert described.keys() == attributes.keys()
    for section, entries in described.items():
        assert entries.keys() == attributes[section].keys(), section
        for name, (expected, algorithms) in entries.items():
            assert attributes[section][name] == {expected}, f"{section}: {name}"
            assert of[section, f"@{name}"] == algorithms, f"{section}: {name}"


def test_the_examples_of_the_page_run(fresh, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/quickstart").symlink_to(fresh / "esac")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "docs/reference/hdf5.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert len(blocks) == 2
    ours: dict = {}
    exec(blocks[0], ours)
    exec(blocks[1], {})
    fitness = ours["run"].members("fitness")
    assert capsys.readouterr().out.splitlines()[1] == f"(7, 10) {fitness[-1].max()}"
    header = (fresh / "esac/metrics.h5").read_bytes()[:512].decode().splitlines()[:4]
    assert [line.split()[0] for line in header] == ["esac_mpi", "schema", "bytes", "sha256"]


def test_wide_tables_of_a_fresh_run(fresh):
    run = Run.open(fresh / "esac")
    assert run.members("timing/member_seconds").shape == run.members("length").shape == (7, 10)
    assert len(run.history) == 7
    assert (
        run.history["env_steps_population"].iloc[-1] >= run.members("length").sum()
    )  # with those of trials


@pytest.mark.parametrize(
    "name", [name for name in ALGORITHMS if name != "aes_rl"]
)  # its tasks go over generations' ends
def test_the_clock_of_every_algorithm_adds_up(fresh, name):
    """On the one rank that it had, a run takes its processor time; on more no longer, and less
    without updates.
    """
    run = Run.open(fresh / name)
    lasted = np.diff(run.columns["timing/wall_seconds"], prepend=0)
    counted = np.minimum(lasted, run.columns["timing/seconds_processor"]).cumsum()
    one = computed(run, Machine(1))
    np.testing.assert_allclose(one, counted, rtol=1e-3)
    assert (
        0 < computed(run, Machine(8))[-1] < one[-1] + 0.005
    )  # of barriers, where nothing else is long
    updated = run.columns["metrics/gradient_updates"][-1] > 0
    assert updated == (name not in ("es", "cem"))
    assert (computed(run, Machine(1, np.inf))[-1] < 0.99 * one[-1]) == updated
    texts = grid.texts(run, np.arange(run.generation))
    assert [grid.at(grid.parsed(text), Machine(1)) for text in texts] == pytest.approx(
        one.tolist(), rel=1e-3
    )
