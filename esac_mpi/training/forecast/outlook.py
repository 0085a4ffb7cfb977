"""How a run goes on these ranks, by the clock of its generations, and what would help most."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster, steps
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Clock
from esac_mpi.config import AESRL, NAMES, Config, amend, value_of
from esac_mpi.host.log import duration
from esac_mpi.training.forecast.automatic import remark_at_start
from esac_mpi.training.forecast.generations import WITH_BARRIERS, Moment, generations, of_arrivals

LONGEST = 2000  # generations that are followed at most
PIECES = 100_000  # members in all of them, but for two evaluations
IDLE = 0.5  # share of the ranks' time in which they wait that is worth a remark
GAIN = 0.1  # share of the time that a remedy saves at least
AS_FAST = 1.1  # fewer ranks are told where they take at most so many times as long


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


def cluster(ranks: int, per_node: int, pieces: Pieces) -> Cluster:
    """Return ranks on nodes of so many; barriers as the measured exchange tells."""
    on = Cluster(ranks, per_node)
    parties = 2 * steps(max(on.locals))
    if not parties or not pieces.exchange:
        return on
    return replace(on, barrier=max(0.0, pieces.exchange - on.send(0)) / parties)


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
    for (made, env_steps, nominal), lasted in zip(  # both without an end
        generations(config, pieces), evaluations, strict=False
    ):
        whole = replace(made, evaluation=lasted)
        steps = env_steps + lasted.size * pieces.length
        effort = max(1, made.members.size + made.trained.size)
        yield Moment(clock.go(whole), whole.work, steps, nominal, effort)


def outlook(config: Config, pieces: Pieces, on: Cluster) -> Outlook:
    """Forecast a run on these ranks; later generations are as the second half of those followed."""
    counts = 0.0, 0.0, 0.0
    marks = [(0.0, 0.0)]
    worked = 0.0
    for k, one in enumerate(moments(config, pieces, on), 1):
        counts = float(k), counts[1] + one.env_steps, counts[2] + one.nominal_steps
        marks.append((config.budget.spent(*counts, one.now), one.now))
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


@dataclass(frozen=True)
class Other:
    """A run otherwise set up, and how it goes."""

    words: str  # what to do
    outlook: Outlook
    bound: bool = False  # whether it is the least that it can take


def others(config: Config, pieces: Pieces, on: Cluster) -> Iterator[Other]:
    """Forecast what may be quicker than these settings."""

    def with_setting(name: str, value: object) -> Other:
        return Other(f"--{name} {value}", outlook(amend(config, {name: value}), pieces, on))

    declares = ALGORITHMS[config.algorithm].DECLARES
    if declares.learning is not None and pieces.updating:
        names = ("learner_lag", "phase_timing", "gradient_interval")
        lag, timing, interval = (f"{config.algorithm}.{name}" for name in names)
        timed = timing in NAMES and value_of(config, timing) == "interval"
        learns = timed and declares.learning.learns(config)
        if learns and not value_of(config, lag) and on.ranks > 1:
            yield with_setting(lag, value_of(config, interval))
        critic = f"{config.algorithm}.critic"
        if critic in NAMES and value_of(config, critic) == "serial" and on.ranks > 1:
            yield with_setting(critic, "parallel")
        if pieces.cpu:
            yield Other("a GPU", outlook(config, replace(pieces, updating=0.0), on), bound=True)
    yield Other(f"{2 * on.ranks} ranks", outlook(config, pieces, replace(on, ranks=2 * on.ranks)))


def fewer(config: Config, pieces: Pieces, on: Cluster, own: Outlook) -> Outlook | None:
    """Forecast the fewest ranks, by halves, that take about as long; None where all are needed."""
    found = None
    ranks = on.ranks // 2
    while ranks >= 1:
        there = outlook(config, pieces, replace(on, ranks=ranks))
        if there.seconds > AS_FAST * own.seconds:
            break
        found = there
        ranks //= 2
    return found


def advice(config: Config, pieces: Pieces, on: Cluster, own: Outlook, begun: bool = False) -> str:
    """Say what keeps ranks waiting and what would help most.

    own: the outlook of these settings on these ranks. begun: whether the run keeps its settings, as
    one that goes on does. With a budget of minutes, others are timed for as many generations.
    """
    timed = config.budget.minutes > 0
    if timed:
        limits = {"budget.minutes": 0.0, "budget.generations": math.ceil(own.generations)}
        config = amend(config, limits)
        own = outlook(config, pieces, on)
    free = outlook(config, replace(pieces, updating=0.0, playing=0.0), on)
    waiting = 1 - free.seconds / own.seconds
    parts = []
    if on.ranks > 1 and own.idle >= IDLE and waiting >= GAIN:
        parts.append(f"all {on.ranks} ranks wait for the learner {waiting:.0%} of the time")
    if not begun and (remark := remark_at_start(config, on.ranks)):
        parts.append(remark)
    better = [
        other
        for other in others(config, pieces, on)
        if other.outlook.seconds <= (1 - GAIN) * own.seconds
        and not (begun and other.words.startswith("--"))
    ]
    better.sort(key=lambda other: (other.bound, other.outlook.seconds))  # bounds come last
    if better:
        parts.append(describe(better[0], " would help most"))
    if better[1:]:
        parts.append(f"then {', '.join(map(describe, better[1:]))}")
    less = fewer(config, pieces, on, own)
    if less is not None:
        cost = f"{duration(less.seconds)}, {less.core_hours:.3g} core-hours"
        parts.append(f"{less.ranks} rank(s) would take {cost}")
    if timed and (better or less):
        parts.append("these times are for as many generations")
    return "; ".join(parts)


def describe(other: Other, helps: str = "") -> str:
    """Say what a remedy gives."""
    bound = "at best " if other.bound else ""
    return f"{other.words}{helps} ({bound}{duration(other.outlook.seconds)})"
