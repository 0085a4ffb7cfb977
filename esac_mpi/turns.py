"""Work that yields between its parts, so that other work gets its turn."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def run(work: Generator[object, None, Result]) -> Result:
    """Run what is left of the work without a break; return what it comes to."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
