"""The runs of an experiment as jobs of a batch system."""

import os
from pathlib import Path

import pytest

from esac_mpi.config import load
from esac_mpi.studies.experiments import jobs


def submit(tmp_path, call, name, *words, code=0):
    """Submit to stand-ins for a batch system; return what was printed and what they were told."""
    printed = call("experiment submit", name, "--root", tmp_path / "runs", *words, code=code)
    log = tmp_path / "log"
    return printed, log.read_text().splitlines() if log.exists() else []


def stand_in(tmp_path, monkeypatch, name, more=""):
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / name
    script.write_text(
        f'#!/bin/bash\necho "LIST=$LIST LAUNCH=$LAUNCH $@" >>"{tmp_path}/log"\n{more}'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_submit_without_a_batch_system_prints_how(tmp_path, call, monkeypatch):
    monkeypatch.setenv("PATH", "")
    printed, _ = submit(tmp_path, call, "fig6b")
    told, folder = printed.out.splitlines(), tmp_path / "runs/fig6b-paper"
    assert told[0] == f"{folder}/jobs-1-ranks.txt: 27 jobs of 1 rank"
    assert told[3] == f"{folder}/jobs-64-ranks.txt: 27 jobs of 64 ranks"
    assert told[4] == (
        f"sbatch  LIST={folder}/jobs-64-ranks.txt "
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
def test_submit_hands_a_list_to_the_system_by_ranks(tmp_path, call, monkeypatch, system, told):
    stand_in(tmp_path, monkeypatch, system)
    assert submit(tmp_path, call, "fig2b", "--dry-run")[1] == []
    _, seen = submit(tmp_path, call, "fig2b")
    assert len(seen) == 6  # 4, 8, 16, 32, 64, 96 ranks
    assert f"LIST={tmp_path}/runs/fig2b-paper/jobs-4-ranks.txt" in seen[0]
    assert all(text in seen[0] for text in told)


def test_a_batch_system_that_refuses_ends_it(tmp_path, call, monkeypatch):
    stand_in(tmp_path, monkeypatch, "sbatch", "exit 3\n")
    printed, seen = submit(tmp_path, call, "fig2b", code=1)
    assert "exit code 3; what follows it was not submitted" in printed.err
    assert len(seen) == 1


def test_one_job_is_no_pbs_array():
    environment, line = jobs.pbs(Path("l"), 1, 2)
    select = "select=1:ncpus=2:mpiprocs=2:ompthreads=1"
    assert environment == {"LIST": "l", "LAUNCH": "mpiexec -n 2", "SELECT": select, "INDEX": "0"}
    assert "-J" not in line
    assert "LIST,LAUNCH,SELECT,INDEX" in line
