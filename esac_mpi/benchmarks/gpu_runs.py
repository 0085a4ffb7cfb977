"""Whole runs with their learner on a GPU: the promises, what is refused, who is on the device, what a phase beside costs.

Never run on a device so far.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from esac_mpi import affinity
from esac_mpi.analysis.measures import best_return
from esac_mpi.benchmarks.gpu_bits import Finding
from esac_mpi.benchmarks.program import ROOT, launch, learner_phase, train
from esac_mpi.record import Run

SMALL = (
    "--task.id", "Pendulum-v1", "--task.horizon", 50, "--policy.hidden", 64, 64, "--evaluation.every", 5,
    "--evaluation.episodes", 2, "--display.style", "plain", "--learner.device", "cuda",
)  # fmt: skip
ESAC = (
    "--algorithm", "esac", "--esac.population_size", 20, "--esac.gradient_interval", 2, "--esac.sac_min_steps", 200,
    "--esac.sac_episodes", 2, "--esac.learner_lag", 2, "--sac.start_steps", 100, "--sac.batch_size", 64,
)  # fmt: skip
PRECISION = (
    "--algorithm", "sac", "--task.id", "InvertedDoublePendulum-v5", "--policy.hidden", 256, 256, "--sac.start_steps", 1000,
    "--budget.env_steps", 12_000, "--evaluation.every", 20, "--evaluation.episodes", 10, "--learner.device", "cuda",
)  # fmt: skip
RANKS = min(16, len(affinity.cores()))


def hashes(place: Path, ranks: int, generations: int, *options: object) -> tuple[str, str]:
    """Run, or go on, in a directory; return the hashes of theta and of the whole state."""
    arguments = ("--run-dir", place, "--budget.generations", generations, *SMALL, *ESAC, *options)
    launch(ranks, ["-m", "esac_mpi"], *arguments)
    about = Run.open(place).provenance
    return str(about["theta_sha256"]), str(about["state_sha256"])


def promises() -> Iterator[Finding]:
    """Check the bits of ESAC with a lag: run = run, stop + resume = straight, one rank = many."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        straight = hashes(place / "straight", 2, 8)
        yield Finding("runs: run = run", hashes(place / "again", 2, 8) == straight, straight[1][:12])
        hashes(place / "resumed", 3, 5)
        yield Finding("runs: stop + resume = straight", hashes(place / "resumed", 2, 8) == straight, straight[1][:12])
        for ranks in (1, RANKS):
            yield Finding(f"runs: 2 ranks = {ranks}", hashes(place / f"on {ranks}", ranks, 8) == straight, straight[1][:12])
        hashes(place / "moved", 2, 5, "--learner.device", "cpu")
        hashes(place / "moved", 2, 8)
        warned = "device: was cpu" in (place / "moved/log.txt").read_text()
        yield Finding("runs: from the CPU to the GPU, with a warning", warned, "")


def program(place: Path, *options: object) -> subprocess.CompletedProcess[str]:
    """Run the program on one rank; return how it ended."""
    line = [sys.executable, "-m", "esac_mpi", "--run-dir", place, *SMALL, *ESAC, "--budget.generations", 4, *options]
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(list(map(str, line)), env=environ, capture_output=True, text=True, check=False)


def trouble() -> Iterator[Finding]:
    """Check that a GPU that is not there, and one that another process fills, end a run before anything is made; and --check."""
    import torch

    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "run"
        ended = program(place, "--learner.device", "cuda:99")
        yield Finding("trouble: cuda:99", ended.returncode == 2 and not place.exists(), ended.stderr.strip())
        free = torch.cuda.mem_get_info()[0] - 2**30
        filled = torch.empty(max(free, 0), dtype=torch.uint8, device="cuda")
        ended = program(place, "--policy.hidden", 8192, 8192, "--sac.batch_size", 8192)
        yield Finding("trouble: a full GPU", ended.returncode == 2 and not place.exists(), ended.stderr.strip()[-500:])
        del filled
        torch.cuda.empty_cache()
        told = next((line for line in program(place, "--check").stdout.splitlines() if line.strip().startswith("GPU")), "")
        yield Finding("--check", "updates/s" in told, told.strip())


def on_the_device() -> set[int]:
    """Return the processes that have a device's memory open; nvidia-smi's list may have a container's under other numbers."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended, or is another's
            if os.readlink(link).startswith("/dev/nvidia-uvm"):
                found.add(int(link.parts[2]))
    return found


def processes() -> Iterator[Finding]:
    """Check that of four ranks one alone comes onto the device."""
    before, seen = on_the_device(), set[int]()
    with tempfile.TemporaryDirectory() as place:
        arguments = ("--run-dir", f"{place}/run", *SMALL, *ESAC, "--budget.generations", 60)
        mpirun = Path(sys.executable).parent / "mpirun"
        line = [mpirun if mpirun.exists() else "mpirun", "-n", 4, sys.executable, "-m", "esac_mpi", *arguments]
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        with subprocess.Popen(list(map(str, line)), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None:
                seen |= on_the_device() - before
                time.sleep(0.2)
    yield Finding("processes on the device: rank 0's alone", len(seen) == 1, f"{len(seen)} of 4 ranks")


def beside() -> Iterator[Finding]:
    """Measure what a phase beside costs: busy seconds a step of ESAC with a lag over ES's, and of rank 0 on its phase."""
    common, learning = ("--policy.hidden", 256, 256), (*learner_phase(2000, 1.0), "--learner.device", "cuda")
    task, n = "HalfCheetah-v5", 3 * RANKS + RANKS % 2
    es = train(RANKS, "es", task, n, 8, *common)
    lag = train(RANKS, "esac", task, n, 8, *common, *learning, "--esac.learner_lag", 2)
    costs = []
    for run in (es, lag):
        busy, steps = run.columns["timing/busy_seconds"][3:].sum(1), run.columns["metrics/length"][3:].sum(1)
        costs.append(np.median(busy / steps))
    yield Finding("a phase beside: busy seconds a step over ES's", None, f"{costs[1] / costs[0]:.3f} on {RANKS} ranks")
    seconds = [np.median(np.diff(run.columns["timing/wall_seconds"])[2:]) for run in (es, lag)]
    yield Finding("a phase beside: seconds a generation, ES, ESAC", None, f"{seconds[0]:.3f}, {seconds[1]:.3f}")


def precisions() -> Iterator[Finding]:
    """Compare what SAC returns on one task by precision, one seed each."""
    for precision in ("fp32", "tf32", "bf16"):
        with tempfile.TemporaryDirectory() as place:
            launch(1, ["-m", "esac_mpi"], "--run-dir", f"{place}/run", *PRECISION, "--learner.precision", precision)
            run = Run.open(Path(place) / "run")
            updating = float(np.nansum(run.columns["timing/seconds_updates"]))
            rate = int(run.columns["metrics/gradient_updates"][-1]) / max(updating, 1e-9)
            yield Finding(f"return by precision: {precision}", None, f"best {best_return(run)}, {rate:,.0f} updates/s")
