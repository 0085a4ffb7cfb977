"""Seconds of a generation by part, idle fraction of the ranks, time outside episodes."""

from collections.abc import Iterator

import numpy as np

from esac_mpi.record import RunFiles
from tools.bench.measurement import Figure
from tools.bench.program import dimension, learner_phase, train

STANDUP = "HumanoidStandup-v5"  # the parameters of Humanoid-v5, and no fall ends an episode
BIG = ("es", STANDUP, 50, 2), ("es", "HalfCheetah-v5", 50, 4), ("esac", "HalfCheetah-v5", 50, 4)
UNEVEN = ("Hopper-v5", 8, 20), ("Hopper-v5", 50, 8), ("Walker2d-v5", 8, 20), ("Walker2d-v5", 50, 8)
TOY = "--task.horizon", 20, "--policy.hidden", 8, 8


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure a generation's parts at 1 and 2 ranks, and idle time of uneven episodes."""
    big, uneven, more = (BIG[1:2], UNEVEN[:1], TOY) if quick else (BIG, UNEVEN, ())
    turns = range(rounds or (1 if quick else 2))
    for algorithm, task, n, generations in big:
        extra = (*more, *(learner_phase(100, 0.05) if algorithm == "esac" else ()))
        made = [
            [train(ranks, algorithm, task, n, generations, *extra) for ranks in (1, 2)]
            for _ in turns
        ]
        for place, ranks in enumerate((1, 2)):
            runs = [pair[place] for pair in made]
            yield from by_part(
                f"{algorithm} {task} n={n} ranks={ranks} d={dimension(runs[0]):,}", runs
            )
    for task, n, generations in uneven:
        runs = [train(2, "es", task, n, generations, *more) for _ in turns]
        yield from idle(f"es {task} n={n} ranks=2", runs)


def by_part(case: str, runs: list[RunFiles]) -> Iterator[Figure]:
    """Yield the parts of a case's generations, the share outside episodes, and idle time."""
    found = [parts(run) for run in runs]
    for name in found[0]:
        yield Figure(case, name, "s", [part[name] for part in found])
    wall = np.array([np.diff(run.columns["timing/wall_seconds"]) for run in runs])
    yield Figure(case, "whole", "s", wall)
    outside = [w - part.get("learn", 0.0) for w, part in zip(wall, found, strict=True)]
    share = [w / part["episodes"] - 1 for w, part in zip(outside, found, strict=True)]
    yield Figure(case, "outside episodes and learner / episodes", "ratio", share)
    yield from idle(case, runs)


def parts(run: RunFiles) -> dict[str, np.ndarray]:
    """Return the seconds of each part, mean over the ranks, [generations - 1].

    waiting: for the slowest rank's last member. exchange: from there to the end of the evaluation
    on rank 0.
    """

    def column(name: str) -> np.ndarray:
        values = run.columns[f"timing/{name}"][1:].astype(float)
        return np.nanmean(values.reshape(len(values), -1), axis=1)

    busy, most = column("busy_mean"), column("busy_max")
    noise = column("seconds_noise") / column("busy_ranks")
    exchange = np.maximum(column("seconds_evaluate"), most) - most
    found = {"noise": noise, "episodes": busy - noise, "waiting": most - busy, "exchange": exchange}
    for name in ("plan", "update", "learn", "record"):
        if f"timing/seconds_{name}" in run.columns:
            found[name] = column(f"seconds_{name}")
    return found


def idle(case: str, runs: list[RunFiles]) -> Iterator[Figure]:
    """Yield each rank's idle fraction, 1 - busy / evaluation, and the episodes' lengths."""
    waits = []
    for run in runs:
        busy = run.columns["timing/busy_seconds"][1:]
        wall = np.maximum(run.columns["timing/seconds_evaluate"][1:], busy.max(axis=1))
        waits.append(1 - busy / wall[:, None])
    yield Figure(
        case, "episode length", "steps", [run.columns["metrics/length"][1:] for run in runs]
    )
    for rank, values in enumerate(np.concatenate(waits).T):
        yield Figure(case, f"idle fraction of rank {rank}", "ratio", values)
