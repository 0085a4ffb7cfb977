"""What configs/ ships: files of tasks, and experiments: their runs and how they are shown."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from esac_mpi.commands import NAMES
from esac_mpi.config import PRESETS, Config, amend, check, flatten, load, read_toml
from esac_mpi.envs import make
from esac_mpi.studies.experiments import design


@pytest.mark.parametrize("name", design.names())
def test_every_shipped_experiment_can_be_run_at_every_budget(name):
    found = design.experiment(name)
    assert {"smoke", "small"} < found.budgets.keys()
    for budget in found.budgets:
        runs = {run.variant: run for run in design.runs(found, budget, Path("runs"))}
        assert runs
        for one in runs.values():  # the last of each, so not of seed 0 where there are more
            # what the program makes of the line
            assert replace(load([*one.line])[0], run_dir="") == one.config
    for product in found.products:
        module = ROOT / f"{product.tool.replace('.', '/')}.py"
        assert module.exists() if "." in product.tool else product.tool in NAMES


def test_the_paper_budgets_are_the_papers():
    runs = design.runs(design.experiment("table1"), "paper", Path())
    table = {(run.task, run.variant): run.config for run in runs}
    assert {task: c.budget.nominal_steps for (task, v), c in table.items() if v == "TD3"} == {
        **dict.fromkeys((task for task, _ in table), 1_000_000),
        "humanoid": 10_000_000, "hopper": 2_000_000, "reacher": 2_000_000,
    }  # fmt: skip
    assert {c.policy.hidden for c in table.values()} == {(512, 512)}
    assert (table["ant", "ESAC"].esac.sigma, table["ant", "ESAC"].esac.lr_es) == (0.005, 1e-4)
    assert (table["ant", "ES"].es.lr_es, table["walker-walk", "ES"].es.sigma) == (1e-4, 0.01)
    swept = design.runs(design.experiment("fig2c"), "paper", Path())
    values = "0.001 0.005 0.01 0.025 0.05 0.075 0.1 0.5 1".split()
    found = {run.value: run.config.es.sigma for run in swept}
    assert found == {value: float(value) for value in values}


def test_an_unknown_experiment_names_those_that_there_are(call):
    said = f"no experiment 'fig3'; there are {', '.join(sorted(design.names()))}\n"
    assert call("experiment", "show", "fig3", code=2).err == said
    said = "no experiment 'none.toml': no such file\n"
    assert call("experiment", "show", "none.toml", code=2).err == said


def test_show_and_list(call):
    listed = call("experiment", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == sorted(design.names())
    told = call("experiment", "show", "fig2c").out
    assert "Claim: Mean reward of the first 100 generations" in told
    assert "small     27 runs; 3 seeds" in told
    assert "swept: es.sigma = 0.001, 0.005" in told
    assert "fig2c.png" in told


CONFIGS = sorted((ROOT / "configs" / "esac").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_task_file_is_accepted_and_holds_differences_only(path):
    values = read_toml(path)
    config = amend(Config(), values)
    check(config)
    same = {name for name, value in flatten(Config()) if name in values and values[name] == value}
    # what a preset sets may be said of a task under every preset
    assert same <= {"task.id", "es.lr_es"} | PRESETS["reference-code"].keys()
    env = make(config.task.id, config.task.horizon)
    assert env.reset(0).shape == (env.observation_size,)


def test_task_files_hold_the_papers_values():
    configs = {path.stem: amend(Config(), read_toml(path)) for path in CONFIGS}
    suite = {name for name, c in configs.items() if c.task.id.startswith("dm_control/")}
    assert (len(configs), len(suite)) == (22, 12)
    assert {(configs[n].esac.sigma, configs[n].esac.lr_es) for n in suite} == {(0.01, 0.01)}
    esac = {name: c.esac.sac_episodes for name, c in configs.items() if c.algorithm == "esac"}
    ten = {"ant", "walker2d", "hopper", "humanoid"}
    assert {name for name, count in esac.items() if count == 10} == ten
    one = {"swimmer"} | suite - {"cartpole-swingup", "walker-walk", "walker-run"}
    assert {name for name, count in esac.items() if count == 1} == one
    assert configs["ant"].esac.lr_es == 1e-4
    repo = {**PRESETS["reference-code"], "esac.preset": "reference-code"}
    copies = {
        path.stem: amend(Config(), {**repo, **read_toml(path)}).esac.sac_copies for path in CONFIGS
    }
    assert {name for name, count in copies.items() if count != 4} == {"swimmer"}  # public README
