"""Work that yields between its parts, so that other work gets its turn."""

import time
from collections.abc import Callable, Generator
from functools import wraps
from typing import ParamSpec, TypeVar

Part = TypeVar("Part")
Report = TypeVar("Report")
Result = TypeVar("Result")
Given = ParamSpec("Given")
# of a turn, to the end of its part [s]: between two turns a rank hears that others stop
LONGEST = 0.1
# what work yields while a device goes on alone, and there is nothing to do before its end
ON_DEVICE = -1


class Turn:
    """How long work goes on before others get their turn: some parts, or LONGEST."""

    def __init__(self, parts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts, self._clock = parts, clock
        self.begin()

    def begin(self) -> None:
        """Begin the next turn."""
        self._left = self._parts
        self._end = self._clock() + LONGEST

    def over(self) -> bool:
        """Count a part that is done; return whether the turn is over."""
        self._left -= 1
        return self._left <= 0 or self._clock() >= self._end


def run(work: Generator[object, None, Result]) -> Result:
    """Run what is left of the work without a break; return what it comes to."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def at_once(work: Callable[Given, Generator[object, None, Result]]) -> Callable[Given, Result]:
    """Make the function that does such work without a break."""

    @wraps(work)
    def done(*given: Given.args, **more: Given.kwargs) -> Result:
        return run(work(*given, **more))

    return done


def report(
    work: Generator[Part, None, Result], how: Callable[[Part, int], Report], every: int = 1
) -> Generator[Report, None, Result]:
    """Do the work; yield how(part, number) of a turn's last part, from 1; return what it comes to.

    every: the parts of a turn.
    """
    number, turn = 0, Turn(every)
    while True:
        try:
            part = next(work)
        except StopIteration as end:
            return end.value
        number += 1
        if turn.over():
            yield how(part, number)
            turn.begin()


def measure(
    work: Generator[Part, None, Result], spent: list[float]
) -> Generator[Part, None, Result]:
    """Do the work as it is, and add to `spent` the time of each of its parts [s]."""
    while True:
        start = time.monotonic()
        try:
            part = next(work)
        except StopIteration as end:
            return end.value
        spent.append(time.monotonic() - start)
        yield part
