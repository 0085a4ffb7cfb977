"""What the analysis says to whom it works for: an error in a sentence, a note that is no error."""

from collections.abc import Iterable

from esac_mpi.host.errors import RunError
from esac_mpi.host.log import complain

DAMAGED = 65  # exit code


class Unusable(RunError):
    """These runs do not have what was asked for; the message is for the user, with an exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Missing(Unusable, ImportError):
    """A library of an extra is not installed."""


def note(text: str) -> None:
    """Print a remark on stderr."""
    complain(f"note: {text}")


def shorten(names: Iterable[object], shown: int = 5) -> str:
    """Join the first names and the count of the others."""
    listed = [str(name) for name in names]
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


def note_unfinished(names: Iterable[str]) -> None:
    """Name the runs that are not complete, if any: what is shown of them is what they have."""
    if listed := list(names):
        note(f"not complete: {shorten(listed)}")


def format_range(ends: Iterable[object]) -> str:
    """Return "least to most" of these two, or one of them if they read alike."""
    return " to ".join(dict.fromkeys(map(str, ends)))
