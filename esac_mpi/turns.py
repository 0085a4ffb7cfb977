"""Work that yields between its parts, so that other work gets its turn."""

import time
from collections.abc import Callable, Generator
from typing import TypeVar

Part = TypeVar("Part")
Told = TypeVar("Told")
Result = TypeVar("Result")
ON_DEVICE = -1  # what work yields while a device goes on alone with what it was given, and there is nothing to do before its end


def run(work: Generator[object, None, Result]) -> Result:
    """Run what is left of the work without a break; return what it comes to."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def told(work: Generator[Part, None, Result], how: Callable[[Part, int], Told], every: int = 1) -> Generator[Told, None, Result]:
    """Do the work; yield how(part, number) of what it yields, numbered from 1, at every so manyth; return what it comes to."""
    number = 0
    while True:
        try:
            part = next(work)
        except StopIteration as end:
            return end.value
        number += 1
        if number % every == 0:
            yield how(part, number)


def timed(work: Generator[Part, None, Result], spent: list[float]) -> Generator[Part, None, Result]:
    """Do the work as it is, and add to `spent` the time of each of its parts [s]."""
    while True:
        start = time.monotonic()
        try:
            part = next(work)
        except StopIteration as end:
            return end.value
        spent.append(time.monotonic() - start)
        yield part
