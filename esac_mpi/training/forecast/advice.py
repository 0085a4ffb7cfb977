"""What would help most: the same forecast for other settings, another learner, more or fewer ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import AESRL, CEMRL, Config, updated
from esac_mpi.host.log import duration
from esac_mpi.training.forecast import schedule
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
    learned: float = 1.0  # for how long its learner works, over that of the run's own settings

    @property
    def as_much(self) -> bool:
        """Whether it learns about as much."""
        return 1 - GAIN < self.learned < 1 + GAIN


def others(config: Config, pieces: Pieces, on: Cluster, as_is: Outlook) -> Iterator[Other]:
    """Yield what may be quicker than these settings, whose outlook is known. Raises Unforeseen."""
    own: Any = config.own
    if ALGORITHMS[config.algorithm].DECLARES.learning is not None and pieces.updating:
        if getattr(own, "sac_phases", False) and own.phase_timing == "interval":
            lag, interval = (
                f"{config.algorithm}.learner_lag",
                f"{config.algorithm}.gradient_interval",
            )
            if not own.learner_lag and on.ranks > 1:
                yield Other(
                    f"--{lag} {own.gradient_interval}",
                    outlook(updated(config, {lag: own.gradient_interval}), pieces, on),
                )
            twice = 2 * own.gradient_interval
            yield learning_other(
                as_is,
                f"--{interval} {twice}",
                outlook(updated(config, {interval: twice}), pieces, on),
            )
            if schedule.can_be(config, on):
                yield on_its_clock(config, pieces, on, as_is)
        if isinstance(own, CEMRL) and own.critic == "serial" and on.ranks > 1:
            yield Other(
                "--cem_rl.critic parallel",
                outlook(updated(config, {"cem_rl.critic": "parallel"}), pieces, on),
            )
        if isinstance(own, AESRL) and own.order == "virtual" and pieces.training and on.ranks > 1:
            yield with_true_costs(config, pieces, on)
        for count, seconds in pieces.threads.items():
            more = updated(config, {"learner.threads": count})
            yield Other(
                f"--learner.threads {count}", outlook(more, replace(pieces, updating=seconds), on)
            )
        if pieces.cpu:
            yield Other("a GPU", outlook(config, replace(pieces, updating=0.0), on), bound=True)
    yield Other(f"{2 * on.ranks} ranks", outlook(config, pieces, replace(on, ranks=2 * on.ranks)))


def learning_other(as_is: Outlook, words: str, there: Outlook) -> Other:
    """Return settings of which more or fewer phases follow."""
    return Other(words, there, learned=there.learning / as_is.learning if as_is.learning else 1.0)


def on_its_clock(config: Config, pieces: Pieces, on: Cluster, as_is: Outlook) -> Other:
    """Return how ESAC goes with phases that follow one another beside the evaluation, timed for these ranks."""
    fits = schedule.fitting(config, pieces, on)
    there = updated(
        config, {"esac.phase_timing": "virtual", "esac.p_sac_annealed": False, **fits.settings()}
    )
    words = f"--esac.phase_timing virtual --esac.p_sac_annealed false {fits.words()}"
    return learning_other(as_is, words, outlook(there, pieces, on))


def with_true_costs(config: Config, pieces: Pieces, on: Cluster) -> Other:
    """Return how AES-RL goes on a virtual clock on which updates last as long as they were measured."""
    update, critic = (
        float(f"{cost:.2g}")
        for cost in (pieces.training / pieces.step, pieces.updating / pieces.training)
    )
    true = updated(config, {"aes_rl.update_cost": update, "aes_rl.critic_cost": critic})
    return Other(
        f"--aes_rl.update_cost {update:g} --aes_rl.critic_cost {critic:g}",
        outlook(true, pieces, on),
    )


def fewer(config: Config, pieces: Pieces, on: Cluster, own: Outlook) -> Outlook | None:
    """Return how it goes on the fewest ranks, by halves, that take about as long; None where all are needed."""
    found, ranks = None, on.ranks // 2
    while ranks >= 1:
        there = outlook(config, pieces, replace(on, ranks=ranks))
        if there.seconds > AS_FAST * own.seconds:
            break
        found, ranks = there, ranks // 2
    return found


def advice(config: Config, pieces: Pieces, on: Cluster, own: Outlook, begun: bool = False) -> str:
    """Return what keeps the ranks waiting and what would help most, as far as it is worth a remark. Raises Unforeseen.

    own: the outlook of these settings on these ranks. begun: whether the run keeps its settings, as one does that goes on.
    """
    free = outlook(config, replace(pieces, updating=0.0, playing=0.0), on)
    parts, waiting = [], 1 - free.seconds / own.seconds
    if on.ranks > 1 and own.idle >= IDLE and waiting >= GAIN:
        parts.append(f"all {on.ranks} ranks wait for the learner {waiting:.0%} of the time")
    if not begun and schedule.can_be(config, on) and config.esac.phase_timing == "virtual":
        parts += filter(None, [schedule.remark(config, schedule.fitting(config, pieces, on))])
    there = [
        other
        for other in others(config, pieces, on, own)
        if not (begun and other.words.startswith("--"))
    ]
    better = sorted((o for o in there if o.outlook.seconds <= (1 - GAIN) * own.seconds), key=order)
    alike, otherwise = ([o for o in better if o.as_much is wanted] for wanted in (True, False))
    if alike:
        parts.append(f"most would help {told(alike[0])}")
        parts += [f"then {', '.join(map(told, alike[1:]))}"] if alike[1:] else []
    if otherwise:
        parts.append(f"quicker, with so many times the updates: {', '.join(map(told, otherwise))}")
    less = fewer(config, pieces, on, own)
    if less is not None:
        parts.append(
            f"{less.ranks} rank(s) would take {duration(less.seconds)}, {less.core_hours:.3g} core-hours"
        )
    return "; ".join(parts)


def order(other: Other) -> tuple[bool, float]:
    """Return by what remedies are sorted: what is only a bound comes last."""
    return other.bound, other.outlook.seconds


def told(other: Other) -> str:
    """Return what a remedy gives."""
    gives = f"{'at best ' * other.bound}{duration(other.outlook.seconds)}"
    return f"{other.words} ({gives}{'' if other.as_much else f', {other.learned:.2g}'})"
