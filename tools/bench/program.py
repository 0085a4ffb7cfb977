"""The program as a process, on a number of ranks, and where the time of its generations went."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.play.params import make_env, make_layout
from esac_mpi.record import Run, RunFiles
from esac_mpi.studies.experiments.running import launcher
from tools import processes

INTERVAL = 2  # generations between the measured learner phases


def run_for(line: Sequence[object], seconds: float | None = None) -> tuple[int | None, str]:
    """Run a program for so long at most; return its exit code or None, and what it said."""
    said: list[str] = []
    code = processes.follow(line, seconds, said.append, processes.environ())
    return code, "\n".join(said)


def launch(
    ranks: int, program: Sequence[str], *arguments: object, seconds: float | None = None
) -> None:
    """Run a Python program on a number of ranks to its end.

    Raises Unusable with its output if it fails, or has not ended after so many seconds.
    """
    line = [*launcher(ranks), sys.executable, *program, *map(str, arguments)]
    code, said = run_for(line, seconds)
    if code != 0:
        how = f"not ended after {seconds:g} s" if code is None else f"exit {code}"
        raise Unusable(f"{' '.join(line)}\n{how}\n{said}", 1)


def train(
    ranks: int, algorithm: str, task: str, n: int, generations: int,
    *more: object, seconds: float | None = None,
) -> RunFiles:  # fmt: skip
    """Run a population, without evaluations before its end; return what it left."""
    return run_program(
        ranks, "--algorithm", algorithm, "--task.id", task, f"--{algorithm}.population_size", n,
        "--budget.generations", generations,
        "--evaluation.every", generations + 1, "--evaluation.episodes", 1,
        "--checkpoint.every_generations", 0, *more, seconds=seconds,
    )  # fmt: skip


def run_program(ranks: int, *options: object, seconds: float | None = None) -> RunFiles:
    """Run the program in a temporary directory; return what it left there."""
    with tempfile.TemporaryDirectory() as place:
        options = ("--run-dir", f"{place}/run", *options)
        launch(ranks, ["-m", "esac_mpi"], *options, seconds=seconds)
        run = Run.open(Path(place) / "run")
        list(run.columns.values())  # read now: the directory goes
        return run


def learner_phase(steps: int, rate: float, interval: int = INTERVAL) -> tuple[object, ...]:
    """Return the options of a learner phase of about so many steps, `rate` updates each."""
    return (
        "--esac.preset", "corrected", "--esac.gradient_interval", interval,
        "--esac.p_sac_decay", 1e12, "--esac.sac_episodes", 1,
        "--esac.sac_min_steps", steps, "--sac.updates_per_step", rate, "--sac.start_steps", 0,
    )  # fmt: skip


def dimension(run: RunFiles) -> int:
    """Return the number of parameters of a run's policy."""
    return make_layout(run.config, make_env(run.config)).d


def span(run: RunFiles, first: int) -> float:
    """Return the time of the generations after the `first` [s]."""
    return duration(run.columns["timing/wall_seconds"], first)


def duration(ends: np.ndarray, first: int) -> float:
    """Return the time of the generations after the `first`, given when each ended [s]."""
    return float(ends[-1] - ends[first - 1])
