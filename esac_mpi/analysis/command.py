"""What the commands do alike: open runs, print what was made, or say in a sentence why not."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from esac_mpi.analysis.measures import STATES
from esac_mpi.analysis.messages import DAMAGED, Unusable, note, note_unfinished, shorten
from esac_mpi.analysis.outcomes import OF_POLICY
from esac_mpi.config.bounds import INT64, NON_NEGATIVE, Bound, at_least, at_most
from esac_mpi.config.exact import whole
from esac_mpi.host.errors import WRONG_USAGE, NotSaved, RunError
from esac_mpi.host.invocation import call_of
from esac_mpi.host.log import complain
from esac_mpi.host.paths import PICTURES, PathLike, has_suffix, list_paths, read_path, whole_file
from esac_mpi.host.run_directory import is_of_run, moved_from
from esac_mpi.record import Run, RunFiles, Unreadable

GONE = {  # options of 0.2.0, of a command's own or of several: what there is in their place
    "'draw'": "esac-mpi plot draws CSV files, too",
    "experiment 'submit'": "`experiment jobs` writes the lists, and prints how to submit them",
    "search --json": "Optuna reads the study's journal.log (docs/how-to/search.md)",
    "--sort": "`sort` orders the table's lines",
    "--task": "a shell's patterns choose by the runs' names",
    "--updates-per-second": "--check forecasts other learners",
}

Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """A parser that says of an option of a former version what there is in its place."""

    def error(self, message: str) -> NoReturn:
        """Complain, and end with exit code 2."""
        command = self.prog.split()[-1]
        gone = [
            f"; {word} is no option any more: {GONE[key]}"
            for word in message.split()
            for key in (word, f"{command} {word}")
            if key in GONE
        ]
        super().error(message + "".join(gone))


def parser(about: str | None) -> argparse.ArgumentParser:
    """Make a command's parser; about: its docstring: title, usage, examples and the rest.

    The options that it reads have it as `line`.
    """
    if about is None:
        complain("PYTHONOPTIMIZE=2 (-OO) leaves out the texts of commands: set 1")
        sys.exit(WRONG_USAGE)
    title, usage, text = about.split("\n\n", 2)
    name, usage = usage.split()[1], usage.strip().replace("\n", "\n   ")
    width = min(shutil.get_terminal_size().columns, 100)
    raw = partial(argparse.RawDescriptionHelpFormatter, width=width)
    made = Parser(call_of(name), usage, f"{title}\n\n{text}", formatter_class=raw)
    made.set_defaults(line=made)
    return made


def out_path(text: str) -> Path:
    """Read where to write, as argparse's `type`: not over a file of a run."""
    path = read_path(text)
    if text == "-":
        raise argparse.ArgumentTypeError("-: standard output is no file; ./- is one of that name")
    if is_of_run(path):
        raise argparse.ArgumentTypeError(f"{path}: a file of a run, which stays; choose another")
    return path


def bounded(read: Callable[[str], Number], *bounds: Bound) -> Callable[[str], Number]:
    """Make an argparse `type` that reads a number within bounds."""

    def number(text: str) -> Number:
        value = read(text)
        for problem in (bound.problem(value) for bound in bounds):
            if problem:
                raise argparse.ArgumentTypeError(f"{text}: {problem}")
        return value

    return number


def number_in(low: float, high: float, unit: str) -> Callable[[str], float]:
    """Make the same of a number from low to high."""
    words = f"must be from {low:g} to {high:g} {unit}"
    return bounded(float, Bound(lambda value: low <= value <= high, words))


count = bounded(whole, at_least(1))
whole_number = bounded(whole, NON_NEGATIVE, INT64)
amount = bounded(float, NON_NEGATIVE)
list_length = bounded(whole, at_least(1), at_most(1_000_000))  # of what is listed one by one
pause = number_in(0, 86_400, "seconds")  # between looks at files
SHARED: dict[str, dict[str, Any]] = {  # options that several commands have
    "runs": {"nargs": "+", "type": read_path, "metavar": "RUN", "help": "run directory"},
    "--status": {
        "nargs": "+", "action": "extend", "choices": STATES, "default": [], "metavar": "STATUS",
        "help": f"only runs of these: {', '.join(STATES)}",
    },
    "--policy": {
        "default": "better", "metavar": "better|NAME",
        "help": "whose evaluations; default: the better one each time",
    },
    "--ranks": {
        "nargs": "+", "action": "extend", "type": list_length, "metavar": "R",
        "help": "wall time as computed for R ranks, in place of the measured one",
    },
    "--last": {
        "type": count, "default": 10, "metavar": "G",
        "help": "of scaling: generations that are averaged; the paper's 10",
    },
    "--at-steps": {
        "type": whole_number, "default": 0, "metavar": "N",
        "help": "true steps of population and learner at which runs are compared; 0: at their ends",
    },
}  # fmt: skip


def add_options(line: argparse.ArgumentParser, *names: str) -> None:
    """Add these of the shared options to a command line."""
    for name in names:
        line.add_argument(name, **SHARED[name])


def ranks_of(options: argparse.Namespace) -> int:
    """Read the ranks that wall time is computed for, 0: the measured one. Raises Unusable."""
    one, *others = options.ranks or [0]
    if others:
        raise Unusable("--ranks must be one number")
    return int(one)


def refuse_unread(options: argparse.Namespace, what: str, unread: Iterable[str]) -> None:
    """Raise Unusable for set options that what was asked for does not read; unread: their names."""
    default = options.line.get_default
    found = [name for name in unread if getattr(options, name) != default(name)]
    if found:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in found)
        raise Unusable(f"{what} does not read {names}: leave {'them' if found[1:] else 'it'} out")


def refuse_others(options: argparse.Namespace, read: Iterable[str]) -> None:
    """Raise Unusable for set options that --what does not read; read: names of those it does."""
    about = f"--what {options.what}"
    taken = {"line", "runs", "what", "format", "out", "size", "font", *read}
    if "measure" in taken and options.measure in OF_POLICY:
        taken.add("policy")
    elif "measure" in taken:
        about += f" --measure {options.measure}"
    refuse_unread(options, about, sorted(vars(options).keys() - taken))


def try_open(paths: Iterable[str | Path]) -> tuple[dict[Path, RunFiles], list[Exception], int]:
    """Open the readable runs; return them, the errors of the others and the exit code."""
    runs, problems = dict[Path, RunFiles](), list[Exception]()
    for path in map(Path, paths):
        try:
            found = Run.open(path)
            if found.columns.closed:  # damage that only reading them tells
                found.columns.read(found.columns.scalars[:1])
            runs[path] = found
        except (RunError, OSError) as error:
            problems.append(error)
    damaged = any(isinstance(error, Unreadable) for error in problems)
    return runs, problems, DAMAGED if damaged else 2 if problems else 0


def distinct(paths: Iterable[Path]) -> list[Path]:
    """List each place once, by the first path to it, whatever links there are, in circles too."""
    places: dict[str, Path] = {}
    for path in paths:
        places.setdefault(os.path.realpath(path), path)
    return list(places.values())


def opened(paths: PathLike | Iterable[PathLike]) -> list[RunFiles]:
    """Open every run once, in order, but those that --fresh set aside for another one of them.

    Raises Unusable, a sentence for each that cannot be read.
    """
    places = distinct(list_paths(paths))
    aside = [place for place in places if moved_from(place) in {*places} - {place}]
    if aside:
        note(f"left out, as --fresh set them aside: {shorten(place.name for place in aside)}")
    runs, problems, code = try_open(place for place in places if place not in aside)
    if problems:
        raise Unusable("\n".join(map(str, problems)), code)
    return list(runs.values())


def open_readable(paths: Iterable[Path]) -> tuple[dict[Path, RunFiles], int]:
    """Open the readable runs and print the errors of the others; return also an exit code."""
    runs, problems, code = try_open(paths)
    for problem in problems:
        complain(problem)
    return runs, code


def print_all(lines: Iterable[object], options: Collection[str] = ("out",)) -> int:
    """Print what a command yields, or its error; return the exit code. options: of the command."""
    printing = False
    try:
        for line in lines:
            printing = True
            print(line, flush=True)
            printing = False
    except RunError as error:  # Unusable, or a file damaged after the run was opened
        complain(error)
        return error.code
    except OSError as error:
        if printing:  # who called says so
            raise
        named = error.filename is not None  # of one that is open, as on a full disk, it is not
        told = f"{error.filename if named else 'what was being written'}: {error.strerror}"
        place = next((name for name in ("out", "root") if name in options), "")
        advice = place and f"; choose another --{place}"
        # a library's own error may be a text alone
        complain(f"{told}{advice}" if error.strerror else error)
        return WRONG_USAGE if named else NotSaved.code
    return 0


def write_text(text: str, out: Path | None) -> Iterator[object]:
    """Write a text and yield the file, whose folder is made; without a file yield the text.

    Raises Unusable for a picture's name.
    """
    if out is None:
        yield text
        return
    if has_suffix(out, *PICTURES):
        raise Unusable(f"--out {out}: a text, which is no picture; choose another name")
    with whole_file(out) as file:
        file.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")  # as printed
    yield out


def tell_unfinished(runs: Iterable[RunFiles]) -> None:
    """Name the runs that are not complete: what is measured of them is what they have so far."""
    note_unfinished(f"{run.path.name} ({run.state})" for run in runs if run.state != "complete")
