"""The runs of an experiment as jobs of a batch system."""

import os
from pathlib import Path

import pytest
from commands import command

from esac_mpi.config import load
from esac_mpi.studies.experiments import jobs

experiment = command("experiment")


def submit(tmp_path, capsys, name, *arguments):
    """Submit to stand-ins for a batch system; return what was said and what they were told."""
    code = experiment.main(["submit", name, "--root", str(tmp_path / "runs"), *arguments])
    log = tmp_path / "log"
    return (
        code,
        capsys.readouterr().out.splitlines(),
        log.read_text().splitlines() if log.exists() else [],
    )


def stand_in(tmp_path, monkeypatch, name):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).write_text(
        f'#!/bin/bash\necho "LIST=$LIST LAUNCH=$LAUNCH $@" >>"{tmp_path}/log"\n'
    )
    (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_submit_without_a_batch_system_prints_how(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    code, told, _ = submit(tmp_path, capsys, "fig6b")
    folder = tmp_path / "runs/fig6b-paper"
    assert code == 0
    assert told[0] == f"{folder}/jobs-1-ranks.txt: 27 jobs of 1 rank"
    assert told[3] == f"{folder}/jobs-64-ranks.txt: 27 jobs of 64 ranks"
    assert (
        told[4] == f"sbatch  LIST={folder}/jobs-64-ranks.txt "
        "sbatch --ntasks=64 --array=0-26%10 jobs/slurm-array.sbatch"
    )
    select = "select=1:ncpus=64:mpiprocs=64:ompthreads=1"
    assert told[5] == (
        f"qsub    LIST={folder}/jobs-64-ranks.txt LAUNCH='mpiexec -n 64' SELECT={select} "
        f"qsub -v LIST,LAUNCH,SELECT -l {select} -J 0-26 jobs/pbs-array.sh"
    )
    lines = (folder / "jobs-64-ranks.txt").read_text().splitlines()
    assert len(set(lines)) == 27
    config, _ = load(lines[0].split())
    assert (config.algorithm, config.task.id, config.seed) == ("esac", "HalfCheetah-v5", 0)


@pytest.mark.parametrize(("system", "told"), [
    ("sbatch", ["--ntasks=4 --array=0-3%10 jobs/slurm-array.sbatch", "LAUNCH="]),
    ("qsub", ["-l select=1:ncpus=4:mpiprocs=4:ompthreads=1 -J 0-3 jobs/pbs-array.sh",
              "LAUNCH=mpiexec -n 4"]),
])  # fmt: skip
def test_submit_hands_a_list_for_each_number_of_ranks_to_the_batch_system(
    tmp_path, capsys, monkeypatch, system, told
):
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


def test_one_job_is_no_pbs_array():
    environment, line = jobs.pbs(Path("l"), 1, 2)
    select = "select=1:ncpus=2:mpiprocs=2:ompthreads=1"
    assert environment == {"LIST": "l", "LAUNCH": "mpiexec -n 2", "SELECT": select, "INDEX": "0"}
    assert "-J" not in line
    assert "LIST,LAUNCH,SELECT,INDEX" in line
