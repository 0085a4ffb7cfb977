"""Experiments: files to runs, what they cost, how they are carried out, resumed, drawn and submitted."""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import command
from conftest import ROOT, environment, run

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import rowfiles
from esac_mpi.config import Config, load, updated
from esac_mpi.experiments import design, estimates, jobs, products, running, sweeps
from esac_mpi.record import Run

experiment = command("experiment")

# Runs of each shipped experiment at smoke, small and paper: tasks x variants x values x seeds x numbers of ranks
COUNTS = {
    "fig2a": (4, 4 * 3, 4 * 3),
    "fig2b": (2 * 2, 4 * 3 * 2, 4 * 6),
    "fig2c": (2 * 2, 9 * 3, 9 * 3),
    "table1": (7, 4 * 7 * 3, 15 * 5 * 5),
    "fig4": (1, 3, 5),
    "fig5": (2 * 2, 2 * 4 * 3 * 2, 7 * 2 * 4 * 6),
    "fig6a": (2, 2 * 7 * 3, 2 * 7 * 3),
    "fig6b": (2, 2 * 2 * 3, 9 * 2 * 3),
    "ablations": (16, 16 * 3, 3 * 16 * 5),
    "transfer": (7, 7 * 3, 3 * 7 * 5),
}

TOY = """
title = "a toy"
claim = "none"
[settings]
task.horizon = 50
policy.hidden = [8, 8]
evaluation.every = 3
evaluation.episodes = 2
[tasks.cyclic]
config = "cyclic-mdp"
[variants.ES]
es.lr_es = 0.05
[variants."ES two"]
es.lr_es = 0.02
[budgets.smoke]
seeds = 2
[budgets.smoke.settings]
budget.generations = 4
es.population_size = 10
"""


def write(path, text=TOY):
    path.write_text(text)
    return str(path)


def planned(path, text=TOY, budget="smoke", root=Path("runs")):
    return design.runs(design.experiment(write(path, text)), budget, root)


def recorder(written):
    """Stand in for results.py: keep what it is asked to record."""

    def record(csv, runs, experiment, budget, most):
        written.append([(files.path.name, variant, value, done) for files, variant, value, done in runs])
        csv.write_text("nothing\n")

    return record


# ---- files to runs


@pytest.mark.parametrize("name", COUNTS)
def test_every_shipped_experiment_can_be_run_at_every_budget(name):
    found = design.experiment(name)
    runs = {budget: design.runs(found, budget, Path("runs")) for budget in ("smoke", "small", "paper")}
    assert tuple(map(len, runs.values())) == COUNTS[name]
    horizons = estimates.speeds().horizon
    for group in runs.values():
        assert {one.config.task.id for one in group} <= set(horizons)
        for one in {each.variant: each for each in group}.values():  # the last of each, so not of seed 0 where there are more
            assert replace(load([*one.line])[0], run_dir="") == one.config  # what the program makes of the line
    for product in found.products:
        assert (ROOT / "tools" / product.tool).exists()


def test_no_experiment_is_left_out():
    assert set(design.names()) == set(COUNTS)


def test_the_paper_budgets_are_the_papers():
    table = {(run.task, run.variant): run.config for run in design.runs(design.experiment("table1"), "paper", Path())}
    assert {task: c.budget.nominal_steps for (task, v), c in table.items() if v == "TD3"} == {
        **dict.fromkeys((task for task, _ in table), 1_000_000),
        "humanoid": 10_000_000, "hopper": 2_000_000, "reacher": 2_000_000,
    }  # fmt: skip
    assert {c.policy.hidden for c in table.values()} == {(512, 512)}
    assert {(c.esac.sigma, c.esac.lr_es) for (task, v), c in table.items() if v == "ESAC" and task == "ant"} == {(0.005, 1e-4)}
    assert (table["ant", "ES"].es.lr_es, table["walker-walk", "ES"].es.sigma) == (1e-4, 0.01)
    sigma = {run.value: run.config.es.sigma for run in design.runs(design.experiment("fig2c"), "paper", Path())}
    assert sigma == {text: float(text) for text in ("0.001", "0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.5", "1")}


def test_the_later_place_counts(tmp_path):
    text = (
        TOY
        + """
[budgets.smoke.for_task.cyclic]
policy.hidden = [16]
es.lr_es = 0.5
[budgets.smoke.for_variant."ES two"]
es.sigma = 0.3
"""
    )
    first, second, *_ = planned(tmp_path / "toy.toml", text)
    assert (first.config.es.sigma, first.config.es.lr_es) == (0.05, 0.05)  # the task's file; the variant before its budget's task
    assert (second.config.es.sigma, second.config.es.lr_es) == (0.3, 0.02)
    assert first.config.policy.hidden == (16,)  # not [settings]'s
    assert first.config.policy.activation == "tanh"  # the file's
    assert first.config.budget.generations == 4  # not the file's 100


def test_a_limit_turns_off_those_of_the_task_and_wall_time_all(tmp_path):
    text = TOY.replace("budget.generations = 4", "budget.env_steps = 500")
    assert planned(tmp_path / "a.toml", text)[0].config.budget.generations == 0
    text = TOY.replace("budget.generations = 4", "").replace("seeds = 2", "seconds = 3")
    config = planned(tmp_path / "b.toml", text)[0].config
    assert (config.budget.generations, config.budget.nominal_steps, config.budget.env_steps) == (0, 0, design.UNLIMITED)


def test_a_field_that_an_algorithm_does_not_read_is_left_out(tmp_path):
    text = TOY.replace("policy.hidden", "td3.batch_size = 8\nsac.batch_size = 9\npolicy.hidden")
    assert not [token for token in planned(tmp_path / "a.toml", text)[0].line if "batch" in token]
    text = text.replace("es.lr_es = 0.05", 'algorithm = "esac"').replace("es.population_size = 10", "")
    esac = planned(tmp_path / "b.toml", text)[0]
    assert (esac.config.sac.batch_size, esac.config.td3.batch_size) == (9, Config().td3.batch_size)


def test_all_variants_of_a_seed_come_first_and_have_names_of_their_own(tmp_path):
    runs = planned(tmp_path / "toy.toml")
    assert [str(run.run_dir) for run in runs] == [
        "runs/toy-smoke/cyclic-ES-seed0", "runs/toy-smoke/cyclic-ES-two-seed0",
        "runs/toy-smoke/cyclic-ES-seed1", "runs/toy-smoke/cyclic-ES-two-seed1",
    ]  # fmt: skip
    swept = TOY.replace("seeds = 2", "ranks = [1, 4]") + '[sweep]\nfield = "sigma"\nvalues = [0.1, 1.0]\n'
    runs = planned(tmp_path / "swept.toml", swept)
    assert [(run.variant, run.value, run.ranks) for run in runs[:3]] == [("ES", "0.1", 1), ("ES", "0.1", 4), ("ES two", "0.1", 1)]
    assert runs[1].run_dir.name == "cyclic-ES-sigma0.1-seed0-ranks4"
    assert (runs[1].label, runs[0].label) == ("ES, 4 ranks", "ES, 1 rank")
    assert {run.config.es.sigma for run in runs} == {0.1, 1.0}


def test_lines_are_those_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = Namespace(
        configs=[Path("configs/esac/cyclic-mdp.toml")], tasks=[], algorithms=["es"], seeds=["0-1"], root=Path("runs"),
        set=[["policy.hidden", "8 8"], ["budget.generations", "4"], ["es.sigma", "0.1", "0.2"]],
    )  # fmt: skip
    text = """
title = "t"
claim = "c"
[settings]
policy.hidden = [8, 8]
[tasks.cyclic]
config = "cyclic-mdp"
[variants.ES]
algorithm = "es"
[sweep]
field = "sigma"
values = [0.1, 0.2]
[budgets.smoke]
seeds = 2
settings.budget.generations = 4
"""
    runs = planned(tmp_path / "t.toml", text)
    assert sorted(run.line for run in runs) == sorted(line for line, _ in sweeps.lines(options))
    assert jobs.line(runs[0]).endswith(f"--es.sigma 0.1 --run-dir {runs[0].run_dir}")
    assert load(jobs.line(runs[0]).split())[0].run_dir == str(runs[0].run_dir)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("claim =", "clam =", "unknown key 'clam'; did you mean 'claim'?"),
        ('claim = "none"', "", "claim is missing or empty"),
        ('claim = "none"', "claim = 3", "claim = 3: expected str"),
        ("es.lr_es = 0.02", "es.lr_se = 0.02", "variants.ES two: unknown key 'es.lr_se'; did you mean 'es.lr_es'?"),
        ("es.lr_es = 0.02", "es.lr_es = 'x'", "es.lr_es = 'x': expected a number"),
        ("es.lr_es = 0.02", "td3.lr_td3 = 0.02", "variants.ES two sets td3.lr_td3: algorithm = es does not read it"),
        ("es.lr_es = 0.02", "es.population_size = 5", "must be even under mirrored sampling"),
        ('config = "cyclic-mdp"', 'config = "cyclic"', "there is no configs/esac/cyclic.toml"),
        ('config = "cyclic-mdp"', "seed = 1", "needs config, a file of configs/esac/, or task.id"),
        ("seeds = 2", "seeds = 0", "must be positive"),
        ("seeds = 2", "ranks = [0]", "must be positive"),
        ("seeds = 2", "cores = 0", "must be positive"),
        ("seeds = 2", "seconds = 0", "must be positive"),
        ("seeds = 2", "seconds = inf", "must be positive"),
        ("seeds = 2", "tasks = [1]", "tasks = [1]: expected a list of str"),
        ("seeds = 2", "tasks = 'cyclic'", "tasks = 'cyclic': expected list"),
        ('config = "cyclic-mdp"', "config = 3", "tasks.cyclic: config = 3: expected str"),
        ("[settings]", "products = [3]\n[settings]", "products: 3: expected a table"),
        ("[settings]", "[[products]]\ntool = 'x.py'\nout = 'x'\n[settings]", "products: arguments is missing"),
        ("[settings]", "[[products]]\ntool = 'x'\nout = 'x'\narguments = [1]\n[settings]", "expected a list of str"),
        ("[settings]", "[sweep]\nfield = 'seed'\nvalues = [1]\n[settings]", "field = 'seed': algorithms are variants"),
        ("[settings]", "[sweep]\nfield = 'algorithm'\nvalues = ['es']\n[settings]", "algorithms are variants"),
        ("seeds = 2", "seed = 2", "unknown key 'seed'; did you mean 'seeds'?"),
        ("seeds = 2", "tasks = ['ciclic']", "tasks: unknown 'ciclic'; did you mean 'cyclic'?"),
        ("seeds = 2", "for_variant.Es.seed = 1", "for_variant: unknown 'Es'; did you mean 'ES'?"),
        ("seeds = 2", "values = [1]", "needs both field and values"),
        ("seeds = 2", "seeds = ", "not valid TOML"),
        ("[budgets.smoke]", "[budgets.tiny]", "has no budget 'smoke'; it has tiny"),
        ('[variants."ES two"]', '[variants."ES "]', "two runs would share"),
        ("[tasks.cyclic]", '[sweep]\nfield = "sigmo"\nvalues = [1]\n[tasks.cyclic]', "did you mean 'es.sigma'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_clear_error_before_anything_runs(tmp_path, capsys, was, now, said):
    assert was in TOY
    text = TOY.replace(was, now).replace(
        "[budgets.smoke.settings]", "[budgets.tiny.settings]" if "tiny" in now else "[budgets.smoke.settings]"
    )
    path = write(tmp_path / "toy.toml", text)
    assert experiment.main(["run", path, "--budget", "smoke", "--root", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "runs").exists()


def test_no_run_at_once_is_an_error(tmp_path, capsys):
    path = write(tmp_path / "toy.toml")
    assert experiment.main(["run", path, "--budget", "smoke", "--root", str(tmp_path / "runs"), "--at-once", "0"]) == 2
    assert capsys.readouterr().err == "--at-once must be 1 or more\n"
    assert not (tmp_path / "runs").exists()


def test_an_unknown_experiment_names_those_that_there_are(capsys):
    assert experiment.main(["show", "fig3"]) == 2
    assert capsys.readouterr().err == f"no experiment 'fig3'; there are {', '.join(sorted(COUNTS))}\n"


# ---- cost


def configured(**values):
    return updated(Config(), {name.replace("__", "."): value for name, value in values.items()})


def test_work_of_an_evolution_strategy():
    config = configured(algorithm="es", budget__nominal_steps=1000, budget__generations=7, es__population_size=10)
    found = estimates.work(config, 200)  # nominal: 1000 / 200 = 5 generations, fewer than 7
    assert found == estimates.Work(5 * 10 * 200, 0, 0, 1 * 10 * 200)  # evaluated at the end, 10 episodes
    assert estimates.work(updated(config, {"es.sampling": "repo"}), 200).population == 5 * 20 * 200
    assert estimates.work(updated(config, {"task.horizon": 100, "evaluation.every": 2}), 200) == estimates.Work(
        7 * 10 * 100, 0, 0, (3 + 1) * 10 * 100
    )


def test_work_of_esac_with_a_gate_that_is_open_half_of_the_time():
    config = configured(
        algorithm="esac", budget__nominal_steps=0, budget__generations=21, esac__population_size=10, esac__p_sac_annealed=False,
        esac__p_sac_initial=0.5, esac__sac_episodes=2, esac__sac_min_steps=1000, sac__updates_per_step=3.0,
        evaluation__episodes=4,
    )  # fmt: skip
    found = estimates.work(config, 100)  # chances at 5, 10, 15, 20: 2 phases of 1000 steps, more than 2 episodes of 100
    assert found == estimates.Work(21 * 10 * 100, 2000, 6000, (2 + 1) * 4 * 2 * 100)
    assert estimates.work(updated(config, {"esac.sac_episodes": 30}), 100).learner == 2 * 3000
    assert estimates.work(updated(config, {"esac.sac_phases": False}), 100).updates == 0
    assert estimates.expected_phases(updated(config, {"esac.gate": "normal", "esac.p_sac_initial": 0.0}), 20) == 4 * 0.5


def test_the_annealed_gate_gives_the_share_of_updates_that_was_worked_out():
    """reference: nominal 1M of 1000-step episodes, 5 episodes a phase, SAC: 1M updates, ESAC 0.71M."""
    config = configured(algorithm="esac", budget__nominal_steps=1_000_000)
    assert estimates.work(config, 1000).updates == pytest.approx(0.71e6, rel=0.01)
    assert estimates.work(updated(config, {"algorithm": "sac"}), 1000).updates == 1_000_000


def test_work_of_learners():
    td3 = configured(algorithm="td3", budget__nominal_steps=50_000)
    assert estimates.work(td3, 1000) == estimates.Work(0, 50_000, 25_000, (5 + 1) * 10 * 1000)
    ranks = updated(td3, {"td3.episodes_on": "ranks", "td3.episodes_per_generation": 4, "td3.start_steps": 0})
    assert estimates.work(ranks, 1000).updates == 13 * 4 * 1000  # 50,000 is 12.5 generations of 4,000
    ppo = configured(algorithm="ppo", budget__nominal_steps=0, budget__generations=3, ppo__steps_per_generation=100)
    assert estimates.work(ppo, 1000).updates == 3 * 10 * 2  # 64 and 36 steps


def test_env_steps_limit_generations():
    config = configured(algorithm="es", budget__nominal_steps=0, budget__env_steps=100_000, es__population_size=10)
    assert estimates.generations(config, 100) == 91  # 1,000 steps, and 1,000 of evaluation every 10: 100,000 / 1,100


SPEEDS = estimates.Speeds(
    "here", {"T-v0": 100}, {"T-v0": {"small": 100.0, "large": 400.0}}, {"sac": {"small": 1.0, "large": 9.0}}
)


def a_run(tmp_path, config, ranks=0, seconds=0.0, name="run"):
    return design.Planned("t", "v", "", config.seed, ranks, seconds, [], tmp_path / name, config)


def test_core_seconds_and_hours_on_ranks(tmp_path):
    config = configured(
        algorithm="esac", task__id="T-v0", budget__nominal_steps=0, budget__generations=20, esac__population_size=10,
        esac__p_sac_annealed=False, policy__hidden=(32, 32),
    )  # fmt: skip
    cost = estimates.cost(a_run(tmp_path, config), SPEEDS)
    # population 20 * 10 * 100, evaluations (2 + 1) * 2 * 10 * 100; 4 phases of 1000 steps with as many updates
    assert cost.shared == pytest.approx((20_000 + 6_000) * 100e-6)
    assert cost.alone == pytest.approx(4000 * (100e-6 + 1e-3))
    assert cost.hours(2) == pytest.approx((1.3 + 4.4) / 3600)
    wide = replace(config, policy=replace(config.policy, hidden=(512, 512)))
    assert estimates.cost(a_run(tmp_path, wide), SPEEDS).alone == pytest.approx(4000 * (400e-6 + 9e-3))
    assert estimates.cost(a_run(tmp_path, config, seconds=90.0), SPEEDS) == estimates.Cost(0.0, 90.0)
    with pytest.raises(Unusable, match="no speed of td3"):
        estimates.cost(a_run(tmp_path, updated(config, {"algorithm": "td3"})), SPEEDS)


def test_the_sentence_about_cost(tmp_path):
    es = configured(algorithm="es", task__id="T-v0", budget__nominal_steps=0, budget__generations=3600, policy__hidden=(8,))
    es = updated(es, {"es.population_size": 100, "evaluation.every": 3600, "evaluation.episodes": 0})  # 3600 s
    runs = [a_run(tmp_path, es), a_run(tmp_path, es, seconds=7200.0)]
    assert estimates.total(runs, 1, SPEEDS) == "2 runs, about 3 core-hours of work"
    sac = updated(es, {"algorithm": "sac", "sac.steps_per_generation": 1000})  # 3.6 million steps and updates: 360 + 3600 s
    assert estimates.total([a_run(tmp_path, es), a_run(tmp_path, sac)], 4, SPEEDS) == (
        "2 runs, about 2.1 core-hours of work; as jobs of up to 4 ranks about 2.1 core-hours reserved, the longest run 1.1 h"
    )
    esac = updated(es, {"algorithm": "esac", "esac.p_sac_annealed": False, "esac.sac_episodes": 1, "esac.population_size": 100})
    said = estimates.total([a_run(tmp_path, esac)], 4, SPEEDS)  # 720 phases of 1000: 792 s for which three ranks wait
    assert said.endswith(
        "about 1.2 core-hours of work; as jobs of up to 4 ranks about 1.9 core-hours reserved, the longest run 0.47 h"
    )


def test_figures_have_two_digits():
    assert [estimates.figure(value) for value in (1e-6, 0.0234, 3.0, 41234.0)] == ["0.01", "0.023", "3", "41,000"]


def test_speeds_are_there_for_all_and_missing_ones_say_how(tmp_path):
    known = estimates.speeds()
    assert set(known.update) == {"sac", "td3", "ddpg", "ppo"}
    assert known.horizon["Reacher-v5"] == 50
    with pytest.raises(Unusable, match=r"python tools/experiment\.py speeds"):
        estimates.speeds(tmp_path / "none.toml")


def test_speeds_are_measured_and_can_be_read(tmp_path, monkeypatch, capsys):
    from esac_mpi.experiments import stopwatch

    monkeypatch.setattr(stopwatch, "ROUNDS", 1)
    monkeypatch.setattr(stopwatch, "SECONDS", 0.01)
    monkeypatch.setattr(stopwatch, "NETWORKS", {"small": ((8, 8), 16), "large": ((128, 128), 64)})
    monkeypatch.setattr(stopwatch.learners, "LEARNERS", {"sac": "SAC", "ppo": "PPO"})
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)  # not installed
    monkeypatch.delitem(sys.modules, "esac_mpi.learners.ppo", raising=False)
    known = estimates.speeds(stopwatch.write(["CyclicMDP-v0"], 'a "machine"', tmp_path / "speeds.toml"))
    assert "left out: algorithm = ppo needs stable_baselines3" in capsys.readouterr().err
    assert set(known.update) == {"sac"}
    assert known.horizon == {"CyclicMDP-v0": 2000}
    assert known.about.startswith('a "machine", 20')
    assert 0 < known.update["sac"]["small"] < known.update["sac"]["large"]  # [ms]
    assert 0 < known.step["CyclicMDP-v0"]["small"] < 1000  # [us]


# ---- carried out


def test_an_experiment_runs_draws_and_goes_on_with_more(tmp_path, capsys):
    """For real: two runs of ES on the toy and a picture, then nothing left to run, then more generations."""
    text = (
        TOY.replace("seeds = 2", "seeds = 1")
        + """
[[products]]
tool = "sensitivity.py"
arguments = ["{runs}", "--field", "lr_es", "--measure", "mean"]
out = "picture.png"
"""
    )
    path, folder, written = write(tmp_path / "toy.toml", text), tmp_path / "toy-smoke", []
    arguments = ["run", path, "--budget", "smoke", "--root", str(tmp_path)]
    assert experiment.main(arguments, recorder(written)) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{folder}: 2 runs, 0 finished"
    assert {line.split(",")[0].split("] ")[1] for line in told[1:3]} == {
        f"cyclic-{name}-seed0: done" for name in ("ES", "ES-two")
    }
    assert all(", generation 4, " in line for line in told[1:3])
    assert told[3:] == [f"{folder}/results.csv", f"{folder}/picture.png"]
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert written == [[("cyclic-ES-seed0", "ES", "", True), ("cyclic-ES-two-seed0", "ES two", "", True)]]

    write(tmp_path / "toy.toml", text.partition("[[products]]")[0])
    assert experiment.main(arguments, recorder(written)) == 0
    assert capsys.readouterr().out.splitlines() == [f"{folder}: 2 runs, 2 finished", f"{folder}/results.csv"]
    text = TOY.replace("seeds = 2", "variants = ['ES']").replace("generations = 4", "generations = 6")
    write(tmp_path / "toy.toml", f"points = 3\n{text}")
    assert experiment.main(arguments) == 0
    assert "cyclic-ES-seed0: done, generation 6" in capsys.readouterr().out
    assert "resumed at generation 4" in (folder / "cyclic-ES-seed0/log.txt").read_text()
    rows = rowfiles.read([folder / "results.csv"])
    assert {row.run for row in rows} == {("toy", "smoke", "CyclicMDP-v0", "ES", "", 0)}
    assert [(row.generation, row.complete) for row in rows] == [(1, False), (3, False), (6, True)]


def test_an_interrupted_experiment_goes_on_where_it_was(tmp_path):
    """Stopped by SIGINT in the middle, and started again, runs end as they do straight."""
    text = TOY.replace("generations = 4", "generations = 30").replace('config = "cyclic-mdp"', 'task.id = "slow_envs:Slow-v0"')
    text = text.replace("[settings]", '[settings]\nalgorithm = "es"\nes.sigma = 0.1').replace("seeds = 2", "variants = ['ES']")
    slow = tmp_path / "slow"
    slow.write_text("0.05")
    line = [
        sys.executable,
        ROOT / "tools/experiment.py",
        "run",
        write(tmp_path / "toy.toml", text),
        "--budget",
        "smoke",
        "--root",
        tmp_path,
    ]
    seen = {**environment(), "SLOW": str(slow)}
    process = subprocess.Popen([*map(str, line)], env=seen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    place = tmp_path / "toy-smoke/cyclic-ES-seed0"
    wait_for(lambda: (place / "status.json").exists() and json.loads((place / "status.json").read_text())["status"] == "running")
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (75, "stopped; the same command goes on\n")
    assert "cyclic-ES-seed0: stopped, generation" in out
    assert 0 < Run.open(place).generation < 30
    slow.unlink()
    done = subprocess.run([*map(str, line)], env=seen, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (alone,) = planned(tmp_path / "toy.toml", text, root=tmp_path)
    run(0, *alone.line, "--run-dir", tmp_path / "straight")
    assert Run.open(place).provenance["state_sha256"] == Run.open(tmp_path / "straight").provenance["state_sha256"]


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_wall_time_ends_a_run_and_what_it_had_counts(tmp_path):
    """A run of 4 s that has had 2: it gets 2 more, and is done then."""
    text = TOY.replace("budget.generations = 4", "").replace("seeds = 2", "seconds = 4\nvariants = ['ES']")
    (one,) = planned(tmp_path / "toy.toml", text, root=tmp_path)
    spent = running.Spent(one.run_dir.parent)
    assert running.left(one, spent) == 4
    one.run_dir.parent.mkdir()
    spent.note(one, 2.0)
    assert running.left(one, spent) == 4  # there is no such run: what is noted is of one that was removed
    (result,) = running.carry_out([(one, 2.0)], 1, spent, [])
    files = Run.open(one.run_dir)
    assert (result.how, files.status["status"]) == ("done", "requeue")
    assert 1.0 < files.columns["timing/wall_seconds"][-1] < 3.0 < one.seconds  # 2 s less what it takes to begin
    assert json.loads((one.run_dir.parent / "spent.json").read_text()) == {"cyclic-ES-seed0": 4.0}
    assert running.left(one, running.Spent(one.run_dir.parent)) is None
    assert running.left(replace(one, seconds=10.0), running.Spent(one.run_dir.parent)) == 6


def finished(path, config, wall=30.0, status="complete"):
    record = Run.begin(path, config, {})
    record.append({"generation": 1}, {"wall_seconds": wall})
    record.checkpoint(1, {"theta_es": np.ones(3, np.float32)}, {})
    record.status(status, 1)
    record.close()


def test_what_is_left_of_a_run(tmp_path):
    config = configured(algorithm="es")
    one, spent = a_run(tmp_path, config), running.Spent(tmp_path)
    assert running.left(one, spent) == np.inf
    finished(one.run_dir, config)
    assert running.left(one, spent) is None
    more = replace(one, config=updated(config, {"budget.nominal_steps": 2_000_000}))
    assert running.left(more, spent) == np.inf  # its budget was raised
    with pytest.raises(Unusable, match=r"other settings:\n  es\.sigma: 0\.005 -> 0\.1"):
        running.left(replace(one, config=updated(config, {"es.sigma": 0.1})), spent)
    half = a_run(tmp_path, config, seconds=50.0, name="half")
    finished(half.run_dir, config, status="requeue")
    assert running.left(half, spent) == 20  # its own history has 30
    spent.note(half, 49.5)
    assert running.left(half, spent) is None
    failed = a_run(tmp_path, config, seconds=20.0, name="failed")
    finished(failed.run_dir, config, status="failed")
    assert running.left(failed, spent) == running.TOLERANCE  # it had 30


def test_a_run_that_is_not_done_is_named_and_one_of_other_settings_refused(tmp_path, capsys):
    text = TOY.replace("budget.generations = 4", "").replace("seeds = 2", "seconds = 31")
    path, written = write(tmp_path / "toy.toml", text), []
    done, short = planned(tmp_path / "toy.toml", text, root=tmp_path)
    finished(done.run_dir, done.config, wall=30.5, status="requeue")
    finished(short.run_dir, short.config, wall=29.5, status="requeue")
    arguments = ["draw", path, "--budget", "smoke", "--root", str(tmp_path)]
    assert experiment.main(arguments, recorder(written)) == 0
    assert written == [[("cyclic-ES-seed0", "ES", "", True), ("cyclic-ES-two-seed0", "ES two", "", False)]]
    assert "not finished: cyclic-ES-two-seed0; all are compared at what" in capsys.readouterr().err
    write(tmp_path / "toy.toml", text.replace("es.lr_es = 0.02", "es.lr_es = 0.03"))
    assert experiment.main(arguments, recorder(written)) == 2
    assert "other settings:\n  es.lr_es: 0.02 -> 0.03\n" in capsys.readouterr().err


def test_under_nohup_a_lost_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running.wish() as heard:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may be under nohup themselves
        with running.wish() as heard:
            os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("status", "over", "interrupted", "code", "how"),
    [
        ("complete", False, False, 0, "done"), ("requeue", True, False, 75, "done"), ("requeue", False, False, 75, "stopped"),
        ("requeue", False, True, 0, "stopped"), ("running", False, True, -15, "stopped"), ("running", False, False, -9, "failed"),
        (None, False, True, -15, "stopped"), (None, False, False, 1, "failed"), ("failed", False, True, 1, "failed"),
        ("complete", False, False, 2, "failed"),
    ],
)  # fmt: skip
def test_how_a_run_ended(tmp_path, status, over, interrupted, code, how):
    one = a_run(tmp_path, configured(algorithm="es"))
    if status:
        finished(one.run_dir, one.config, status=status)
        told = json.loads((one.run_dir / "status.json").read_text())
        (one.run_dir / "status.json").write_text(json.dumps({**told, "pid": 1}))  # another process's, which has ended
    going = running.Going(one, Namespace(returncode=code), 0.0, 0.0, 0.0, over=over, interrupted=interrupted)
    assert running.outcome(going).how == how


@pytest.mark.parametrize(
    ("status", "interrupted", "code", "how"),
    [
        ("complete", False, 1, "failed"), ("complete", False, 0, "done"), ("requeue", False, 1, "failed"),
        ("requeue", False, 0, "failed"), ("requeue", True, -15, "stopped"), ("failed", True, -15, "stopped"),
    ],
)  # fmt: skip
def test_a_status_of_an_earlier_start_does_not_tell_how_this_one_ended(tmp_path, status, interrupted, code, how):
    one = a_run(tmp_path, configured(algorithm="es"))
    finished(one.run_dir, one.config, status=status)
    os.utime(one.run_dir / "status.json", (99.0, 99.0))
    going = running.Going(one, Namespace(returncode=code), 0.0, 0.0, 100.0, interrupted=interrupted)
    assert running.outcome(going).how == how


def test_nothing_goes_on_where_the_loop_or_its_reader_fails(tmp_path, monkeypatch):
    """Of two runs one ends at once; then it cannot be noted, or who asked does not want more."""
    ending, lasting = (a_run(tmp_path, Config(), seconds=9.0, name=name) for name in ("ending", "lasting"))
    lines = {"ending": "", "lasting": "import time; time.sleep(60)"}
    monkeypatch.setattr(running, "command", lambda planned: [sys.executable, "-c", lines[planned.run_dir.name]])
    begun, begin = [], running.begin
    monkeypatch.setattr(running, "begin", lambda *run: begun.append(begin(*run)) or begun[-1])
    results = running.carry_out([(ending, 9.0), (lasting, 9.0)], 2, running.Spent(tmp_path), [])
    assert (next(results).how, begun[1].process.poll()) == ("failed", None)
    results.close()
    assert begun[1].process.poll() == -signal.SIGTERM
    with pytest.raises(FileNotFoundError):
        next(running.carry_out([(ending, 9.0), (lasting, 9.0)], 2, running.Spent(tmp_path / "none"), []))
    assert begun[3].process.poll() == -signal.SIGTERM


def test_a_run_of_so_much_wall_time_ends_without_us(tmp_path):
    line = running.command(replace(a_run(tmp_path, Config(), seconds=60.0), line=["--seed", "3"]))
    config, _ = load(line[3:])
    assert (config.seed, config.max_hours) == (3, 0.2)  # 120 + 600 s
    assert "--max-hours" not in running.command(a_run(tmp_path, Config()))


def test_a_failed_run_is_named_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    text = TOY.replace("[variants.ES]", '[tasks.bad]\ntask.id = "own_envs:Raising-v0"\nalgorithm = "es"\n[variants.ES]')
    path = write(
        tmp_path / "toy.toml", text.replace("seeds = 2", "variants = ['ES']").replace("generations = 4", "generations = 60")
    )
    written = []
    assert experiment.main(["run", path, "--budget", "smoke", "--root", str(tmp_path)], recorder(written)) == 1
    told = capsys.readouterr()
    assert "failed: bad-ES-seed0\n" in told.err
    assert "bad-ES-seed0: failed" in told.out
    assert "cyclic-ES-seed0: done, generation 60" in told.out
    assert ("cyclic-ES-seed0", "ES", "", True) in written[0]
    assert "the simulator lost its licence" in (tmp_path / "toy-smoke/logs/bad-ES-seed0.txt").read_text()


def test_runs_on_ranks_have_the_machine_to_themselves(tmp_path):
    single, parallel = a_run(tmp_path, Config()), a_run(tmp_path, Config(), ranks=2)
    going = [running.Going(single, None, 0.0, 0.0, 0.0)]
    assert [running.room(single, going, n) for n in (1, 2)] == [False, True]
    assert running.room(parallel, [], 1)
    assert not running.room(parallel, going, 8)
    assert not running.room(single, [running.Going(parallel, None, 0.0, 0.0, 0.0)], 8)
    assert running.command(parallel)[1:3] == ["-n", "2"]
    assert running.command(single)[:3] == [sys.executable, "-m", "esac_mpi"]


def test_products_are_made_once_or_for_each_task_or_run(tmp_path):
    runs = [a_run(tmp_path, configured(task__id=f"{name.upper()}-v0"), name=name) for name in "ab"]
    runs = [replace(run, task=run.run_dir.name) for run in runs]
    csv = tmp_path / "results.csv"

    def made(out, *arguments):
        found = products.calls(design.Product("x.py", list(arguments), out), runs, csv)
        return [(path.name, line[2:]) for path, line in found]

    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert made("p.png", "draw", "{csv}", "{runs}") == [("p.png", ["draw", str(csv), a, b, "--out", str(tmp_path / "p.png")])]
    assert made("p-{task}.png", "{runs}", "{task}")[1] == ("p-b.png", [b, "B-v0", "--out", str(tmp_path / "p-b.png")])
    assert [name for name, _ in made("{run}.png", "{run}")] == ["a.png", "b.png"]


def test_a_product_that_fails_is_named_and_nothing_to_draw_too(tmp_path, capsys):
    text = TOY + '[[products]]\ntool = "plot.py"\narguments = ["{csv}"]\nout = "x.png"\n'
    path = write(tmp_path / "toy.toml", text)
    arguments = ["draw", path, "--budget", "smoke", "--root", str(tmp_path)]
    assert experiment.main(arguments, recorder([])) == 2
    assert "nothing to draw yet" in capsys.readouterr().err
    one = planned(tmp_path / "toy.toml", text, root=tmp_path)[0]
    finished(one.run_dir, one.config)
    assert experiment.main(arguments, recorder([])) == 1
    told = capsys.readouterr().err
    assert "1 of 4 runs have something to draw" in told
    assert "failed: x.png" in told


# ---- submitted


def submit(tmp_path, capsys, name, *arguments):
    """Submit with stand-ins for a batch system on the path; return what was said and what they were told."""
    code = experiment.main(["submit", name, "--root", str(tmp_path / "runs"), *arguments])
    log = tmp_path / "log"
    return code, capsys.readouterr().out.splitlines(), log.read_text().splitlines() if log.exists() else []


def stand_in(tmp_path, monkeypatch, name):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).write_text(f'#!/bin/bash\necho "LIST=$LIST LAUNCH=$LAUNCH $@" >>"{tmp_path}/log"\n')
    (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_submit_without_a_batch_system_prints_how(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, told, _ = submit(tmp_path, capsys, "fig6b")
    folder = tmp_path / "runs/fig6b-paper"
    assert code == 0
    assert told[0].startswith("54 runs, about ")
    assert told[1] == f"{folder}/jobs-1-ranks.txt: 27 jobs of 1 rank"
    assert told[4] == f"{folder}/jobs-64-ranks.txt: 27 jobs of 64 ranks"
    assert told[5] == f"sbatch  LIST={folder}/jobs-64-ranks.txt sbatch --ntasks=64 --array=0-26%10 jobs/slurm-array.sbatch"
    assert told[6] == (
        f"qsub    LIST={folder}/jobs-64-ranks.txt LAUNCH='mpiexec -n 64' qsub -v LIST,LAUNCH "
        "-l select=1:ncpus=64:mpiprocs=64:ompthreads=1 -J 0-26 jobs/pbs-array.sh"
    )
    lines = (folder / "jobs-64-ranks.txt").read_text().splitlines()
    assert len(set(lines)) == 27
    config, _ = load(lines[0].split())
    assert (config.algorithm, config.task.id, config.seed) == ("esac", "HalfCheetah-v5", 0)


@pytest.mark.parametrize(("system", "told"), [
    ("sbatch", ["--ntasks=4 --array=0-3%10 jobs/slurm-array.sbatch", "LAUNCH="]),
    ("qsub", ["-l select=1:ncpus=4:mpiprocs=4:ompthreads=1 -J 0-3 jobs/pbs-array.sh", "LAUNCH=mpiexec -n 4"]),
])  # fmt: skip
def test_submit_hands_a_list_for_each_number_of_ranks_to_the_batch_system(tmp_path, capsys, monkeypatch, system, told):
    stand_in(tmp_path, monkeypatch, system)
    assert submit(tmp_path, capsys, "fig2b", "--dry-run")[2] == []
    code, _, seen = submit(tmp_path, capsys, "fig2b")
    assert (code, len(seen)) == (0, 6)  # 4, 8, 16, 32, 64, 96 ranks
    assert f"LIST={tmp_path}/runs/fig2b-paper/jobs-4-ranks.txt" in seen[0]
    assert all(text in seen[0] for text in told)


def test_a_batch_system_that_refuses_ends_it(tmp_path, capsys, monkeypatch):
    stand_in(tmp_path, monkeypatch, "sbatch")
    with (tmp_path / "bin/sbatch").open("a") as script:
        script.write("exit 3\n")
    assert experiment.main(["submit", "fig2b", "--root", str(tmp_path / "runs")]) == 1
    assert "exit code 3; what follows it was not submitted" in capsys.readouterr().err
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_runs_that_wall_time_ends_are_no_jobs(tmp_path, capsys):
    assert experiment.main(["submit", "fig4", "--budget", "small", "--root", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr()
    assert (told.out, "as jobs they would go on" in told.err) == ("", True)
    assert not (tmp_path / "runs").exists()


def test_one_job_is_no_pbs_array():
    environment, line = jobs.pbs(Path("l"), 1, 2)
    assert environment == {"LIST": "l", "LAUNCH": "mpiexec -n 2", "INDEX": "0"}
    assert "-J" not in line
    assert "LIST,LAUNCH,INDEX" in line


# ---- shown


def test_show_and_list(capsys):
    assert experiment.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(COUNTS)
    assert experiment.main(["show", "fig2c"]) == 0
    told = capsys.readouterr().out
    assert "The paper: Mean reward of the first 100 generations" in told
    assert "small  27 runs, about " in told
    assert "swept: es.sigma = 0.001, 0.005" in told
    assert "fig2c.png" in told


def test_an_experiment_is_shown_without_mpi_torch_or_simulator():
    code = f"""
import sys
sys.modules |= dict.fromkeys(["mpi4py", "torch", "mujoco", "gymnasium", "dm_control", "matplotlib"])  # None: an import fails
sys.path.insert(0, {str(ROOT / "tools")!r})
import experiment
sys.exit(experiment.main(["show", "fig2c"]))
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
