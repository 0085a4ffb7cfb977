"""How long each part of a generation lasts on this rank."""

from collections.abc import Callable


class Laps:
    """A stopwatch: each call ends a part, which began where the last one ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.last = clock()
        self.seconds: dict[str, float] = {}  # by a row's columns

    def __call__(self, part: str) -> None:
        """End a part."""
        now = self.clock()
        self.seconds[f"seconds_{part}"] = now - self.last
        self.last = now
