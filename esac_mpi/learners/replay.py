"""The replay: the newest transitions of the learner's own episodes."""

import numpy as np


class Replay:
    """A ring of the newest transitions, allocated once; the system gives it memory as rows are written.

    `added` counts the transitions ever added; transition i lies in row i % capacity.
    """

    def __init__(self, capacity: int, observation_size: int, action_size: int) -> None:
        self.capacity = capacity
        self.added = 0
        o, a = observation_size, action_size
        self._columns: dict[str, slice | int] = {
            "observation": slice(0, o),
            "action": slice(o, o + a),
            "reward": o + a,
            "terminated": o + a + 1,
            "next_observation": slice(o + a + 2, 2 * o + a + 2),
        }
        self._rows = np.zeros((capacity, 2 * o + a + 2), np.float32)  # a transition is one row: one cache miss when sampled

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self, observation: np.ndarray, action: np.ndarray, reward: float, next_observation: np.ndarray, terminated: bool
    ) -> None:
        """Add a transition: observations [o], action in [-1, 1] [a]; a time limit is not `terminated`."""
        columns = self._columns
        row = self._rows[self.added % self.capacity]
        row[columns["observation"]] = observation
        row[columns["action"]] = action
        row[columns["reward"]] = reward
        row[columns["terminated"]] = terminated
        row[columns["next_observation"]] = next_observation
        self.added += 1

    def sample(self, random: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
        """Draw transitions uniformly, with replacement; return copies, float32.

        observation and next_observation [batch, o], action [batch, a], reward and terminated [batch].
        """
        return self._named(self._rows[random.integers(len(self), size=batch)])

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return the transitions [start, stop), counted from the first ever added, as `sample` does.

        Raises ValueError if one of them is not there, or no longer.
        """
        if not self.added - len(self) <= start <= stop <= self.added:
            raise ValueError(f"replay holds transitions {self.added - len(self)} to {self.added}; asked for {start} to {stop}")
        return self._named(self._rows[np.arange(start, stop) % self.capacity])

    def restore(self, start: int, rows: dict[str, np.ndarray]) -> None:
        """Put transitions back at [start, start + n), as `rows` returned them, and end the replay there; in ascending order."""
        if rows.keys() != self._columns.keys():
            raise ValueError(f"transitions must have {sorted(self._columns)}, got {sorted(rows)}")
        stop = start + len(rows["reward"])
        where = np.arange(start, stop) % self.capacity
        for name, column in self._columns.items():
            self._rows[where, column] = rows[name]
        self.added = stop

    def _named(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: rows[:, column] for name, column in self._columns.items()}
