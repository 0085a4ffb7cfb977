"""Paths as a person gives them, in options, TOML and Python: ~ is read as a shell reads it."""

import os
import re
import shutil
import uuid
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PICTURES = (".png", ".pdf", ".svg")
Kind = Callable[[str], Exception]  # of the error for a path that names no place
PathLike = str | os.PathLike[str]


def has_suffix(path: Path, *suffixes: str) -> bool:
    """Tell whether a name ends in one of these, in any case."""
    return path.suffix.lower() in suffixes


def list_paths(paths: PathLike | Iterable[PathLike]) -> list[Path]:
    """List one path, or several."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def read_path(text: str | bytes | os.PathLike[str], kind: Kind = ArgumentTypeError) -> Path:
    """Read a path that a person gives; also as argparse's `type`. Raises an error of this kind."""
    return Path(expand_home(text, kind))


def expand_home(text: str | bytes | os.PathLike[str], kind: Kind = ArgumentTypeError) -> str:
    """Expand a leading ~ or ~user, and change nothing else. Raises an error of this kind.

    What was expanded can be expanded again. A variable at the beginning is refused: a shell leaves
    it in single quotes, and TOML has none.
    """
    said = os.fsdecode(text)
    if re.search("[\0\ud800-\udc7f\udd00-\udfff]", said):
        raise kind(f"{said!r}: no path has a NUL character or half a surrogate pair")
    found = os.path.expanduser(said)
    if found.startswith("~"):
        who = said.partition("/")[0]
        remedy = f"write the path itself, or ./{said} for that name"
        raise kind(f"{said}: {who} has no home directory here; {remedy}")
    if (variable := re.match(r"\$(\w+|\{\w+\})", found)) and not os.path.lexists(found):
        why = f"{variable[0]} was not replaced, as no shell has read it"
        raise kind(f"{said}: {why}; write the path itself")
    # ./~, which pathlib makes ~
    return os.path.abspath(found) if str(Path(found)).startswith(("~", "$")) else found


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield where to write a file that takes its place once it is whole; its folder is made.

    So what was there survives a full disk, and what cannot be written is refused before the work. A
    device, and a file in a folder that is not ours, is written as it is.
    """
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    there = place.exists()
    if there and not (place.is_file() and os.access(place.parent, os.W_OK)):
        yield place
        return
    # of this writer alone: other hosts and threads have the same numbers
    beside = place.with_name(f".{uuid.uuid4()}{place.suffix}")
    try:
        if there:
            os.close(os.open(place, os.O_WRONLY))
        beside.touch(exist_ok=False)
        yield beside
        if there:
            shutil.copymode(place, beside)
        beside.replace(place)
    except OSError as error:
        if error.filename == str(beside):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            beside.unlink()
