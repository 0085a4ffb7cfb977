"""A search: its trials are runs, by any number of tasks on any ranks, stopped, killed at will."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from commands import command
from conftest import ROOT, environment, run
from small_studies import SETTINGS, held_elsewhere, made, write
from whole_runs import assert_same_run

import esac_mpi.studies.search
from esac_mpi.comm.command_ranks import Alone
from esac_mpi.record import Run, lock
from esac_mpi.studies.search import trial_loop, trial_ranks
from esac_mpi.studies.search.journal import Journal
from esac_mpi.studies.search.study import read

pytestmark = pytest.mark.slow

search = command("search")


CHANCE = "[sampler]\nkind = 'random'\nseed = 5"


def states(study):
    return [(trial.number, trial.state) for trial in Journal(study).trials()]


def snapshot(path):
    return [(file.name, file.stat().st_mtime_ns) for file in sorted(path.iterdir())]


def status(path):
    return json.loads((path / "status.json").read_text())["status"]


def test_trials_are_runs_of_every_seed_and_the_best_becomes_a_configuration(tmp_path, capsys):
    file = write(tmp_path, "trials = 2\nseeds = [100, 7]")
    assert search.main(["run", str(file), "--run-dir", str(tmp_path / "task")]) == 0
    study = read(file)
    trials = Journal(study).trials()
    assert [(trial.number, trial.state) for trial in trials] == [(0, "complete"), (1, "complete")]
    for trial in trials:
        runs = [Run.open(study.run_of(trial.number, seed)) for seed in study.seeds]
        assert [run.state for run in runs] == ["complete"] * 2
        assert [run.config.seed for run in runs] == [100, 7]
        assert {run.config.es.sigma for run in runs} == {trial.found["es.sigma"]}
        assert trial.value == sum(run.status["best_return"] for run in runs) / 2
        assert trial.reported == 20 + 19  # of the second seed; what is skipped is filled in
    assert status(tmp_path / "task") == "complete"
    capsys.readouterr()
    before = [snapshot(path) for path in sorted(study.path.glob("trial-*"))]
    assert (
        search.main(["run", str(study.path), "--run-dir", str(tmp_path / "task")]) == 0
    )  # by its directory: nothing to do
    assert before == [snapshot(path) for path in sorted(study.path.glob("trial-*"))]
    before = snapshot(study.path)
    assert search.main(["show", str(file)]) == 0
    assert snapshot(study.path) == before
    best = max(trials, key=lambda trial: trial.value)
    shown = capsys.readouterr().out
    assert "2 of 2 trials begun: 2 complete\n" in shown
    assert shown.splitlines()[-4].split()[:3] == [
        str(best.number),
        "complete",
        f"{best.value:,.6g}",
    ]
    assert search.main(["best", str(file), "--out", str(tmp_path / "best.toml")]) == 0
    found = esac_mpi.config.load([str(tmp_path / "best.toml")])[0]
    assert (found.es.sigma, found.es.population_size) == (
        best.found["es.sigma"],
        best.found["es.population_size"],
    )
    assert (found.seed, found.task.horizon, found.budget.generations) == (0, 30, 10)
    assert search.main(["show", str(file), "--json", "--top", "1"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["trial"] == best.number


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


def test_trials_are_held_to_each_other_at_every_step_whichever_they_report_at(tmp_path):
    """A trial of large generations reports at few steps.

    What it had come to stands for those between, and to its end.
    """
    journal = by_hand(made(tmp_path, "trials = 3", tail="[pruner]\nstartup = 2\nwarmup = 0.5"), [])
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
    """The median of 1, 2 and 900 is 2, beneath any return of ours, then 200.

    It is 200 from the tenth part on, the fifth generation.
    """
    study = made(tmp_path, "trials = 4", tail="[pruner]\nstartup = 3\nwarmup = 0.5")
    by_hand(study, [1.0, 900.0, 2.0])
    assert (
        trial_ranks.search(study.path, Alone(), max_hours=1e-9) == 75
    )  # this process began long ago
    assert len(states(study)) == 3
    assert trial_ranks.search(study.path, Alone()) == 0
    run = Run.open(study.run_of(3, 100))
    assert (run.state, run.generation) == ("pruned", 5)
    trial = Journal(study).trial(3)
    assert (trial.state, trial.reported) == ("pruned", 10)
    assert trial.value == run.columns["metrics/best_return"][-1]
    assert "trial 3: given up" in capfd.readouterr().out
    for name, rest in (("watch", ["--once"]), ("summary", ["--status", "pruned"])):
        assert command(name).main([str(run.path), *rest]) == 0
        assert "pruned" in capfd.readouterr().out
    assert command("summary").main([str(run.path), "--resume"]) == 0
    assert capfd.readouterr().out == ""
    straight = esac_mpi.train(
        run.config,
        run_dir=tmp_path / "straight",
        callback=lambda row: row["generation"] == 5,
        quiet=True,
    )
    assert_same_run(straight.path, run.path)
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study)[3] == (3, "pruned")


def test_a_trial_is_in_living_hands_alone(tmp_path, monkeypatch):
    """A task takes no trial that a process holds, waits for none, and takes it when that died."""
    study = made(tmp_path, "trials = 2")
    for _ in range(2):
        Journal(study, fresh=True).begin()
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # where a run's lock would be waited for
    with held_elsewhere(study.lock_of(0)):
        assert trial_ranks.search(study.path, Alone()) == 0
        assert states(study) == [(0, "running"), (1, "complete")]
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete"), (1, "complete")]


def test_a_trial_whose_task_died_on_another_host_is_taken_once_silent(tmp_path):
    study = made(tmp_path, "trials = 1")
    Journal(study, fresh=True).begin()
    study.lock_of(0).mkdir(parents=True)
    file = study.lock_of(0) / "run.lock"
    file.write_text("elsewhere 1 then\n")
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "running")]
    long_ago = time.time() - 1.1 * lock.SILENT
    os.utime(file, (long_ago, long_ago))
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete")]


def test_a_trial_that_was_finished_between_two_looks_is_not_made_again(tmp_path, monkeypatch):
    study = made(tmp_path, "trials = 1")
    journal, honest = Journal(study, fresh=True), trial_loop.Held.claim
    journal.values(journal.begin())

    def late(held, *arguments, **more):
        if "locks" in held.path.parts:
            journal.complete(0, 1.0)
        return honest(held, *arguments, **more)

    monkeypatch.setattr(trial_loop.Held, "claim", late)
    assert trial_ranks.search(study.path, Alone()) == 0
    assert not study.run_of(0, 100).exists()


def test_each_of_a_trials_runs_may_fail_once(tmp_path):
    """Of two seeds one failed once and was begun again; then the other fails for the first time."""
    study = made(tmp_path, "trials = 1\nseeds = [100, 7]")
    journal = Journal(study, fresh=True)
    found = journal.values(journal.begin())
    journal.again(0, 100)
    for seed, said in ((100, "complete"), (7, "failed")):
        config = study.config(found, seed=seed, run_dir=str(study.run_of(0, seed)))
        run = esac_mpi.train(
            config,
            callback=lambda row, said=said: said == "failed" and row["generation"] == 4,
            quiet=True,
        )
        (run.path / "status.json").write_text(json.dumps({**run.status, "status": said}))
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete")]
    assert Journal(study).trial(0).again == [100, 7]


def test_what_cannot_be_run_together_is_a_failed_trial_and_the_next_one_is_made(tmp_path):
    """Of the four combinations one is a mirrored population of an odd size.

    Each choice goes with the first of the other.
    """
    pair = 'es.sampling = ["onesided", "mirrored"]\nes.population_size = [4, 5]'
    study = made(tmp_path, "trials = 3", search=pair, tail=CHANCE)
    assert trial_ranks.search(study.path, Alone()) == 0
    trials, bad = Journal(study).trials(), {"es.sampling": "mirrored", "es.population_size": 5}
    assert [trial.state for trial in trials] == [
        "failed" if trial.found == bad else "complete" for trial in trials
    ]
    assert ["even" in trial.why for trial in trials] == [trial.found == bad for trial in trials]
    assert 0 < sum(trial.found == bad for trial in trials) < 3


KILLED = """
import os, signal, sys
from esac_mpi.training import loop
from esac_mpi.commands.__main__ import main
honest, left = loop.end_is_wished, [int(sys.argv[2])]

def last(job):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(job)

loop.end_is_wished = last
main(["search", "run", sys.argv[1]])
"""


def test_a_killed_tasks_trial_goes_on_to_the_bit_and_is_nobody_elses(tmp_path, capfd):
    """Killed in generation 9 of trial 0, with a checkpoint of 8; trial 1 is stopped by SIGTERM."""
    file = write(tmp_path, "trials = 2", SETTINGS.replace("generations = 10", "generations = 11"))
    line = [sys.executable, "-c", KILLED, str(file), "9"]
    done = subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    study = read(file)
    assert states(study) == [(0, "running")]
    search.main(["show", str(file)])
    assert "1 left; " in capfd.readouterr().out

    def stops(journal, number, step, value):
        if (number, step) == (1, 5):  # generation 3 of 11
            signal.raise_signal(signal.SIGTERM)
        return honest(journal, number, step, value)

    honest = Journal.report
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Journal, "report", stops)
        assert search.main(["run", str(file), "--run-dir", str(tmp_path / "task")]) == 75
    assert states(study) == [(0, "complete"), (1, "running")]
    assert (status(tmp_path / "task"), status(study.run_of(1, 100))) == ("requeue", "requeue")
    assert search.main(["run", str(file), "--run-dir", str(tmp_path / "task")]) == 0
    assert states(study) == [(0, "complete"), (1, "complete")]
    assert status(tmp_path / "task") == "complete"
    for number in (0, 1):
        run = Run.open(study.run_of(number, 100))
        assert "resumed at generation" in (run.path / "log.txt").read_text()
        esac_mpi.train(run.config, run_dir=tmp_path / str(number), quiet=True)
        assert_same_run(tmp_path / str(number), run.path)


def test_ranks_make_the_trials_that_one_process_makes(tmp_path, together):
    tail = "[pruner]\nstartup = 1\nwarmup = 0.1"
    studies = []
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        file = write(folder, "trials = 2", tail=tail)
        if ranks == 1:
            assert trial_ranks.search(file, Alone()) == 0
        else:
            told = together(ranks, "search", "run", file)
            assert (
                told.stdout.count("trial 0: ") == 2
            )  # rank 0 alone speaks: its values, its result
        studies.append(read(file))
    one, two = (Journal(study).trials() for study in studies)
    assert [(trial.state, trial.found, trial.value) for trial in one] == [
        (trial.state, trial.found, trial.value) for trial in two
    ]
    for number in range(2):
        assert_same_run(*(study.run_of(number, 100) for study in studies))


def test_a_refusal_of_rank_0_ends_all_ranks_with_one_sentence(tmp_path, together):
    file = write(tmp_path, search="es.sigma = {low = 2, high = 1}")
    assert (
        together(2, "search", "run", file, code=2).stderr.count("low = 2 must be below high = 1")
        == 1
    )


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

def main(arguments, world):
    if world.rank == 0:
        raise ZeroDivisionError("of rank 0")
    return world.from_root(0)

over_ranks(main, [])
"""


def test_an_error_of_rank_0_ends_the_ranks_that_wait_for_it(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = run(2, program=(str(tmp_path / "failing.py"),), code=None)
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: of rank 0") == 1


def test_tasks_at_once_share_a_study_and_never_a_trial(tmp_path):
    """Two processes, of which each waits in its first trial for the other one's."""
    file = write(tmp_path, "trials = 5")
    lines = [
        [sys.executable, "-c", MEETING, file, tmp_path / "study", tmp_path / str(i)] for i in (0, 1)
    ]
    pipes = {
        "env": environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    tasks = [subprocess.Popen(line, **pipes) for line in lines]
    told = [task.communicate(timeout=300) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], told
    begun = [set(map(int, re.findall(r"trial (\d+): es", out))) for out, _ in told]
    assert begun[0] | begun[1] == set(range(5))
    assert not begun[0] & begun[1]
    assert all(begun)
    study = read(file)
    assert states(study) == [(number, "complete") for number in range(5)]
    for number in range(5):
        assert (study.run_of(number, 100) / "log.txt").read_text().count(
            "parameters"
        ) == 1  # begun once
    assert [status(tmp_path / str(i)) for i in (0, 1)] == ["complete"] * 2


def test_the_list_of_a_job_array_is_one_that_the_job_scripts_take(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "trials = 1")
    assert search.main(["jobs", file.name, "--tasks", "2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "2 tasks for 1 trials, 1 seed each"
    out = tmp_path / "study/jobs.txt"
    assert (
        told[2] == f"SLURM    LIST={out} PROGRAM='python -m esac_mpi.commands' "
        "sbatch --array=0-1 jobs/slurm-array.sbatch"
    )
    lines = out.read_text().splitlines()
    assert lines == [f"search run toy.toml --run-dir {tmp_path}/study/tasks/{i}" for i in (0, 1)]
    scripts = [
        (ROOT / "jobs" / name).read_text() for name in ("slurm-array.sbatch", "pbs-array.sh")
    ]
    assert all(
        '$PROGRAM "${words[@]:0:n-2}"' in text and ': "${PROGRAM:=' in text for text in scripts
    )
    environ = {
        **environment(),
        "SLURM_ARRAY_TASK_ID": "1",
        "LIST": str(out),
        "PROGRAM": "python -m esac_mpi.commands",
    }
    environ |= {
        "LAUNCH": "env",
        "VENV": str(tmp_path),
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").touch()
    (tmp_path / "bin/scontrol").touch()
    done = subprocess.run(
        ["bash", str(ROOT / "jobs/slurm-array.sbatch")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert status(tmp_path / "study/tasks/1") == "complete"
    assert [state for _, state in states(read(file))] == ["complete"]


def test_without_optuna_it_is_one_sentence_and_nothing_is_made(tmp_path, capsys, monkeypatch):
    file = write(tmp_path)
    for name in ("journal", "trial_loop", "report"):
        monkeypatch.delitem(sys.modules, f"esac_mpi.studies.search.{name}")
        monkeypatch.delattr(esac_mpi.studies.search, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    for words in (["run", str(file)], ["show", str(file)]):
        assert search.main(words) == 2
        assert capsys.readouterr().err == "A search needs optuna: pip install 'esac_mpi[search]'\n"
    assert not (tmp_path / "study").exists()
