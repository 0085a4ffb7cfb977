"""A search: its trials are runs, by any number of tasks on any ranks, stopped, killed at will."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from conftest import ROOT, environment, finish, run
from short_runs import snapshot
from small_studies import SETTINGS, held_elsewhere, made, states, stopped_at, write
from whole_runs import assert_same_run, killed_at, status

import esac_mpi.studies.search
from esac_mpi.comm.command_ranks import Alone
from esac_mpi.commands.__main__ import main
from esac_mpi.record import Run
from esac_mpi.studies.search import trial_loop, trial_ranks
from esac_mpi.studies.search.journal import Journal
from esac_mpi.studies.search.study import read

pytestmark = pytest.mark.slow


CHANCE = "[sampler]\nkind = 'random'\nseed = 5"


def searched(study, **more):
    return trial_ranks.search(study.path, Alone(), **more)


def state(path):
    return status(path)["status"]


def test_trials_are_runs_and_the_best_becomes_a_configuration(tmp_path, call):
    file, task = write(tmp_path, "trials = 2\nseeds = [100, 7]"), tmp_path / "task"
    call("search run", file, "--run-dir", task)
    study = read(file)
    trials = Journal(study).trials()
    assert states(study) == [(0, "complete"), (1, "complete")]
    for trial in trials:
        runs = [Run.open(study.run_of(trial.number, seed)) for seed in study.seeds]
        assert [run.state for run in runs] == ["complete"] * 2
        assert [run.config.seed for run in runs] == [100, 7]
        assert {run.config.es.sigma for run in runs} == {trial.found["es.sigma"]}
        assert trial.value == sum(run.status["best_return"] for run in runs) / 2
        assert trial.reported == 20 + 19  # of the second seed; what is skipped is filled in
    assert state(task) == "complete"
    before = [snapshot(path) for path in sorted(study.path.glob("trial-*"))]
    call("search run", study.path, "--run-dir", task)  # by its directory: nothing to do
    assert before == [snapshot(path) for path in sorted(study.path.glob("trial-*"))]
    before = snapshot(study.path)
    shown = call("search show", file).out
    assert snapshot(study.path) == before
    best = max(trials, key=lambda trial: trial.value)
    assert "2 of 2 trials begun: 2 complete\n" in shown
    row = [str(best.number), "complete", f"{best.value:,.6g}"]
    assert shown.splitlines()[-4].split()[:3] == row
    call("search best", file, "--out", tmp_path / "best.toml")
    found = esac_mpi.config.load([str(tmp_path / "best.toml")])[0]
    sizes = {"es.sigma": found.es.sigma, "es.population_size": found.es.population_size}
    assert sizes == best.found
    assert (found.seed, found.task.horizon, found.budget.generations) == (0, 30, 10)
    for place in study.path.glob("trial-*"):
        shutil.rmtree(place)
    call("search best", file, "--out", tmp_path / "again.toml")  # the journal has all of it
    again = esac_mpi.config.load([str(tmp_path / "again.toml")])[0]
    assert replace(again.es, reward_shift=found.es.reward_shift) == found.es  # the task's number


def test_trials_that_time_ends_report_their_values(tmp_path, monkeypatch):
    honest, steps = Journal.report, []

    def report(journal, number, step, value):
        steps.append(step)
        return honest(journal, number, step, value)

    monkeypatch.setattr(Journal, "report", report)
    # each generation is a tenth of the minute
    monkeypatch.setattr(Run, "wall_seconds", property(lambda run: 6.0 * run.generations))
    minute = SETTINGS.replace("budget.generations = 10", "budget.minutes = 1")
    assert searched(made(tmp_path, "trials = 1", settings=minute)) == 0
    assert steps == list(range(2, 20, 2))


def by_hand(study, values):
    """Begin a study with trials that had 100 times their value in all parts but the first half."""
    journal = Journal(study, fresh=True)
    for value in values:
        number = journal.begin()
        journal.values(number)
        for step in range(1, 20):
            journal.report(number, step, value * (1 if step < 10 else 100))
        journal.complete(number, value)
    return journal


def test_trials_are_compared_at_every_step(tmp_path):
    """A trial that reports at few steps keeps its value between them, and to its end."""
    study = made(tmp_path, "trials = 3", tail="[pruner]\nstartup = 2\nwarmup = 0.5")
    journal = Journal(study, fresh=True)
    for value in (3.0, 5.0):
        number = journal.begin()
        journal.values(number)
        for step in (4, 11):
            assert not journal.report(number, step, value * step)
        journal.complete(number, value * 11)
    seen = journal._study.trials[0].intermediate_values
    assert seen == {**dict.fromkeys(range(4, 11), 12.0), **dict.fromkeys(range(11, 20), 33.0)}
    number = journal.begin()
    journal.values(number)
    assert not journal.report(number, 12, 45.0)  # the median of 33 and 55 is 44
    assert journal.report(journal.begin(), 13, 43.0)


def test_a_trial_below_the_median_is_given_up_saved_and_says_so(tmp_path, capfd):
    """The median of 1, 2 and 900 is 2, and 200 from the fifth generation on."""
    study = made(tmp_path, "trials = 4", tail="[pruner]\nstartup = 3\nwarmup = 0.5")
    by_hand(study, [1.0, 900.0, 2.0])
    assert searched(study, max_hours=1e-9) == 75  # this process began long ago
    assert len(states(study)) == 3
    assert searched(study) == 0
    run, trial = Run.open(study.run_of(3, 100)), Journal(study).trial(3)
    assert (run.state, run.generation) == ("pruned", 5)
    assert (trial.state, trial.reported) == ("pruned", 10)
    assert trial.value == run.columns["metrics/best_return"][-1]
    assert "trial 3: given up" in capfd.readouterr().out
    for name, rest in (("watch", ["--once"]), ("summary", ["--status", "pruned"])):
        assert main([name, str(run.path), *rest]) == 0
        assert "pruned" in capfd.readouterr().out
    assert main(["summary", str(run.path), "--resume"]) == 0
    assert capfd.readouterr().out == ""
    fifth, place = lambda row: row["generation"] == 5, tmp_path / "straight"
    esac_mpi.train(run.config, run_dir=place, callback=fifth, quiet=True)
    assert_same_run(place, run.path)
    assert searched(study) == 0
    assert states(study)[3] == (3, "pruned")


def test_a_trial_is_in_living_hands_alone(tmp_path, monkeypatch):
    """A task takes no trial that a process holds, waits for none, and takes it when that died."""
    study = made(tmp_path, "trials = 2")
    for _ in range(2):
        Journal(study, fresh=True).begin()
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # where a run's lock would be waited for
    with held_elsewhere(study.lock_of(0)):
        assert searched(study) == 0
        assert states(study) == [(0, "running"), (1, "complete")]
    assert searched(study) == 0
    assert states(study) == [(0, "complete"), (1, "complete")]


def test_a_trial_finished_meanwhile_is_not_made_again(tmp_path, monkeypatch):
    study = made(tmp_path, "trials = 1")
    journal, honest = Journal(study, fresh=True), trial_loop.RunLock.claim
    journal.values(journal.begin())

    def late(held, *arguments, **more):
        if "locks" in held.path.parts:
            journal.complete(0, 1.0)
        return honest(held, *arguments, **more)

    monkeypatch.setattr(trial_loop.RunLock, "claim", late)
    assert searched(study) == 0
    assert not study.run_of(0, 100).exists()


def test_what_cannot_be_run_together_is_a_failed_trial(tmp_path):
    """Of the four combinations one is a mirrored population of an odd size."""
    pair = 'es.sampling = ["onesided", "mirrored"]\nes.population_size = [4, 5]'
    study = made(tmp_path, "trials = 3", search=pair, tail=CHANCE)
    assert searched(study) == 0
    trials = Journal(study).trials()
    bad = [trial.found == {"es.sampling": "mirrored", "es.population_size": 5} for trial in trials]
    assert [trial.state == "failed" for trial in trials] == bad
    assert [trial.state == "complete" for trial in trials] == [not one for one in bad]
    assert ["even" in trial.why for trial in trials] == bad
    assert 0 < sum(bad) < 3


def test_a_killed_tasks_trial_goes_on_to_the_bit(tmp_path, capfd):
    """Killed in generation 9 of trial 0, with a checkpoint of 8; trial 1 is stopped by SIGTERM."""
    file = write(tmp_path, "trials = 2", SETTINGS.replace("generations = 10", "generations = 11"))
    killed_at([("esac_mpi.training.loop:end_is_wished", 9)], "search", "run", file)
    study, task = read(file), tmp_path / "task"
    assert states(study) == [(0, "running")]
    main(["search", "show", str(file)])
    assert "1 left; " in capfd.readouterr().out
    line = ["search", "run", str(file), "--run-dir", str(task)]
    with stopped_at(1, 5):  # generation 3 of 11
        assert main(line) == 75
    assert states(study) == [(0, "complete"), (1, "running")]
    assert (state(task), state(study.run_of(1, 100))) == ("requeue", "requeue")
    assert main(line) == 0
    assert states(study) == [(0, "complete"), (1, "complete")]
    assert state(task) == "complete"
    for number in (0, 1):
        run = Run.open(study.run_of(number, 100))
        assert "resumed at generation" in (run.path / "log.txt").read_text()
        esac_mpi.train(run.config, run_dir=tmp_path / str(number), quiet=True)
        assert_same_run(tmp_path / str(number), run.path)


def test_ranks_make_the_trials_that_one_process_makes(tmp_path, together):
    studies = []
    for ranks in (1, 2):
        (tmp_path / str(ranks)).mkdir()
        tail = "[pruner]\nstartup = 1\nwarmup = 0.1"
        studies.append(made(tmp_path / str(ranks), "trials = 2", tail=tail))
    one, two = studies
    assert searched(one) == 0
    told = together(2, "search", "run", two.path)
    assert told.stdout.count("trial 0: ") == 2  # rank 0 alone speaks: its values, its result
    trials = [
        [(trial.state, trial.found, trial.value) for trial in Journal(study).trials()]
        for study in studies
    ]
    assert trials[0] == trials[1]
    for number in range(2):
        assert_same_run(*(study.run_of(number, 100) for study in studies))


def test_a_refusal_of_rank_0_ends_all_ranks_with_one_sentence(tmp_path, together):
    file = write(tmp_path, search="es.sigma = {low = 2, high = 1}")
    told = together(2, "search", "run", file, code=2)
    assert told.stderr.count("low = 2 must be below high = 1") == 1


MEETING = """
import sys, time
from pathlib import Path
from esac_mpi.training import loop
from esac_mpi.commands.__main__ import main
honest, study = loop.end_is_wished, Path(sys.argv[2])

def meets(job):
    while len(list(study.glob("trial-*"))) < 2:
        time.sleep(0.02)
    return honest(job)

loop.end_is_wished = meets
sys.exit(main(["search", "run", sys.argv[1], "--run-dir", sys.argv[3]]))
"""


FAILING = """
from esac_mpi.comm.command_ranks import over_ranks

def main(world):
    if world.rank == 0:
        raise ZeroDivisionError("of rank 0")
    return world.from_root(0)

over_ranks(main)
"""


def test_an_error_of_rank_0_ends_the_ranks_that_wait_for_it(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = run(2, program=(str(tmp_path / "failing.py"),), code=None)
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: of rank 0") == 1


def test_tasks_at_once_share_a_study_and_never_a_trial(tmp_path):
    """Two processes, of which each waits in its first trial for the other one's."""
    file, places = write(tmp_path, "trials = 3"), [tmp_path / "0", tmp_path / "1"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    line = [sys.executable, "-c", MEETING, file, tmp_path / "study"]
    tasks = [subprocess.Popen([*line, place], env=environment(), **streams) for place in places]
    told = [task.communicate(timeout=300) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], told
    begun = [set(map(int, re.findall(r"trial (\d+): es", out))) for out, _ in told]
    assert begun[0] | begun[1] == set(range(3))
    assert not begun[0] & begun[1]
    assert all(begun)
    study = read(file)
    assert states(study) == [(number, "complete") for number in range(3)]
    for number in range(3):
        log = (study.run_of(number, 100) / "log.txt").read_text()
        assert log.count("parameters") == 1  # begun once
    assert [state(place) for place in places] == ["complete"] * 2


def test_the_job_scripts_take_the_list_of_a_job_array(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, out = write(tmp_path, "trials = 1"), tmp_path / "study/jobs.txt"
    told = call("search jobs --tasks 2", file.name).out.splitlines()
    assert told[1] == "2 tasks for 1 trials, 1 seed each"
    program = "esac-mpi"
    slurm = f"SLURM    LIST={out} PROGRAM={program} sbatch --array=0-1 jobs/slurm-array.sbatch"
    assert told[2] == slurm
    lines = out.read_text().splitlines()
    assert lines == [f"search run toy.toml --run-dir {tmp_path}/study/tasks/{i}" for i in (0, 1)]
    for name in ("slurm-array.sbatch", "pbs-array.sh"):
        text = (ROOT / "jobs" / name).read_text()
        assert '$PROGRAM "${words[@]:0:n-2}"' in text
        assert ': "${PROGRAM:=' in text
    (tmp_path / "bin").mkdir()
    for name in ("activate", "scontrol"):
        (tmp_path / "bin" / name).touch()
    environ = {"SLURM_ARRAY_TASK_ID": "1", "LIST": str(out), "PROGRAM": program, "LAUNCH": "env"}
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    finish(["bash", ROOT / "jobs/slurm-array.sbatch"], VENV=str(tmp_path), PATH=path, **environ)
    assert state(tmp_path / "study/tasks/1") == "complete"
    assert [state for _, state in states(read(file))] == ["complete"]


def test_without_optuna_it_is_one_sentence(tmp_path, call, monkeypatch):
    file = write(tmp_path)
    for name in ("journal", "trial_loop", "report"):
        monkeypatch.delitem(sys.modules, f"esac_mpi.studies.search.{name}", raising=False)
        monkeypatch.delattr(esac_mpi.studies.search, name, raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    for action in ("run", "show"):
        told = call(f"search {action}", file, code=2).err
        assert told == "A search needs optuna: pip install -c constraints.txt -e '.[search]'\n"
    assert "\nsearch =" in (ROOT / "setup.cfg").read_text()
    assert not (tmp_path / "study").exists()
