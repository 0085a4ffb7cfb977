"""What the analysis says to whom it works for: an error in a sentence, a note that is no error."""

import sys
from collections.abc import Iterable


class Unusable(Exception):
    """What was asked for cannot be had from these runs; the message is for the user. Exit code 2."""

    code = 2


class Missing(Unusable, ImportError):
    """A library of an extra is not installed."""


def damaged(text: str) -> Unusable:
    """Return the complaint about a file that cannot be read. Exit code 65."""
    failure = Unusable(text)
    failure.code = 65
    return failure


def note(text: str) -> None:
    """Tell the user something that is no error."""
    print(f"note: {text}", file=sys.stderr)


def some(names: Iterable[object], shown: int = 5) -> str:
    """Return the first names, and how many more there are."""
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")
