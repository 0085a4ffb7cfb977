"""Seconds of a generation by part, idle fraction of the ranks, time outside episodes."""

import argparse
from collections.abc import Iterator

import numpy as np

from esac_mpi.record import RunFiles
from tools.bench.measurement import Measurement
from tools.bench.program import dimension, idle, learner_phase, parts, train

STANDUP = "HumanoidStandup-v5"  # the parameters of Humanoid-v5, and no fall ends an episode


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the parts of a generation at 1 and 2 ranks, and the idle time where episodes differ in length."""
    short = learner_phase(100, 0.05)
    big = [
        ("es", STANDUP, 50, 2),
        ("es", "HalfCheetah-v5", 50, 4),
        ("esac", "HalfCheetah-v5", 50, 4),
    ]
    variable = [
        ("es", task, n, 8 if n > 8 else 20)
        for task in ("Hopper-v5", "Walker2d-v5")
        for n in (8, 50)
    ]
    rounds = options.rounds or 2
    more: tuple[object, ...] = ()
    if options.quick:
        big, variable, rounds = [("es", "HalfCheetah-v5", 4, 3)], [("es", "Hopper-v5", 4, 3)], 1
        more = ("--task.horizon", 20, "--policy.hidden", 8, 8)
    for algorithm, task, n, generations in big:
        extra = (*more, *(short if algorithm == "esac" else ()))
        by_ranks: dict[int, list[RunFiles]] = {1: [], 2: []}
        for _ in range(rounds):
            for ranks, runs in by_ranks.items():
                runs.append(train(ranks, algorithm, task, n, generations, *extra))
        for ranks, runs in by_ranks.items():
            yield from describe_generation(f"{algorithm} {task} n={n} ranks={ranks}", runs)
    for algorithm, task, n, generations in variable:
        runs = [train(2, algorithm, task, n, generations, *more) for _ in range(rounds)]
        yield from describe_idle(f"{algorithm} {task} n={n} ranks=2", runs)


def describe_generation(case: str, runs: list[RunFiles]) -> Iterator[Measurement]:
    """Yield the parts of a case's generations, the share outside episodes, and idle time."""
    d = dimension(runs[0])
    found = [parts(run) for run in runs]
    case = f"{case} d={d:,}"
    for name in found[0]:
        yield Measurement.of(
            "generation", case, name, "s", np.concatenate([part[name] for part in found])
        )
    wall = np.concatenate([np.diff(run.columns["timing/wall_seconds"]) for run in runs])
    learning = np.concatenate(
        [part.get("learn", np.zeros(1)) + 0 * part["episodes"] for part in found]
    )
    episodes = np.concatenate([part["episodes"] for part in found])
    yield Measurement.of("generation", case, "whole", "s", wall)
    yield Measurement.of(
        "generation",
        case,
        "outside episodes and learner / episodes",
        "ratio",
        (wall - learning) / episodes - 1,
    )
    yield from describe_idle(case, runs)


def describe_idle(case: str, runs: list[RunFiles]) -> Iterator[Measurement]:
    """Yield the idle fraction of each rank, and the spread of the episodes' lengths that makes it."""
    waits = np.concatenate([idle(run) for run in runs])
    lengths = np.concatenate([run.columns["metrics/length"][1:].ravel() for run in runs])
    yield Measurement.of("generation", case, "episode length", "steps", lengths)
    for rank, values in enumerate(waits.T):
        yield Measurement.of("generation", case, f"idle fraction of rank {rank}", "ratio", values)
