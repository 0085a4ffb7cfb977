"""From an experiment's file to its runs, and what cannot be run."""

import re
import subprocess
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from toy_experiments import TOY, planned
from words import written

from esac_mpi.commands import experiment
from esac_mpi.config import ALGORITHMS, Config, load
from esac_mpi.config.fields import value_of
from esac_mpi.config.presets import NUMBERS
from esac_mpi.config.run import Budget
from esac_mpi.studies import job_lists
from esac_mpi.studies.experiments import design, report, sweeps
from esac_mpi.studies.experiments.plan import Planned


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
    # the task's file; the variant before its budget's task
    assert (first.config.es.sigma, first.config.es.lr_es) == (0.05, 0.05)
    assert (second.config.es.sigma, second.config.es.lr_es) == (0.3, 0.02)
    assert first.config.policy.hidden == (16,)  # not [settings]'s
    assert first.config.policy.activation == "tanh"  # the file's
    assert first.config.budget.generations == 4  # not the file's 100


def test_settings_of_a_task_and_a_variant_of_one_name_are_both_shown(tmp_path, call):
    text = TOY.replace("[tasks.cyclic]", "[tasks.ES]")
    text += "[budgets.smoke.for_task.ES]\nes.sigma = 0.4\n"
    text += "[budgets.smoke.for_variant.ES]\nes.lr_es = 0.3\n"
    told = call("experiment show", written(tmp_path / "toy.toml", text)).out.splitlines()
    assert {"smoke, ES: --es.sigma 0.4", "smoke, ES: --es.lr_es 0.3"} <= {*told}


def test_the_comparison_that_the_page_shows_is_one(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/how-to/analyse.md").read_text(), re.S)
    runs = planned(tmp_path / "mine.toml", text, "mine", tmp_path)
    told = [(run.variant, run.seed, run.config.es.lr_es) for run in runs]
    assert told[:3] == [("slow", 0, 0.005), ("fast", 0, 0.02), ("slow", 1, 0.005)]
    assert {run.config.es.population_size for run in runs} == {20}
    assert len(runs) == 10


def test_a_limit_turns_off_those_of_the_task_and_wall_time_all(tmp_path):
    text = TOY.replace("budget.generations = 4", "budget.env_steps = 500")
    assert planned(tmp_path / "a.toml", text)[0].config.budget.generations == 0
    text = TOY.replace("budget.generations = 4", "").replace("seeds = 2", "seconds = 3")
    config = planned(tmp_path / "b.toml", text)[0].config
    assert config.budget == Budget(nominal_steps=0, minutes=0.05)
    text += "[budgets.smoke.for_variant.ES]\nbudget.minutes = 2.0\n"
    assert planned(tmp_path / "c.toml", text)[0].config.budget.minutes == 2.0


def test_a_field_that_an_algorithm_does_not_read_is_left_out(tmp_path):
    text = TOY.replace("policy.hidden", "td3.batch_size = 8\nsac.batch_size = 9\npolicy.hidden")
    assert not [token for token in planned(tmp_path / "a.toml", text)[0].line if "batch" in token]
    text = text.replace("es.lr_es = 0.05", 'algorithm = "esac"')
    text = text.replace("es.population_size = 10", 'esac.preset = "corrected"')
    config = planned(tmp_path / "b.toml", text)[0].config
    assert (config.sac.batch_size, config.td3.batch_size) == (9, Config().td3.batch_size)


def test_a_swept_argument_of_the_task_joins_those_that_it_has(tmp_path):
    text = TOY + '[sweep]\nfield = "task.kwargs.gravity"\nvalues = [1.0, 9.8]\n'
    text = text.replace("task.horizon", "task.kwargs = {wind = true}\ntask.horizon")
    runs = planned(tmp_path / "swept.toml", text)
    swept = [{"wind": True, "gravity": gravity} for gravity in (1.0, 9.8)]
    assert [run.config.task.kwargs for run in runs[1:3]] == swept


def test_all_variants_of_a_seed_come_first_by_their_own_names(tmp_path):
    assert [str(run.run_dir) for run in planned(tmp_path / "toy.toml")] == [
        "runs/toy-smoke/cyclic-ES-seed0", "runs/toy-smoke/cyclic-ES-two-seed0",
        "runs/toy-smoke/cyclic-ES-seed1", "runs/toy-smoke/cyclic-ES-two-seed1",
    ]  # fmt: skip
    swept = TOY.replace("seeds = 2", "ranks = [1, 4]")
    swept += '[sweep]\nfield = "sigma"\nvalues = [0.1, 1.0]\n'
    runs = planned(tmp_path / "swept.toml", swept)
    first = [(run.variant, run.value, run.ranks) for run in runs[:3]]
    assert first == [("ES", "0.1", 1), ("ES", "0.1", 4), ("ES two", "0.1", 1)]
    assert runs[1].run_dir.name == "cyclic-ES-sigma0.1-seed0-ranks4"
    assert (runs[1].label, runs[0].label) == ("ES, 4 ranks", "ES, 1 rank")
    assert {run.config.es.sigma for run in runs} == {0.1, 1.0}


def test_some_seeds_alone(tmp_path):
    every = planned(tmp_path / "toy.toml")
    assert experiment.select_seeds(every, [1], "toy") == every[2:]
    assert experiment.select_seeds(every, [1, 0, 1], "toy") == every


def test_the_eight_tasks_have_the_settings_of_their_records(tmp_path):
    """Not what became default since."""
    runs = design.runs(design.experiment("aggregate"), "small", tmp_path)
    learning = [run.config for run in runs if run.config.algorithm in ("esac", "sac")]
    assert {config.sac.batch_size for config in learning} == {256}
    assert {each.esac.resimulated for each in learning if each.algorithm == "esac"} == {"better"}


def test_table_3_at_the_papers_size_has_the_public_codes_numbers(tmp_path):
    runs = design.runs(design.experiment("aes-table3"), "paper", tmp_path)
    for name in (name for name in NUMBERS if name.startswith("sac.")):
        found = {value_of(run.config, name) for run in runs if run.config.algorithm == "sac"}
        assert found == {NUMBERS[name]}, name
    hidden = {run.config.policy.hidden for run in runs if run.config.algorithm == "cem_rl"}
    assert hidden == {(400, 300)}


def test_the_td3_of_pderls_table_1_is_its_papers(tmp_path):
    runs = design.runs(design.experiment("pderl-table1"), "paper", tmp_path)
    found = {run.task: run.config.td3 for run in runs if run.config.algorithm == "td3"}
    assert {(td3.lr_td3, td3.batch_size) for td3 in found.values()} == {(1e-3, 100)}
    long = {task for task, td3 in found.items() if td3.start_steps == 10_000}
    assert long == {"halfcheetah", "ant"}
    assert {td3.start_steps for td3 in found.values()} == {1000, 10_000}


def test_lines_are_those_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = Namespace(
        configs=[Path("configs/esac/cyclic-mdp.toml")], tasks=[],
        algorithms=["es"], seeds=["0-1"], root=Path("runs"),
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
    grid, seeds = sweeps.combinations(options), sweeps.seeds(options.seeds)
    lines = [[*words, "--seed", str(seed)] for words, _ in grid for seed in seeds]
    assert sorted(run.line for run in runs) == sorted(lines)
    words = runs[0].arguments
    assert words[-6:-4] == ["--es.sigma", "0.1"]
    assert words[-4:] == ["--seed", "0", "--run-dir", str(runs[0].run_dir)]
    assert load(words)[0].run_dir == str(runs[0].run_dir)


def test_runs_are_jobs_by_their_ranks(tmp_path, call):
    told = call("experiment jobs fig6b", "--root", tmp_path).out.splitlines()
    folder = tmp_path / "fig6b-paper"
    assert told[0] == f"{folder}/jobs-1-ranks.txt: 27 jobs of 1 rank"
    assert told[3:] == [
        f"{folder}/jobs-64-ranks.txt: 27 jobs of 64 ranks",
        *job_lists.submission(folder / "jobs-64-ranks.txt", 27, 64),
    ]
    lines = (folder / "jobs-64-ranks.txt").read_text().splitlines()
    assert len(set(lines)) == 27
    config, _ = load(lines[0].split())
    assert (config.algorithm, config.task.id, config.seed) == ("esac", "HalfCheetah-v5", 0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_job_has_one_rank_where_a_single_learner_plays(algorithm):
    run = Planned("", "", "", 0, 0, "", {}, Path(), Config(algorithm=algorithm))
    assert report.ranks_of(run, 8) == (1 if algorithm in ("sac", "td3", "ddpg", "ppo") else 8)
    assert report.ranks_of(replace(run, ranks=3), 8) == 3


def test_a_list_longer_than_slurm_takes_by_default_can_be_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a list").write_text("line\n" * 1500)
    first, last = ("\n".join(job_lists.submission(Path("a list"), n)) for n in (1001, 1002))
    assert "split" not in first
    (line,) = re.findall(r"^split    (.*?)  # .* 1,001 elements by default$", last, re.M)
    subprocess.run(line, shell=True, check=True)
    pieces = sorted(path.name for path in tmp_path.iterdir())
    assert pieces == ["a list", "a list-aa", "a list-ab"]
    assert len(Path("a list-aa").read_text().splitlines()) == 1001


SELECT = "select=1:ncpus=64:mpiprocs=64:ompthreads=1"


@pytest.mark.parametrize(
    ("about", "slurm", "pbs"),
    [
        ((27,), "LIST=l sbatch --array=0-26%10", "LIST=l qsub -v LIST -J 0-26"),
        ((1,), "LIST=l sbatch --array=0-0%10", "LIST=l INDEX=0 qsub -v LIST,INDEX"),
        ((2, 0, "a b"), "LIST=l PROGRAM='a b' sbatch --array=0-1",
         "LIST=l PROGRAM='a b' qsub -v LIST,PROGRAM -J 0-1"),
        ((27, 64), "LIST=l sbatch --ntasks=64 --array=0-26%10",
         f"LIST=l LAUNCH='mpiexec -n 64' SELECT={SELECT} "
         f"qsub -v LIST,LAUNCH,SELECT -l {SELECT} -J 0-26"),
    ],
)  # fmt: skip
def test_a_list_is_submitted_as_an_array(monkeypatch, about, slurm, pbs):
    monkeypatch.chdir(ROOT)
    assert list(job_lists.submission(Path("l"), *about)) == [
        f"SLURM    {slurm} jobs/slurm-array.sbatch", f"PBS      {pbs} jobs/pbs-array.sh"
    ]  # fmt: skip


def swept(field, values="[0.1, 0.2]"):
    return f"[sweep]\nfield = '{field}'\nvalues = {values}"


def drawn(tool, out="x", arguments="[]"):
    return f"[[products]]\ntool = '{tool}'\nout = '{out}'\narguments = {arguments}\n"


NO_TOOL = "no command, nor a program of the checkout as tools.operators"
ADDED = [  # beside the settings
    (swept("sac.tau"), "sweep: sac.tau: no run reads it"),
    (swept("lr_es"), "variants.ES sets es.lr_es, which is swept"),
    (swept("sigmo"), "did you mean 'es.sigma'?"),
    (swept("seed", [1]), "field = 'seed': algorithms are variants"),
    (swept("algorithm", ["es"]), "algorithms are variants"),
    ("products = [3]", "products: 3: expected a table"),
    ("[[products]]\ntool = 'x.py'\nout = 'x'", "products: arguments is missing"),
    (drawn("x", arguments=[1]), "expected a list of str"),
    *(
        (drawn("plot", out), f"out = '{out}': a file's name")
        for out in ("", ".", "..", "a/x", "results.csv")
    ),
    (drawn("plot") * 2, "products: out = 'x' is that of two"),
    *((drawn(t), f"tool = '{t}': {NO_TOOL}") for t in ("", "operators", "esac_mpi.commands.plot")),
    (drawn("results", arguments=["draw", "{csv}"]), '`results draw` is gone: tool = "plot"'),
]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("claim =", "clam =", "unknown key 'clam'; did you mean 'claim'?"),
        ('claim = "none"', "", "claim is missing or empty"),
        ('claim = "none"', "claim = 3", "claim = 3: expected str"),
        ("es.lr_es = 0.02", "es.lr_se = 0.02",
         "variants.ES two: unknown key 'es.lr_se'; did you mean 'es.lr_es'?"),
        ("es.lr_es = 0.02", "es.lr_es = 'x'", "es.lr_es = 'x': expected a number"),
        ("es.lr_es = 0.02", "td3.lr_td3 = 0.02",
         "variants.ES two sets td3.lr_td3: algorithm = es does not read it"),
        ("[budgets.smoke.settings]",
         "seconds = 60\n[budgets.smoke.settings]\nbudget.minutes = 2",
         "smoke: seconds is budget.minutes, which settings has, too"),
        ("es.lr_es = 0.02", "es.population_size = 5", "must be even under mirrored sampling"),
        ("es.lr_es = 0.02", "es.population_size = 'auto'", "such as those that --check of one"),
        ('config = "cyclic-mdp"', 'config = "cyclic"', "there is no configs/esac/cyclic.toml"),
        ('config = "cyclic-mdp"', "max_hours = 1",
         "needs config, a file of configs/esac/, or task.id"),
        ("seeds = 2", "seeds = 0", "must be positive"),
        ("seeds = 2", "seeds = 1_000_000_000", "must be at most 100000"),
        ("seeds = 2", "ranks = [0]", "must be positive"),
        ("seeds = 2", "cores = 0", "must be positive"),
        ("seeds = 2", "cores = 8\nranks = [1, 4]", "smoke: ranks says how many each run has"),
        ("seeds = 2", "seconds = 0", "must be positive"),
        ("seeds = 2", "seconds = inf", "must be positive"),
        ("seeds = 2", f"seconds = {10**400}", "must be at most"),
        ("seeds = 2", "tasks = [1]", "tasks = [1]: expected a list of str"),
        ("seeds = 2", "tasks = 'cyclic'", "tasks = 'cyclic': expected list"),
        ('config = "cyclic-mdp"', "config = 3", "tasks.cyclic: config = 3: expected str"),
        ("[settings]", "[settings]\nseed = 3", "settings: seed: every run has its own"),
        ("[budgets.smoke.settings]", "[budgets.smoke.settings]\nrun_dir = 'x'",
         "smoke.settings: run_dir: every run has its own"),
        ("title", "points = -3\ntitle", "points = -3: expected 1 or more"),
        ("[tasks.cyclic]", '[tasks.two]\nconfig = "cyclic-mdp"\n[tasks.cyclic]',
         "tasks two and cyclic are both CyclicMDP-v0"),
        ("seeds = 2", "seed = 2", "unknown key 'seed'; did you mean 'seeds'?"),
        ("seeds = 2", "tasks = ['ciclic']", "tasks: unknown 'ciclic'; did you mean 'cyclic'?"),
        ("seeds = 2", "for_variant.Es.max_hours = 1",
         "for_variant: unknown 'Es'; did you mean 'ES'?"),
        ("seeds = 2", "values = [1]", "needs both field and values"),
        ("seeds = 2", "seeds = ", "not valid TOML"),
        ("seeds = 2", f"seeds = {'9' * 5000}", "not valid TOML: Exceeds the limit"),
        ("seeds = 2", f"seeds = {'[' * 3000}", "not valid TOML"),
        ("[budgets.smoke]", "[budgets.tiny]", "has no budget 'smoke'; it has tiny"),
        ('[variants."ES two"]', '[variants."ES "]', "two runs would share"),
        *(("[settings]", f"{more}\n[settings]", said) for more, said in ADDED),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_error_before_anything_runs(tmp_path, call, was, now, said):
    assert was in TOY
    text = TOY.replace(was, now)
    if "tiny" in now:
        text = text.replace("[budgets.smoke.settings]", "[budgets.tiny.settings]")
    line = f"experiment run {written(tmp_path / 'toy.toml', text)} --budget smoke"
    told = call(line, "--root", tmp_path / "runs", code=2).err
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "runs").exists()


def test_a_file_that_cannot_be_read_has_no_other_root(tmp_path, call):
    (tmp_path / "a.toml").mkdir()
    told = call("experiment run", tmp_path / "a.toml", code=2).err
    assert told == f"{tmp_path}/a.toml: Is a directory\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--seeds 1 2", "--seeds 2: toy, smoke, has 2, from 0 to 1\n"),
        ("--at-once 0", "--at-once: 0: must be at least 1\n"),
    ],
)
def test_runs_that_cannot_be_chosen_are_refused(tmp_path, call, words, said):
    line = f"experiment run {written(tmp_path / 'toy.toml', TOY)} --budget smoke"
    root = tmp_path / "runs"
    assert call(line, "--root", root, *words.split(), code=2).err.endswith(said)
    assert not root.exists()
