"""docs/explain: its pages name functions that exist, and tables and figures that the code has."""

import ast
import re
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi import config
from esac_mpi.algorithms import ALGORITHMS, esac, esac_timing
from esac_mpi.config import load
from esac_mpi.play.counters import Counters
from esac_mpi.play.params import Params
from esac_mpi.play.population import Population

PAGES = sorted((ROOT / "docs/explain").glob("*.md"))
FOLDERS = ["", "esac_mpi", "esac_mpi/algorithms"]  # what a page's paths are below
# `file.py: function()`, and functions after it in the same cell or sentence
NAMED = re.compile(r"`([\w/]+\.py)(?:: ([\w.]+)\(?\)?)?`((?:, `\w+\(\)`)*)")
WORDS = {"true": True, "false": False, "-": None}


def text(page):
    return (ROOT / "docs/explain" / page).read_text(encoding="utf-8")


def table(page, head):
    """Return the cells of the rows of the table whose head begins so, without their markup."""
    lines = text(page).split(f"\n| {head}")[1].splitlines()[2:]
    rows = lines[: next(i for i, line in enumerate([*lines, ""]) if not line.startswith("|"))]
    return [[cell.strip().replace("`", "") for cell in row.strip("| ").split("|")] for row in rows]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_functions_are_where_a_page_says(page):
    for path, name, more in NAMED.findall(page.read_text(encoding="utf-8")):
        found = [ROOT / folder / path for folder in FOLDERS if (ROOT / folder / path).exists()]
        assert found, path
        source = "".join(one.read_text(encoding="utf-8") for one in found)
        for function in [*name.split(".")[-1:], *re.findall(r"`(\w+)\(\)`", more)]:
            assert re.search(rf"(def|class) {function}\b", source) or not function, (path, function)


def test_functions_that_heads_of_algorithms_name_exist():
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("esac_mpi/algorithms/*.py")]
    heads = "".join(ast.get_docstring(ast.parse(source)) or "" for source in sources)
    defined = {*re.findall(r"def (\w+)", "".join(sources))}
    assert {*re.findall(r"(\w+)\(\)", heads)} - defined == {"expected"}  # which they may have


def test_the_symbols_of_algorithm_1_are_fields_of_the_code():
    owners = {
        "state": esac.State,
        "plan": esac.Plan,
        "found": Population,
        "params": Params,
        "esac": config.ESAC,
        "sac": config.SAC,
    }
    found = re.findall(rf"\b({'|'.join(owners)})\.(?!py\b)(\w+)", esac.__doc__)
    assert {owner for owner, _ in found} == {*owners}
    assert [name for name in found if name[1] not in owners[name[0]].__dataclass_fields__] == []


def said(cell):
    """Return what a cell of the table of presets says of a field."""
    words = [word.replace(",", "") for word in cell.split()]
    values = [WORDS[w] if w in WORDS else float(w) if w[0].isdigit() else w for w in words]
    return values[0] if len(values) == 1 else tuple(values)


def test_the_table_of_presets_is_what_they_set():
    head, *_ = re.findall(r"^\| field \| (`default`.*) \|$", text("esac.md"), re.M)
    presets = re.findall(r"`([\w-]+)`", head)
    plain, *others = (load(["--esac.preset", name])[0] for name in presets)
    values = [dict(config.flatten(one)) for one in (plain, *others)]
    told = set()
    for name, *cells in table("esac.md", "field | `default`"):
        if name.startswith("esac.amt_"):  # three fields, which the default does not read
            names = [f"esac.{one.removeprefix('esac.')}" for one in name.split(", ")]
            for cell, have in list(zip(cells, values, strict=True))[1:]:
                assert cell.split(", ") == [have[one] for one in names]
        elif name == "sac.temperature":
            names = [name, "sac.automatic_temperature"]
            for cell, have in zip(cells, values, strict=True):
                number, _, tuned = cell.partition(", ")
                assert (float(number), tuned == "tuned") == tuple(have[one] for one in names)
        else:
            names = [name]
            assert [said(cell) for cell in cells] == [have[name] for have in values], name
        told |= {*names}
    set_by_others = {name for name in values[0] if len({str(v[name]) for v in values}) > 1}
    # what virtual time alone reads, and the tests
    unread = {"esac.preset", "esac.workers", "esac.update_cost", "esac.transfer_wins"}
    assert told == set_by_others - unread


@pytest.mark.parametrize(("workers", "column"), [(7, 0), (1, 1)])
def test_the_example_of_virtual_time_is_the_codes(workers, column):
    words = f"--esac.workers {workers} --esac.update_cost 33 --esac.population_size 28"
    config = load(words.split())[0]
    esac = config.esac

    def played(tested):
        return SimpleNamespace(length=np.full(28, 1000), trial_steps=10_000 * tested)

    durations = [esac_timing.evaluation_time(esac, played(tested)) for tested in (True, False)]
    # whether a test was played in the generation that it begins after, or none
    steps, same = (esac_timing.own_steps(config, lasted, 2000) for lasted in durations)
    assert steps == same == 1000
    begun = esac_timing.phase_duration(config, steps, 2000)
    flight = SimpleNamespace(phase_begun=1, phase_left=begun)
    generations = 1
    while not esac_timing.phase_ends(esac, flight, 1 + generations, played(generations == 1)):
        flight.phase_left = esac_timing.time_left(esac, flight, played(generations == 1))
        generations += 1
    phase, first, later, enters = (
        row[1 + column].split("= ")[-1] for row in table("virtual-time.md", "| `workers` 7")
    )
    assert [phase, first, later] == [f"{value:,.0f}" for value in (begun, *durations)]
    assert int(re.match(r"\d+", enters)[0]) == generations


def test_the_long_phase_of_virtual_time_is_the_codes():
    words = "--esac.phase_timing continuous --esac.workers 1 --esac.update_cost 5"
    config = load(f"{words} --esac.population_size 28".split())[0]
    assert f"{esac_timing.own_steps(config, 38_000, 2000):,} own steps" in text("virtual-time.md")


def test_every_counter_and_every_algorithm_has_its_line():
    assert {row[0] for row in table("counts.md", "counter |")} == {f.name for f in fields(Counters)}
    assert {row[0] for row in table("index.md", "algorithm |")} == {*ALGORITHMS}
    nominal = ", ".join(row[0] for row in table("counts.md", "algorithm | `nominal_steps`"))
    assert sorted(nominal.split(", ")) == sorted(ALGORITHMS)
