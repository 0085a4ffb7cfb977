"""The replay: the newest transitions that a learner learns from, its own and others'."""

import copy

import numpy as np

from esac_mpi.play.transitions import columns, join, read_ring, width, write_ring


class Replay:
    """A ring of the newest transitions, allocated once; the system gives memory as it fills.

    `added` counts the transitions ever added; transition i lies in row i % (capacity + reserve) of
    `ring`, float32 [capacity + reserve, width]. The newest `capacity` are sampled. `reserve` older
    ones stay readable, so that a state held by `hold` survives as many additions.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_size: int,
        reserve: int = 0,
        rows: np.ndarray | None = None,
    ) -> None:
        """rows: memory for capacity and reserve that others write to; see `advance`."""
        capacity = capacity if rows is None else len(rows) - reserve
        self.capacity = capacity
        self.reserve = reserve
        self.added = 0
        self._first = 0  # the oldest transition ever put into this ring
        self._held: int | None = None
        self.rewritten = 0  # how often rows came in another way than by being added
        self.columns = columns(observation_size, action_size)
        self.width = width(observation_size, action_size)
        if rows is None:  # a transition is one row: one cache miss when sampled
            rows = np.zeros((capacity + reserve, self.width), np.float32)
        self.ring = rows

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: float,
        next_observation: np.ndarray,
        terminated: bool,
    ) -> None:
        """Add a transition: observations [o], action in [-1, 1] [a]; `terminated`: no time limit.

        Raises RuntimeError if it would overwrite what is held.
        """
        self._spare_held(1)
        row = join(observation, action, reward, terminated, next_observation)
        self.ring[self.added % len(self.ring)] = row
        self.added += 1

    def add_rows(self, rows: np.ndarray) -> None:
        """Add rows [n, width] by `columns`, oldest first. Raises RuntimeError, adding none."""
        count = len(rows)
        self._spare_held(count)
        newest = rows[max(count - len(self.ring), 0) :]
        self.added += count
        write_ring(self.ring, newest, self.added)

    def _spare_held(self, count: int) -> None:
        if self._held is not None and self.added + count - self._held > self.reserve:
            raise RuntimeError(
                f"replay holds a state for {self.reserve} more transitions (reserve), "
                "and more would be added"
            )

    def advance(self, count: int) -> None:
        """Take in so many transitions that others have written."""
        self.added += count

    def places(
        self,
        random: np.random.Generator,
        shape: int | tuple[int, ...],
        added: int | None = None,
        newest: int | None = None,
    ) -> np.ndarray:
        """Draw transitions uniformly, with replacement; return their rows in `ring`, int64 [shape].

        added: as they were with so many added; None = now. newest: of so many alone; None = of all
        kept.
        """
        added = self.added if added is None else added
        newest = self.capacity if newest is None else newest
        where = random.integers(min(added, newest), size=shape)
        if added > newest:
            where += added - newest
            where %= len(self.ring)
        return where

    def sample(
        self,
        random: np.random.Generator,
        out: np.ndarray,
        added: int | None = None,
        newest: int | None = None,
    ) -> np.ndarray:
        """Draw by `places` into `out`, float32 [..., width], by `columns`; return it."""
        where = self.places(random, out.shape[:-1], added, newest)
        return self.ring.take(where, 0, out, "clip")  # "raise" would gather into a buffer first

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Copy transitions [start, stop), counted from the first ever added, float32.

        observation and next_observation [n, o], action [n, a], reward and terminated [n]. Raises
        ValueError if one of them is not there, or no longer.
        """
        first = max(self._first, self.added - len(self.ring))
        if not first <= start <= stop <= self.added:
            raise ValueError(
                f"replay holds transitions {first} to {self.added}; asked for {start} to {stop}"
            )
        rows = read_ring(self.ring, start, stop)
        return {name: rows[:, column] for name, column in self.columns._asdict().items()}

    def restore(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """Put transitions of `rows` back at [start, start + n), and end the replay there.

        In ascending order.
        """
        named = self.columns._asdict()
        if rows.keys() != named.keys():
            raise ValueError(f"transitions must have {sorted(named)}, got {sorted(rows)}")
        stop = start + len(rows["reward"])
        for name, column in named.items():
            write_ring(self.ring[:, column], rows[name], stop)
        self._first = self._first if start == self.added else start
        self.added = stop
        self.rewritten += 1

    def hold(self) -> "Replay":
        """Return the replay as it is now, to be read: for a checkpoint while a phase adds more.

        It stays so until `release`.
        """
        self._held = self.added
        held = copy.copy(self)
        held._first = max(self._first, self.added - self.capacity)
        return held

    def release(self) -> None:
        """Release the transitions held for a checkpoint."""
        self._held = None
