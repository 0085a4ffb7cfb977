"""Whole runs with their learner on a GPU: the promises, what is refused, who is on the device, what a phase beside costs.

Never run on a device so far. On a CPU (`device`) tests run what of it needs no GPU.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np

from esac_mpi.analysis.measures import best_return
from esac_mpi.host import affinity
from esac_mpi.record import Run
from tools.bench.gpu_bits import Finding
from tools.bench.program import ended, launch, learner_phase, train

SMALL = (
    "--task.id", "Pendulum-v1", "--task.horizon", 50, "--policy.hidden", 64, 64, "--evaluation.every", 5,
    "--evaluation.episodes", 2, "--display.style", "plain",
)  # fmt: skip
ESAC = (
    "--algorithm", "esac", "--esac.reading", "mended", "--esac.population_size", 20, "--esac.gradient_interval", 2,
    "--esac.sac_min_steps", 1500, "--esac.sac_episodes", 2, "--esac.learner_lag", 2, "--sac.start_steps", 100,
    "--sac.batch_size", 64,
)  # fmt: skip
PRECISION = (
    "--algorithm", "sac", "--task.id", "InvertedDoublePendulum-v5", "--policy.hidden", 256, 256, "--sac.start_steps", 1000,
    "--budget.env_steps", 12_000, "--evaluation.every", 20, "--evaluation.episodes", 10,
)  # fmt: skip
RANKS = min(16, len(affinity.cores()))
LONGEST = 60.0  # that one run may take: a rank or a driver that hangs must not take the rest of the time [s]
FILLER = """
import sys, torch
free = torch.cuda.mem_get_info()[0] - 2**30
kept = torch.empty(max(free, 0), dtype=torch.uint8, device="cuda")
print("filled", flush=True)
sys.stdin.read()
"""


def hashes(place: Path, device: str, ranks: int, generations: int) -> tuple[str, str]:
    """Run, or go on, in a directory; return the hashes of theta and of the whole state."""
    arguments = (
        "--run-dir",
        place,
        "--budget.generations",
        generations,
        *SMALL,
        *ESAC,
        "--learner.device",
        device,
    )
    launch(ranks, ["-m", "esac_mpi"], *arguments, seconds=LONGEST)
    about = Run.open(place).provenance
    return str(about["theta_sha256"]), str(about["state_sha256"])


def promises(device: str) -> Iterator[Finding]:
    """Check the bits of ESAC with a lag: stop + resume = straight, one rank = many, run = run; phases are of several chunks."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        straight = hashes(place / "straight", device, 2, 8)
        hashes(place / "resumed", device, 3, 5)
        yield Finding(
            "runs: stop + resume = straight",
            hashes(place / "resumed", device, 2, 8) == straight,
            straight[1][:12],
        )
        for ranks in dict.fromkeys((RANKS, 1)):
            same = hashes(place / f"on {ranks}", device, ranks, 8) == straight
            yield Finding(f"runs: 2 ranks = {ranks}", same, straight[1][:12])
        yield Finding(
            "runs: run = run", hashes(place / "again", device, 2, 8) == straight, straight[1][:12]
        )
        if device == "cpu":
            return
        hashes(place / "moved", "cpu", 2, 5)
        hashes(place / "moved", device, 2, 8)
        warned = "device: was cpu" in (place / "moved/log.txt").read_text()
        yield Finding("runs: from the CPU to the GPU, with a warning", warned, "")


def program(place: Path, device: str, *options: object) -> tuple[int | None, str]:
    """Run the program on one rank; return its exit code, None if it did not end in time, and what it said."""
    line = [
        sys.executable,
        "-m",
        "esac_mpi",
        "--run-dir",
        place,
        *SMALL,
        *ESAC,
        "--budget.generations",
        4,
    ]
    return ended([*line, "--learner.device", device, *options], LONGEST)


def trouble(device: str) -> Iterator[Finding]:
    """Check --check; and that a GPU that is not there, and one that another process fills, end a run before anything is made."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "run"
        _, said = program(place, device, "--check")
        told = next(
            (line for line in said.splitlines() if line.strip().startswith("GPU")), said[-500:]
        )
        yield Finding("--check", "updates/s" in told, told.strip())
        yield refused("cuda:99", place, "cuda:99")
        with filled():
            yield refused(
                "a full GPU", place, device, "--policy.hidden", 8192, 8192, "--sac.batch_size", 8192
            )


def refused(what: str, place: Path, device: str, *options: object) -> Finding:
    """Return whether the program refuses to begin on a device, with exit 2, one message, and nothing made."""
    code, said = program(place, device, *options)
    one = code == 2 and not place.exists() and "Traceback" not in said
    return Finding(f"trouble: {what}", one, f"exit {code}: {said.strip()[-500:]}")


@contextmanager
def filled() -> Iterator[None]:
    """Let another process have all of the GPU's memory but a gigabyte; in exclusive mode, the GPU itself."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", FILLER], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as other:
        assert other.stdout is not None
        try:
            if other.stdout.readline().strip() != "filled":
                other.kill()
                raise RuntimeError(
                    f"no process could fill the GPU: {other.communicate()[1].strip().rpartition(chr(10))[2]}"
                )
            yield
        finally:
            other.kill()


def on_the_device() -> set[int]:
    """Return the processes that have a device's memory open; nvidia-smi's list may have a container's under other numbers."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended, or is another's
            if os.readlink(link).startswith("/dev/nvidia-uvm"):
                found.add(int(link.parts[2]))
    return found


def processes(device: str) -> Iterator[Finding]:
    """Check that of four ranks one alone comes onto the device."""
    before, seen = on_the_device(), set[int]()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(1) as pool:
        arguments = (
            "--run-dir",
            f"{place}/run",
            *SMALL,
            *ESAC,
            "--budget.generations",
            16,
            "--learner.device",
            device,
        )
        run = pool.submit(partial(launch, 4, ["-m", "esac_mpi"], *arguments, seconds=LONGEST))
        while not run.done():
            seen |= on_the_device() - before
            time.sleep(0.2)
        run.result()
    yield Finding(
        "processes on the device: rank 0's alone", len(seen) == 1, f"{len(seen)} of 4 ranks"
    )


def beside(device: str) -> Iterator[Finding]:
    """Measure what a phase beside costs: busy seconds a step of ESAC with a lag over ES's, and of rank 0 on its phase."""
    common, learning = (
        ("--policy.hidden", 256, 256),
        (*learner_phase(2000, 1.0), "--learner.device", device),
    )
    task, n = "HalfCheetah-v5", 3 * RANKS + RANKS % 2
    es = train(RANKS, "es", task, n, 8, *common, seconds=LONGEST)
    lag = train(
        RANKS, "esac", task, n, 8, *common, *learning, "--esac.learner_lag", 2, seconds=LONGEST
    )
    costs = []
    for run in (es, lag):
        busy, steps = (
            run.columns["timing/busy_seconds"][3:].sum(1),
            run.columns["metrics/length"][3:].sum(1),
        )
        costs.append(np.median(busy / steps))
    yield Finding(
        "a phase beside: busy seconds a step over ES's",
        None,
        f"{costs[1] / costs[0]:.3f} on {RANKS} ranks",
    )
    seconds = [np.median(np.diff(run.columns["timing/wall_seconds"])[2:]) for run in (es, lag)]
    yield Finding(
        "a phase beside: seconds a generation, ES, ESAC",
        None,
        f"{seconds[0]:.3f}, {seconds[1]:.3f}",
    )


def precisions(device: str) -> Iterator[Finding]:
    """Compare what SAC returns on one task by precision, one seed each."""
    for precision in ("fp32", "tf32", "bf16") if device != "cpu" else ("fp32",):
        with tempfile.TemporaryDirectory() as place:
            options = (
                "--run-dir",
                f"{place}/run",
                *PRECISION,
                "--learner.device",
                device,
                "--learner.precision",
                precision,
            )
            launch(1, ["-m", "esac_mpi"], *options, seconds=LONGEST)
            run = Run.open(Path(place) / "run")
            updating = float(np.nansum(run.columns["timing/seconds_updates"]))
            rate = int(run.columns["metrics/gradient_updates"][-1]) / max(updating, 1e-9)
            yield Finding(
                f"return by precision: {precision}",
                None,
                f"best {best_return(run)}, {rate:,.0f} updates/s",
            )
