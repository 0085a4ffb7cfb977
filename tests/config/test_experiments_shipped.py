"""The experiments that are shipped: their runs at every budget, and how they are shown."""

from dataclasses import replace
from pathlib import Path

import pytest
from commands import command
from conftest import ROOT

from esac_mpi.commands import NAMES
from esac_mpi.config import load
from esac_mpi.studies.experiments import design

experiment = command("experiment")
# Runs of each shipped experiment at smoke, small and paper: tasks x variants x values x seeds x
# numbers of ranks
COUNTS = {
    "fig2a": (4, 4 * 3, 4 * 3),
    "fig2b": (2 * 2, 4 * 3 * 2, 4 * 6),
    "fig2c": (2 * 2, 9 * 3, 9 * 3),
    "table1": (7, 4 * 7 * 3, 15 * 5 * 5),
    "fig4": (1, 6, 5),
    "fig5": (2 * 2, 2 * 4 * 3 * 2, 7 * 2 * 4 * 6),
    "fig6a": (2, 2 * 7 * 3, 2 * 7 * 3),
    "fig6b": (2, 2 * 2 * 3, 9 * 2 * 3),
    "ablations": (16, 16 * 3, 3 * 16 * 5),
    "transfer": (7, 7 * 3, 3 * 7 * 5),
    "aggregate": (12, 8 * 5 * 5, 8 * 6 * 5),
    "pderl-table1": (7, 4 * 7 * 5, 5 * 6 * 5),
    "pderl-table2": (2, 3 * 2 * 5, 5 * 2 * 5),
    "pderl-fig10": (4, 2 * 4 * 3, 2 * 4 * 5),
    "aes-table1": (3, 3 * 4 * 3, 3 * 4 * 3 * 3),
    "aes-table2": (10, 2 * 10 * 5, 2 * 10 * 10),
    "aes-table3": (6, 3 * 6 * 5, 6 * 6 * 10),
    "aes-fig1": (3, 2 * 5, 2 * 3),
    "aes-fig3": (3, 2 * 3 * 3, 3 * 3 * 3),
    "workstation": (1, 11 * 3, 4),
    "pderl-operators": (1, 1, 1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_shipped_experiment_can_be_run_at_every_budget(name):
    found = design.experiment(name)
    runs = {
        budget: design.runs(found, budget, Path("runs"))
        for budget in ("smoke", "small", "humanoids" if name == "workstation" else "paper")
    }
    assert tuple(map(len, runs.values())) == COUNTS[name]
    for group in runs.values():
        for one in {
            each.variant: each for each in group
        }.values():  # the last of each, so not of seed 0 where there are more
            # what the program makes of the line
            assert replace(load([*one.line])[0], run_dir="") == one.config
    for product in found.products:
        module = ROOT / f"{product.tool.replace('.', '/')}.py"
        assert module.exists() if "." in product.tool else product.tool in NAMES


def test_no_experiment_is_left_out():
    assert set(design.names()) == set(COUNTS)


def test_the_paper_budgets_are_the_papers():
    table = {
        (run.task, run.variant): run.config
        for run in design.runs(design.experiment("table1"), "paper", Path())
    }
    assert {task: c.budget.nominal_steps for (task, v), c in table.items() if v == "TD3"} == {
        **dict.fromkeys((task for task, _ in table), 1_000_000),
        "humanoid": 10_000_000, "hopper": 2_000_000, "reacher": 2_000_000,
    }  # fmt: skip
    assert {c.policy.hidden for c in table.values()} == {(512, 512)}
    assert {
        (c.esac.sigma, c.esac.lr_es)
        for (task, v), c in table.items()
        if v == "ESAC" and task == "ant"
    } == {(0.005, 1e-4)}
    assert (table["ant", "ES"].es.lr_es, table["walker-walk", "ES"].es.sigma) == (1e-4, 0.01)
    sigma = {
        run.value: run.config.es.sigma
        for run in design.runs(design.experiment("fig2c"), "paper", Path())
    }
    assert sigma == {
        text: float(text)
        for text in ("0.001", "0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.5", "1")
    }


def test_an_unknown_experiment_names_those_that_there_are(call):
    said = f"no experiment 'fig3'; there are {', '.join(sorted(COUNTS))}\n"
    assert call("experiment", "show", "fig3", code=2).err == said


def test_show_and_list(call):
    listed = call("experiment", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == sorted(COUNTS)
    told = call("experiment", "show", "fig2c").out
    assert "The paper: Mean reward of the first 100 generations" in told
    assert "small  27 runs; 3 seeds" in told
    assert "swept: es.sigma = 0.001, 0.005" in told
    assert "fig2c.png" in told
