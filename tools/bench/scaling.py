"""Seconds per generation at every rank count here, and a SIMULATION beyond, from one rank.

The clock is esac_mpi.analysis.clock's, which says what it takes for granted. Beside it: a larger
population has episodes as long as those drawn, with replacement, from a recorded generation's, and
its update takes as much longer as there are members; a whole phase of the learner takes as much
longer than the measured one as it has more updates.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from esac_mpi import config
from esac_mpi.analysis.clock import recorded
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.generations import Generation, ticks
from esac_mpi.host import affinity
from esac_mpi.operators.noise import pieces
from esac_mpi.record import RunFiles
from tools.bench.measurement import Figure
from tools.bench.program import dimension, learner_phase, span, train

TASK, N = "HalfCheetah-v5", 50
POPULATIONS, RANKS = (50, 500, 5000), [2**i for i in range(13)]
G = config.ESAC().gradient_interval
FIRST = 2 * G  # generations that are left out: the first phase warms up, the second is merged
WHOLE = config.ESAC().sac_episodes * 1000 * config.SAC().updates_per_step  # updates of a phase
KINDS = {"ES": None, "ESAC, lag 0": 0, f"ESAC, lag {G}": G}  # with the learner_lag of ESAC
TOY = "--task.horizon", 20, "--policy.hidden", 8, 8


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure generations at each number of ranks here; compute a cluster's from one rank's."""
    cores, n = len(affinity.cores()), 8 if quick else N
    for name in KINDS:
        runs = {}
        for ranks in [r for r in RANKS if r < cores] + [cores]:
            made = [measured(name, n, ranks, *(TOY if quick else ())) for _ in range(rounds or 1)]
            runs[ranks] = made
            case = f"{name} {TASK} n={n} ranks={ranks}"
            seconds = np.array([span(run, FIRST) for run in made]) / (made[0].generation - FIRST)
            yield Figure(case, "generation", "s", seconds)
            alike = simulated(runs[1][0], n, ranks, whole=False)
            yield Figure(case, "simulated / measured", "ratio", alike / seconds, True)
        for population in POPULATIONS[: 1 if quick else None]:
            for ranks in RANKS[:: 6 if quick else 1]:
                yield from compute_beyond(
                    f"{name} n={population} ranks={ranks}", runs[1][0], population, ranks
                )


def measured(name: str, n: int, ranks: int, *more: object) -> RunFiles:
    """Run a kind; its learner's phases are shorter than whole ones, which take minutes."""
    if (lag := KINDS[name]) is None:
        return train(ranks, "es", TASK, n, FIRST + G, *more)
    options = *learner_phase(1000, 0.3, G), "--esac.learner_lag", lag, *more
    return train(ranks, "esac", TASK, n, FIRST + G, *options)


def compute_beyond(case: str, run: RunFiles, n: int, ranks: int) -> Iterator[Figure]:
    """Yield a generation of n members, and from which updates/s a phase is no floor."""
    seconds = simulated(run, n, ranks)
    yield Figure(case, "generation", "s", seconds, True)
    if run.config.algorithm == "es":
        yield Figure(case, "learner no floor from", "updates/s", WHOLE / (G * seconds), True)
    else:
        floor = max(each.phase + each.begun for each in generations(run, n, True)) / G
        yield Figure(case, "phase / interval", "s", floor, True)


def simulated(run: RunFiles, n: int, ranks: int, whole: bool = True) -> float:
    """Return the seconds of a generation of n members, mean after the first cycle."""
    ends = list(ticks(generations(run, n, whole), Cluster(ranks)))
    return (ends[-1] - ends[G - 1]) / (len(ends) - G)


def generations(run: RunFiles, n: int, whole: bool) -> Iterator[Generation]:
    """Yield the run's later generations with n members and, if `whole`, whole phases."""
    random, d = np.random.default_rng(0), dimension(run)
    parts = recorded.times(run)
    parts["evaluation"][:] = np.nan  # the one at the end is no generation's
    made = list(recorded.generations(run, parts))[G:]
    updates = np.diff(run.columns.get("metrics/gradient_updates", [0, 0])).max()
    longer = WHOLE / updates if whole and updates else 1.0
    for each in made:
        yield replace(
            each, members=random.choice(each.members, n),
            expected=np.ones(n), blocks=pieces(d, n // 2),
            update=each.update * n / len(each.members),
            phase=each.phase * longer, begun=each.begun * longer,
        )  # fmt: skip
