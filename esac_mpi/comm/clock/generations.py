"""Simulate generations on a cluster, event by event, in the program's own order.

    record      rank 0 writes the row before, while the others begin their members
    lesson      a phase that begins with the generation, on rank 0 beside its members, and ends in
                it
    members     dealt to the nodes by esac_mpi.comm.schedule.deal, within a node to the first free
                rank; then an exchange
    trained     members that wait for those, and, where they learn from it, for the lesson's end
    serial      what every rank, or rank 0 for all, does once: ranks, winners, plan
    offspring   who is born, dealt like members, while rank 0 is with the learner; then all wait for
                the rest of that phase
    phase       the learner on rank 0, for which all wait; or the rest of one that began earlier,
                merged in this generation
    update      blocks of parameters, and chunks of slots, over the ranks of a node; all wait for
                the node with the fewest ranks
    begun       a phase that begins now, beside what follows: rank 0 takes no work until it has
                ended or no work is left, and gets on with it while it waits in exchanges, but not
                during update, plan and writing; on one rank it waits
    evaluation  noise-free episodes, dealt like members

Without members rank 0 writes and learns while all wait. Nothing is random, and nothing slows down:
each core of the cluster is as fast as the one measured.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.operators import accumulator

NOTHING = np.zeros(0)
# what an exchange carries of each, but for vectors and transitions
MEMBER_NUMBERS, EPISODE_NUMBERS, PHASE_NUMBERS = (5, 3, 13)


@dataclass(frozen=True)
class Generation:
    """What a generation asks of a core, everything in [s]."""

    members: np.ndarray = field(default_factory=lambda: NOTHING)  # [n]
    # [n], in any unit: the longest are dealt first
    expected: np.ndarray = field(default_factory=lambda: NOTHING)
    record: float = 0.0
    lesson: float = 0.0
    trained: np.ndarray = field(default_factory=lambda: NOTHING)  # [k]
    after_lesson: bool = False  # whether these wait for the lesson
    serial: float = 0.0
    offspring: np.ndarray = field(default_factory=lambda: NOTHING)  # [k]
    offspring_expected: np.ndarray = field(default_factory=lambda: NOTHING)  # [k]
    beside: float = 0.0  # a phase that begins beside the offspring
    phase: float = 0.0  # that all wait for
    merges: bool = False  # whether the phase that began earlier ends here, at the latest
    update: float = 0.0  # of all blocks
    blocks: float = 1.0  # in how many pieces ranks share it
    begun: float = 0.0
    evaluation: np.ndarray = field(default_factory=lambda: NOTHING)  # [episodes]
    sums: int = 0  # numbers that a member's sums over observations are, where they are normalised

    @property
    def work(self) -> float:
        """What it has the ranks do, all together [s]."""
        learning = self.lesson + self.beside + self.phase + self.begun
        spread = self.members, self.trained, self.offspring, self.evaluation
        alone = self.record + self.serial + self.update + learning
        return float(sum(part.sum() for part in spread)) + alone


class Made(NamedTuple):
    """A generation that a run will have, and what it adds to the counts that end the run."""

    generation: Generation
    env_steps: float
    nominal_steps: float


class Clock:
    """The clock of one cluster, generation after generation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now = 0.0  # [s]
        self._left = 0.0  # of the phase in flight, on rank 0 [s]

    def go(self, one: Generation) -> float:
        """Go through a generation; return the time at its end [s]."""
        cluster = self.cluster
        self._left += one.lesson
        if one.members.size:
            own = one.sums if one.members.size <= accumulator.ROWS else 0
            self._spread(one.members, one.expected, one.record, MEMBER_NUMBERS + own)
            if one.sums > own:
                # in their place, the total of all
                self.now += cluster.send(8 * accumulator.UNITS.size * one.sums)
            self.now += cluster.send(8 * one.members.size)  # the plan
        else:
            self.now += one.record
        if one.trained.size:
            self._wait_for_lesson(one.after_lesson)
            self._spread(one.trained, np.ones(one.trained.size), 0.0, MEMBER_NUMBERS)
        self._wait_for_lesson(one.lesson > 0)
        self.now += one.serial
        self._left += one.beside
        if one.offspring.size:
            self._spread(one.offspring, one.offspring_expected, 0.0, 1)
        if one.phase or one.merges:
            self._wait_for_lesson(one.merges)
            self.now += one.phase + cluster.exchange(1, PHASE_NUMBERS)
            self.now += cluster.send(0.0) + cluster.sync()
        self.now += one.update * cluster.share(one.blocks) + 2 * cluster.sync() * bool(one.update)
        self._left += one.begun
        if one.evaluation.size:
            self._spread(one.evaluation, np.ones(one.evaluation.size), 0.0, EPISODE_NUMBERS)
        return self.now

    def _wait_for_lesson(self, needed: bool) -> None:
        """Make all ranks wait for the rest of the parallel phase, if its result is needed now."""
        self.now += self._left * needed
        self._left *= not needed

    def _spread(
        self, durations: np.ndarray, expected: np.ndarray, record: float, columns: int
    ) -> None:
        """Spread work over the ranks; rank 0 joins after `record` and its phase beside, if any."""
        beside = self._left if self.cluster.ranks > 1 else 0.0
        lasted = self.cluster.spread(durations, expected, record + beside, beside > 0)
        lasted = max(lasted, record)
        if beside:
            self._left = max(0.0, beside - (lasted - record))
        self.now += lasted + self.cluster.exchange(durations.size, columns)


def ticks(generations: Iterable[Generation], cluster: Cluster) -> Iterator[float]:
    """Yield the time at the end of each generation [s]."""
    clock = Clock(cluster)
    return (clock.go(one) for one in generations)
