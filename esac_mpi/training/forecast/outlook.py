"""How a run goes on these ranks: its generations followed through the clock, and added up."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster, steps
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Clock
from esac_mpi.config import AESRL, Config
from esac_mpi.training.forecast.generations import WITH_BARRIERS, Moment, generations, of_arrivals

LONGEST = 2000  # generations that are followed at most
PIECES = 100_000  # members in all of them, but for two evaluations


@dataclass(frozen=True)
class Outlook:
    """What a run is expected to take, from its first generation to the end of its budget."""

    ranks: int
    cores: int  # that it reserves: those of its ranks, and of the learner's further threads
    generations: float
    seconds: float  # in all
    idle: float  # share of the ranks' time in which they wait, 0 to 1

    @property
    def generation(self) -> float:
        """Mean time of a generation [s]."""
        return self.seconds / self.generations

    @property
    def core_hours(self) -> float:
        """What the job reserves [h]."""
        return self.cores * self.seconds / 3600


def cluster(ranks: int, per_node: int, pieces: Pieces, measured_on: int) -> Cluster:
    """Return ranks on nodes of so many; barriers as an exchange of `measured_on` ranks tells."""
    plain, there = Cluster(ranks, per_node), Cluster(measured_on, per_node)
    parties = 2 * steps(max(there.locals))
    if not parties or not pieces.exchange:
        return plain
    return Cluster(ranks, per_node, barrier=max(0.0, pieces.exchange - there.send(0)) / parties)


def unforeseen(config: Config) -> str:
    """Return the reason why an algorithm cannot be forecast, "" if it can."""
    says = hasattr(ALGORITHMS[config.algorithm], "expected")
    if says or type(config.own) in {*WITH_BARRIERS, AESRL}:
        return ""
    remedy = "its module says nothing of it by `expected` (docs/how-to/extend.md)"
    return f"not known for {config.algorithm}: {remedy}"


def moments(config: Config, pieces: Pieces, on: Cluster) -> Iterator[Moment]:
    """Yield where an endless run has come to, by generation."""
    episodes = len(ALGORITHMS[config.algorithm].DECLARES.policies) * config.evaluation.episodes
    evaluations = (
        pieces.lasting(0 if k % config.evaluation.every else episodes, k) for k in count(1)
    )
    if type(config.own) is AESRL:
        yield from of_arrivals(config, pieces, on, evaluations)
        return
    clock = Clock(on)
    # both without an end
    for (made, env_steps, nominal), lasted in zip(
        generations(config, pieces), evaluations, strict=False
    ):
        whole = replace(made, evaluation=lasted)
        steps = env_steps + lasted.size * pieces.length
        effort = max(1, made.members.size + made.trained.size)
        yield Moment(clock.go(whole), whole.work, steps, nominal, effort)


def outlook(config: Config, pieces: Pieces, on: Cluster) -> Outlook:
    """Forecast a run on these ranks; later generations are as the second half of those followed."""
    counts = [0.0, 0.0, 0.0]
    marks = [(0.0, 0.0)]
    worked = 0.0
    limits = config.budget.limits
    for k, one in enumerate(moments(config, pieces, on), 1):
        counts = [float(k), counts[1] + one.env_steps, counts[2] + one.nominal_steps]
        done = max(count / limit for count, limit in zip(counts, limits, strict=True))
        marks.append((max(done, one.now / config.budget.seconds), one.now))
        worked += one.work
        followed = max(2 * config.evaluation.every, math.ceil(PIECES / one.effort))
        if marks[-1][0] >= 1 or k >= min(LONGEST, followed):
            break
    spent, now = marks[-1]
    (before, half), _ = next(pair for pair in pairwise(marks) if pair[1][0] >= spent / 2)
    seconds = now + max(0.0, 1 - spent) * (now - half) / (spent - before)
    total = counts[0] / min(spent, 1.0)
    cores = on.ranks + (config.learner.threads - 1) * pieces.cpu * (pieces.updating > 0)
    idle = max(0.0, 1 - worked / (on.ranks * now)) if now else 0.0
    return Outlook(on.ranks, cores, total, seconds, idle)
