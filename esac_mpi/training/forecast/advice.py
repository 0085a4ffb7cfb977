"""What would help most: the forecast of other settings, another learner, other ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import Config, updated
from esac_mpi.config.fields import value_of
from esac_mpi.host.log import duration
from esac_mpi.training.forecast import schedule
from esac_mpi.training.forecast.outlook import Outlook, outlook
from esac_mpi.training.forecast.schedule import digits

IDLE = 0.5  # share of the ranks' time in which they wait that is worth a remark
GAIN = 0.1  # share of the time that a remedy saves at least
AS_FAST = 1.1  # fewer ranks are told where they take at most so many times as long


@dataclass(frozen=True)
class Other:
    """A run otherwise set up, and how it goes."""

    words: str  # what to do
    outlook: Outlook
    bound: bool = False  # whether it is the least that it can take
    learned: float = 1.0  # for how long its learner works, over that of the run's own settings

    @property
    def as_much(self) -> bool:
        """Whether it learns about as much."""
        return 1 - GAIN < self.learned < 1 + GAIN


def others(config: Config, pieces: Pieces, on: Cluster, as_is: Outlook) -> Iterator[Other]:
    """Forecast what may be quicker than these settings. Raises Unforeseen."""

    def with_settings(settings: dict[str, object], pieces: Pieces = pieces) -> Other:
        words = " ".join(f"--{name} {word(value)}" for name, value in settings.items())
        return Other(words, outlook(updated(config, settings), pieces, on))

    def learning(other: Other) -> Other:
        share = other.outlook.learning / as_is.learning if as_is.learning else 1.0
        return replace(other, learned=share)

    declares, name = ALGORITHMS[config.algorithm].DECLARES, config.algorithm
    if declares.learning is not None and pieces.updating:
        if schedule.is_by_interval(config):
            interval = declares.learning.interval(config)
            if not value_of(config, f"{name}.learner_lag") and on.ranks > 1:
                yield with_settings({f"{name}.learner_lag": interval})
            yield learning(with_settings({f"{name}.gradient_interval": 2 * interval}))
            if schedule.can_be(config, on):
                fits = schedule.fitting(config, pieces, on)
                timed = {"esac.phase_timing": "virtual", "esac.p_sac_annealed": False}
                yield learning(with_settings({**timed, **fits.settings()}))
        if declares.operators(config) == "individuals" and on.ranks > 1:
            if declares.work != "tasks" and config.cem_rl.critic == "serial":
                yield with_settings({"cem_rl.critic": "parallel"})
            if declares.work == "tasks" and config.aes_rl.order == "virtual" and pieces.training:
                update = digits(pieces.training / pieces.step)
                critic = digits(pieces.updating / pieces.training)
                yield with_settings({"aes_rl.update_cost": update, "aes_rl.critic_cost": critic})
        for count, seconds in pieces.threads.items():
            yield with_settings({"learner.threads": count}, replace(pieces, updating=seconds))
        if pieces.cpu:
            yield Other("a GPU", outlook(config, replace(pieces, updating=0.0), on), bound=True)
    yield Other(f"{2 * on.ranks} ranks", outlook(config, pieces, replace(on, ranks=2 * on.ranks)))


def word(value: object) -> str:
    """Format a value for the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    """Say what keeps ranks waiting and what would help most. Raises Unforeseen.

    own: the outlook of these settings on these ranks. begun: whether the run keeps its settings, as
    one that goes on does.
    """
    free = outlook(config, replace(pieces, updating=0.0, playing=0.0), on)
    waiting = 1 - free.seconds / own.seconds
    parts = []
    if on.ranks > 1 and own.idle >= IDLE and waiting >= GAIN:
        parts.append(f"all {on.ranks} ranks wait for the learner {waiting:.0%} of the time")
    if not begun and schedule.can_be(config, on) and not schedule.is_by_interval(config):
        parts += filter(None, [schedule.remark(config, schedule.fitting(config, pieces, on))])
    better = [
        other
        for other in others(config, pieces, on, own)
        if other.outlook.seconds <= (1 - GAIN) * own.seconds
        and not (begun and other.words.startswith("--"))
    ]
    better.sort(key=lambda other: (other.bound, other.outlook.seconds))  # bounds come last
    alike = [describe(other) for other in better if other.as_much]
    otherwise = [describe(other) for other in better if not other.as_much]
    if alike:
        parts.append(f"most would help {alike[0]}")
    if alike[1:]:
        parts.append(f"then {', '.join(alike[1:])}")
    if otherwise:
        parts.append(f"quicker, with so many times the updates: {', '.join(otherwise)}")
    less = fewer(config, pieces, on, own)
    if less is not None:
        cost = f"{duration(less.seconds)}, {less.core_hours:.3g} core-hours"
        parts.append(f"{less.ranks} rank(s) would take {cost}")
    return "; ".join(parts)


def describe(other: Other) -> str:
    """Say what a remedy gives."""
    bound = "at best " if other.bound else ""
    learned = "" if other.as_much else f", {other.learned:.2g}"
    return f"{other.words} ({bound}{duration(other.outlook.seconds)}{learned})"
