"""How long each part of a generation lasts on this rank."""

from collections.abc import Callable


class Laps:
    """A stopwatch: a call ends a part that began where the last ended; parts of a name add up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.last = clock()
        self.seconds: dict[str, float] = {}  # by a row's columns

    def __call__(self, part: str) -> None:
        """End a part."""
        now = self.clock()
        column = f"seconds_{part}"
        self.seconds[column] = self.seconds.get(column, 0.0) + now - self.last
        self.last = now
