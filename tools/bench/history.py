"""What the history of a run costs as it grows, measured on rows of ESAC's size: append, publication, checkpoint, memory."""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from esac_mpi.config import Config
from esac_mpi.record import Run
from tools.bench.measurement import Measurement

EVERY = 500  # generations between two checkpoints
SCALARS = (30, 18)  # columns of one number in metrics/ and timing/
Figures = dict[str, tuple[str, list[float]]]  # what was measured: unit, values


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure what the history of a run costs as it grows."""
    cases, marks = (
        (((4, 2),), (5, 10)) if options.quick else (((50, 16), (500, 64)), (1_000, 10_000, 100_000))
    )
    for n, ranks in cases:
        with tempfile.TemporaryDirectory() as place:
            for generation, figures in grow(Path(place) / "run", n, ranks, marks):
                case = f"n={n} ranks={ranks} generations={generation:,}"
                for name, (unit, values) in figures.items():
                    yield Measurement.of("history", case, name, unit, values)


def row(random: np.random.Generator, generation: int, n: int, ranks: int) -> tuple[dict, dict]:
    """Return metrics and timing of a generation."""
    one, other = ({f"scalar_{i}": random.random() for i in range(count)} for count in SCALARS)
    wide = {"length": np.full(n, 1000), "parent": np.arange(n), "winners": np.arange(n * 2 // 5)}
    evaluated = {name: random.random(10) for name in ("evaluation_theta_es", "evaluation_sac")}
    metrics = {"generation": generation, "fitness": random.random(n), **wide, **evaluated, **one}
    return metrics, {
        "busy_seconds": random.random(min(ranks, 64)),
        "member_seconds": random.random(n),
        **other,
    }


def grow(path: Path, n: int, ranks: int, marks: tuple[int, ...]) -> Iterator[tuple[int, Figures]]:
    """Add rows up to the last mark; yield (generation, figures) at each."""
    random, run, state = (
        np.random.default_rng(0),
        Run.begin(path, Config(), {}),
        {"theta_es": np.zeros(1000, np.float32)},
    )
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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        last = 40  # of the checkpoints since the mark before
        yield (
            stop,
            {
                "append": ("s", [float(np.mean(appends[-EVERY:]))]),
                "checkpoint": ("s", checkpoints[-last:]),
                "metrics.h5": ("s", publications[-last:]),
                "written by a checkpoint": ("MiB", [run.checkpoint_bytes / 2**20]),
                "peak memory of the process": ("MiB", [peak]),
            },
        )
    run.close()
