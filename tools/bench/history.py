"""What a run's history costs as it grows: append, publication, checkpoint, memory."""

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config import Config
from esac_mpi.record import Run
from tools.bench.measurement import Figure

EVERY = 500  # generations between two checkpoints
SCALARS = (30, 18)  # columns of one number in metrics/ and timing/


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure what the history of a run costs as it grows."""
    sizes = ((4, 2),) if quick else ((50, 16), (500, 64))
    for n, ranks in sizes:
        with tempfile.TemporaryDirectory() as place:
            marks = (5, 10) if quick else (1_000, 10_000, 100_000)
            yield from grow(Path(place) / "run", n, ranks, marks)


def row(random: np.random.Generator, generation: int, n: int, ranks: int) -> tuple[Any, Any]:
    """Return metrics and timing of a generation."""
    one, other = ({f"scalar_{i}": random.random() for i in range(count)} for count in SCALARS)
    wide = {"length": np.full(n, 1000), "parent": np.arange(n), "winners": np.arange(n * 2 // 5)}
    evaluated = {name: random.random(10) for name in ("evaluation_theta_es", "evaluation_sac")}
    metrics = {"generation": generation, "fitness": random.random(n), **wide, **evaluated, **one}
    busy = {"busy_seconds": random.random(min(ranks, 64)), "member_seconds": random.random(n)}
    return metrics, {**busy, **other}


def grow(path: Path, n: int, ranks: int, marks: tuple[int, ...]) -> Iterator[Figure]:
    """Add rows up to the last mark; yield the figures at each."""
    random, state = np.random.default_rng(0), {"theta_es": np.zeros(1000, np.float32)}
    run = Run.begin(path, Config(), {})
    run.checkpoint(0, state, {})
    for start, stop in zip((0, *marks), marks, strict=False):
        appends, checkpoints, publications = [], [], []
        for generation in range(start + 1, stop + 1):
            made = row(random, generation, n, ranks)
            began = time.perf_counter()
            run.append(*made)
            appends.append(time.perf_counter() - began)
            if generation % EVERY == 0 or generation == stop:
                run.checkpoint(generation, state, {})
                checkpoints.append(run.checkpoint_seconds)
                began = time.perf_counter()
                run.publish_metrics(force=True)
                publications.append(time.perf_counter() - began)
        case = f"n={n} ranks={ranks} generations={stop:,}"
        yield Figure(case, "append", "s", np.mean(appends[-EVERY:]))
        yield Figure(case, "checkpoint", "s", checkpoints[-40:])
        yield Figure(case, "metrics.h5", "s", publications[-40:])
        yield Figure(case, "written by a checkpoint", "MiB", run.checkpoint_bytes / 2**20)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        yield Figure(case, "peak memory of the process", "MiB", peak)
    run.close()
