"""Genetic memories: the newest transitions of an actor and its ancestors.

Source: PDERL (Bodnar et al. 2020). A memory holds what the operators read, a row (observation,
action in [-1, 1]) for each transition, and its age: the number of the transition in the run, so
that "newest" does not depend on how a memory was put together. The transitions stand at the front,
oldest first; behind them ages are -1 and rows zero, so that equal memories are equal bytes.

Where we differ from the public code: a child's memory is merged by age; `random` shuffles it
instead, as that code and the paper do, after which "newest", the last by position, says little
about its transitions. A transition that both parents have from an ancestor they share stands twice
in their child's memory, as it does there.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

EMPTY = -1  # the age of a place that holds no transition


class Replay(Protocol):
    """A ring of the run's transitions by number; the newest `capacity` of `added` are stored."""

    @property
    def added(self) -> int:
        """Transitions ever added."""

    @property
    def capacity(self) -> int:
        """Transitions kept."""

    def rows(self, start: int, stop: int) -> Mapping[str, np.ndarray]:
        """Return transitions [start, stop) by name, each [stop - start, ...]."""


class Memory(NamedTuple):
    """A memory of capacity kappa: arrays, or views into what a node shares."""

    rows: np.ndarray  # float32 [kappa, observation + action]
    ages: np.ndarray  # int64 [kappa]


def make_empty(capacity: int, width: int) -> Memory:
    """Return a memory without transitions."""
    return Memory(np.zeros((capacity, width), np.float32), np.full(capacity, EMPTY))


def size(memory: Memory) -> int:
    """Count the transitions of a memory."""
    return int(np.count_nonzero(memory.ages != EMPTY))


def states(memory: Memory, observation_size: int) -> np.ndarray:
    """Return the observations of a memory as a view, float32 [size, observation]."""
    return memory.rows[: size(memory), :observation_size]


def sample(
    memory: Memory, count: int, random: np.random.Generator, newest: int | None = None
) -> np.ndarray:
    """Draw positions of `count` distinct transitions, all where there are fewer, int64 [<= count].

    newest: they are drawn from so many of the newest.
    """
    held = size(memory)
    among = held if newest is None else min(held, newest)
    return held - among + random.permutation(among)[:count]


def copy(memory: Memory, out: Memory) -> None:
    """Write a memory into `out`: what a clone inherits, and whoever is kept or mutated keeps."""
    out.rows[:], out.ages[:] = memory.rows, memory.ages


def remember(memory: Memory, new: np.ndarray, first_age: int, out: Memory) -> None:
    """Write into `out`, apart from `memory`, the memory with transitions `new` [n, width] added.

    They are numbered first_age, first_age + 1, ...; the newest kappa stay.
    """
    skipped = max(len(new) - len(out.ages), 0)
    kept = select_newest(memory, max(len(out.ages) - len(new), 0))
    ages = np.arange(first_age + skipped, first_age + len(new))
    _write(out, np.concatenate([kept.rows, new[skipped:]]), np.concatenate([kept.ages, ages]))


def inherit(
    first: Memory, second: Memory, out: Memory, random: np.random.Generator | None = None
) -> None:
    """Write a child's memory into `out`, apart from its parents': the newest kappa // 2 of each.

    All of a parent's where it has fewer. They are merged by age, the first parent's before the
    second's of the same age; `random` shuffles them instead.
    """
    halves = [select_newest(parent, len(out.ages) // 2) for parent in (first, second)]
    rows, ages = (np.concatenate(parts) for parts in zip(*halves, strict=True))
    order = np.argsort(ages, kind="stable") if random is None else random.permutation(len(ages))
    _write(out, rows[order], ages[order])


def select_newest(memory: Memory, count: int) -> Memory:
    """Return the newest `count` transitions of a memory as views, all where there are fewer."""
    held = size(memory)
    part = slice(max(held - count, 0), held)
    return Memory(memory.rows[part], memory.ages[part])


def collect_lost(memory: Memory, replay: Replay) -> np.ndarray:
    """Collect the rows that a replay holds no more, each once, by age, float32 [n, width].

    memory: one, or several in arrays [..., kappa, width] and [..., kappa].
    """
    ages = memory.ages.ravel()
    old = np.flatnonzero((ages != EMPTY) & (ages < replay.added - replay.capacity))
    _, where = np.unique(ages[old], return_index=True)
    return memory.rows.reshape(-1, memory.rows.shape[-1])[old[where]]


def refill(memory: Memory, lost: np.ndarray, replay: Replay) -> None:
    """Write the rows of one or several memories by age: `collect_lost`'s and the replay's.

    Raises ValueError if these are not all of them.
    """
    ages = memory.ages.ravel()
    held = np.flatnonzero(ages != EMPTY)
    numbers, which = np.unique(ages[held], return_inverse=True)
    kept = numbers[np.searchsorted(numbers, replay.added - replay.capacity) :]
    if len(kept) + len(lost) != len(numbers):
        raise ValueError(
            f"memories have {len(numbers) - len(kept)} transitions "
            f"that the replay holds no more, got {len(lost)}"
        )
    spans = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1) if len(kept) else []
    parts = [replay.rows(int(span[0]), int(span[-1]) + 1) for span in spans]
    rows = np.vstack([lost, *(np.hstack([part["observation"], part["action"]]) for part in parts)])
    memory.rows[...] = 0.0
    memory.rows.reshape(-1, memory.rows.shape[-1])[held] = rows[which]


def _write(out: Memory, rows: np.ndarray, ages: np.ndarray) -> None:
    """Make `out` hold the transitions rows [n, width] of ages [n], n <= kappa, and no others."""
    out.rows[: len(rows)], out.rows[len(rows) :] = rows, 0.0
    out.ages[: len(ages)], out.ages[len(ages) :] = ages, EMPTY
