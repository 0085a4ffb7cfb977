"""The program as a process, on a number of ranks, and where the time of its generations went."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import esac_mpi
from esac_mpi.analysis.messages import Failed, Unusable
from esac_mpi.play.params import make_env, make_layout
from esac_mpi.record import Run, RunFiles
from tools import processes

ROOT = Path(esac_mpi.__file__).parents[1]  # where the program is imported from
INTERVAL = 2  # generations between the measured learner phases


def launcher() -> str:
    """Return the mpirun of this environment, else the one on the PATH. Raises Unusable."""
    ours = Path(sys.executable).parent / "mpirun"
    found = str(ours) if ours.exists() else shutil.which("mpirun")
    if found is None:
        raise Unusable("no mpirun here: pip install esac_mpi[mpich], or load the cluster's MPI")
    return found


def environ(**more: str) -> dict[str, str]:
    """Return the environment of a program that finds this one, and what else is to be in it."""
    return {
        **os.environ,
        **more,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }


def ended(line: Sequence[object], seconds: float | None = None) -> tuple[int | None, str]:
    """Run a program that finds this one, for so long at most; return its exit code, None if it was ended, and what it printed."""
    said: list[str] = []
    code = processes.follow(line, seconds, said.append, environ())
    return code, "\n".join(said)


def launch(
    ranks: int, program: Sequence[str], *arguments: object, seconds: float | None = None
) -> None:
    """Run a Python program on a number of ranks to its end.

    Raises Failed with its output if it fails, or has not ended after so many seconds.
    """
    line = [launcher(), "-n", str(ranks), sys.executable, *program, *map(str, arguments)]
    code, said = ended(line, seconds)
    if code != 0:
        how = f"not ended after {seconds:g} s" if code is None else f"exit {code}"
        raise Failed(f"{' '.join(line)}\n{how}\n{said}")


def train(
    ranks: int,
    algorithm: str,
    task: str,
    n: int,
    generations: int,
    *more: object,
    seconds: float | None = None,
) -> RunFiles:
    """Run a population for so many generations, without evaluations before its end; return what it left."""
    return recorded(
        ranks, "--algorithm", algorithm, "--task.id", task, f"--{algorithm}.population_size", n,
        "--budget.generations", generations, "--evaluation.every", generations + 1, "--evaluation.episodes", 1,
        "--checkpoint.every_generations", 0, *more, seconds=seconds,
    )  # fmt: skip


def recorded(ranks: int, *options: object, seconds: float | None = None) -> RunFiles:
    """Run the program in a temporary directory; return what it left there."""
    with tempfile.TemporaryDirectory() as place:
        launch(
            ranks,
            ["-m", "esac_mpi"],
            "--run-dir",
            f"{place}/run",
            "--display.style",
            "plain",
            *options,
            seconds=seconds,
        )
        run = Run.open(Path(place) / "run")
        list(run.columns.values())  # read now: the directory goes
        return run


def column(run: RunFiles, name: str) -> np.ndarray:
    """Return a timing of each generation but the first, mean over ranks where there are several, [generations - 1] [s]."""
    values = run.columns[f"timing/{name}"][1:].astype(float)
    return np.nanmean(values.reshape(len(values), -1), axis=1)


def learner_phase(steps: int, rate: float) -> tuple[object, ...]:
    """Return the options of a learner phase of about so many steps, with so many updates a step, every INTERVAL generations."""
    return (
        "--esac.reading", "mended", "--esac.gradient_interval", INTERVAL, "--esac.p_sac_decay", 1e12, "--esac.sac_episodes", 1,
        "--esac.sac_min_steps", steps, "--sac.updates_per_step", rate,
        "--sac.start_steps", 0,
    )  # fmt: skip


def dimension(run: RunFiles) -> int:
    """Return the number of parameters of a run's policy."""
    return make_layout(run.config, make_env(run.config)).d


def parts(run: RunFiles) -> dict[str, np.ndarray]:
    """Return the seconds of each part of the generations but the first, mean over the ranks, [generations - 1].

    waiting: for the slowest rank's last member. exchange: from there to the end of the evaluation on rank 0.
    """
    busy, most = column(run, "busy_mean"), column(run, "busy_max")
    evaluate = np.maximum(column(run, "seconds_evaluate"), most)
    noise = column(run, "seconds_noise") / column(run, "busy_ranks")
    found = {
        "noise": noise,
        "episodes": busy - noise,
        "waiting": most - busy,
        "exchange": evaluate - most,
    }
    later = {name: f"seconds_{name}" for name in ("plan", "update", "learn", "record")}
    return {
        **found,
        **{name: column(run, key) for name, key in later.items() if f"timing/{key}" in run.columns},
    }


def idle(run: RunFiles) -> np.ndarray:
    """Return 1 - busy / time of the evaluation, of each generation but the first and each rank, [generations - 1, ranks]."""
    busy = run.columns["timing/busy_seconds"][1:]
    wall = np.maximum(run.columns["timing/seconds_evaluate"][1:], busy.max(axis=1))
    return 1 - busy / wall[:, None]
