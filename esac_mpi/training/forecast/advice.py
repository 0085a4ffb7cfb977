"""What would help most: the forecast of other settings, another learner, other ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import NAMES, Config, amend, value_of
from esac_mpi.host.log import duration
from esac_mpi.training.forecast.automatic import remark_at_start
from esac_mpi.training.forecast.outlook import Outlook, outlook

IDLE = 0.5  # share of the ranks' time in which they wait that is worth a remark
GAIN = 0.1  # share of the time that a remedy saves at least
AS_FAST = 1.1  # fewer ranks are told where they take at most so many times as long


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
    one that goes on does.
    """
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
    return "; ".join(parts)


def describe(other: Other, helps: str = "") -> str:
    """Say what a remedy gives."""
    bound = "at best " if other.bound else ""
    return f"{other.words}{helps} ({bound}{duration(other.outlook.seconds)})"
