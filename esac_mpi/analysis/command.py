"""What the commands do alike: open the runs asked for, print what was made, or say in a sentence why not."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from esac_mpi.analysis.clock import Machine
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.config import ConfigError
from esac_mpi.config.bounds import INT64, NON_NEGATIVE
from esac_mpi.config.exact import whole
from esac_mpi.host.invocation import SCRIPT, as_called, called
from esac_mpi.host.paths import given
from esac_mpi.record import Refused, Run, RunFiles, Unreadable


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return the command line of a command, whose docstring is its help and names it first, as `esac-mpi NAME`."""
    text = about or ""
    name = text.partition(f"{SCRIPT} ")[2].split()[0]
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        prog=called(name), description=as_called(text), formatter_class=raw
    )


def seed(text: str) -> int:
    """Return the seed that a text says, as argparse's `type`."""
    value = whole(text)
    if problem := NON_NEGATIVE.problem(value) or INT64.problem(value):
        raise argparse.ArgumentTypeError(problem)
    return value


def add_runs(line: argparse.ArgumentParser) -> None:
    """Let a command take run directories."""
    line.add_argument("runs", nargs="+", type=given, metavar="RUN", help="run directory")


def add_policy(line: argparse.ArgumentParser, text: str) -> None:
    """Let a command take the name of a policy that the runs have evaluated."""
    line.add_argument(
        "--policy",
        default="better",
        metavar="better|NAME",
        help=f"{text}; default: the better one each time",
    )


def add_labels(line: argparse.ArgumentParser) -> None:
    """Let a command take what a legend calls the groups."""
    text = "what the legend calls a group, once for each group in the legend's order; default: by what tells them apart"
    line.add_argument("--label", action="append", default=[], metavar="TEXT", help=text)


def add_machine(line: argparse.ArgumentParser) -> None:
    """Let a command take the machine that wall time is computed for."""
    line.add_argument(
        "--ranks",
        type=whole,
        metavar="R",
        help="wall time as computed for R ranks, in place of the measured one",
    )
    line.add_argument(
        "--updates-per-second",
        type=float,
        metavar="U",
        help="with a learner of so many; default: as it was",
    )


def machine_of(options: argparse.Namespace) -> Machine | None:
    """Return the machine that wall time is computed for, None where it is the measured one. Raises Unusable."""
    ranks, rate = options.ranks, options.updates_per_second
    if ranks is None and rate is None:
        return None
    if ranks is None or ranks < 1 or (rate is not None and not rate > 0):
        raise Unusable(
            "--ranks must be 1 or more, and --updates-per-second, which needs --ranks, more than 0"
        )
    return Machine(ranks, rate or 0.0)


def refuse_unread(
    line: argparse.ArgumentParser, options: argparse.Namespace, what: str, unread: Iterable[str]
) -> None:
    """Raise Unusable for options that are set and that what was asked for does not read; unread: their names."""
    found = [
        f"--{name.replace('_', '-')}"
        for name in unread
        if getattr(options, name) != line.get_default(name)
    ]
    if found:
        raise Unusable(
            f"{what} does not read {', '.join(found)}: leave {'them' if len(found) > 1 else 'it'} out"
        )


def opened(paths: Iterable[str | Path]) -> list[RunFiles]:
    """Open every run once, in the order given. Raises Unusable with a sentence for each that cannot be read."""
    runs, problems, code = {}, [], 2
    for path in map(Path, paths):
        try:
            runs[path.resolve()] = Run.open(path)
        except (Refused, ConfigError, Unreadable, OSError) as error:
            problems.append(str(error))
            code = 65 if isinstance(error, Unreadable) else code
    if problems:
        failure = Unusable("\n".join(problems))
        failure.code = code
        raise failure
    return list(runs.values())


def ended(action: Callable[[], Iterable[object]]) -> int:
    """Print what the action yields, or its complaint; return the exit code."""
    try:
        for line in action():
            print(line)
    except Unusable as error:
        print(error, file=sys.stderr)
        return error.code
    except Unreadable as error:  # a file that was damaged or replaced after the run was opened
        print(error, file=sys.stderr)
        return 65
    except OSError as error:
        if error.filename is None:  # of what is printed: who called says so
            raise
        print(f"{error.filename}: {error.strerror}; choose another --out", file=sys.stderr)
        return 2
    return 0


def written(text: str, out: Path | None) -> Iterator[object]:
    """Yield a text, or the file that it was written to, whose folder is made."""
    if out is None:
        yield text
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")
    yield out


def tell_unfinished(runs: Iterable[RunFiles]) -> None:
    """Name the runs that are not complete: what is measured of them is what they have so far."""
    if unfinished := [f"{run.path.name} ({run.state})" for run in runs if run.state != "complete"]:
        note(f"not complete: {some(unfinished)}")
