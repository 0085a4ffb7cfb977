"""Products of an experiment: results.csv, and the pictures and tables that its file names."""

import glob
import subprocess
import sys
import zlib
from collections.abc import Generator, Iterator
from itertools import chain
from pathlib import Path

from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.results import rowfiles, rows
from esac_mpi.record import RunFiles
from esac_mpi.studies.experiments import design, running
from esac_mpi.studies.experiments.plan import Experiment, Planned, Product

Recorded = list[tuple[Planned, RunFiles, bool]]  # runs, and whether each is done
# what `rows.rows` takes beside a run
About = tuple[str, str, str, str, bool, int, rows.Time | None]


def drawn(
    found: Experiment, runs: list[Planned], folder: Path, budget: str
) -> Generator[object, None, list[str]]:
    """Write results.csv and the products; yield the files, return the products that failed.

    Raises Unusable where there is no run to make them from, or one of other settings.
    """
    opened = [(run, running.files_of(run), running.is_done(run)) for run in runs]
    there = [
        (run, files, over) for run, files, over in opened if files is not None and files.generation
    ]
    if not there:
        raise Unusable(f"{folder}: nothing to draw yet, no run has a generation")
    if len(there) < len(runs):
        note(f"{len(there)} of {len(runs)} runs have something to draw")
    if unfinished := [run.run_dir.name for run, _, over in there if not over]:
        note(
            f"not finished: {some(unfinished)}; all are compared at what these have reached; "
            "at a named time they are left out"
        )
    csv, failed = folder / "results.csv", list[str]()
    record(csv, there, found, budget)
    yield csv
    for product in found.products:
        for out, line in calls(product, [run for run, *_ in there], csv):
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            print(done.stderr, end="", file=sys.stderr)
            if done.returncode:
                failed.append(out.name)
            else:
                yield done.stdout.rstrip() if str(out) in done.stdout else f"{done.stdout}{out}"
    return failed


def calls(product: Product, runs: list[Planned], csv: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the file and the command line of a product's calls: one, or one a task or run."""
    groups: dict[str, list[Planned]] = {}
    for run in runs:
        key = ""
        if "{run}" in product.out:
            key = run.run_dir.name
        elif "{task}" in product.out:
            key = run.task
        groups.setdefault(key, []).append(run)
    for key, group in groups.items():
        paths = [str(run.run_dir) for run in group]
        replaced = {
            "{runs}": paths,
            "{run}": paths[:1],
            "{csv}": [str(csv)],
            "{task}": [group[0].config.task.id],
        }
        out = csv.with_name(
            product.out.replace("{run}", key).replace("{task}", design.file_name(key))
        )
        arguments = [
            token for argument in product.arguments for token in replaced.get(argument, [argument])
        ]
        program = [sys.executable, "-m", "esac_mpi.commands", Path(product.tool).stem]
        yield out, [*program, *arguments, "--out", str(out)]


def record(csv: Path, runs: Recorded, found: Experiment, budget: str) -> None:
    """Write the compact record of an experiment's runs."""
    files = [
        kept(csv.parent, run, described(found, planned, budget, done))
        for planned, run, done in runs
    ]
    rowfiles.write(csv, chain.from_iterable(map(rowfiles.read_one, files)))


def described(found: Experiment, planned: Planned, budget: str, done: bool) -> About:
    """Collect what decides a run's rows beside it, with the time of its computed clock, if any."""
    until = (planned.clock.machine, planned.clock.seconds) if planned.clock else None
    return found.id, budget, planned.label, planned.value, done, found.points, until


def kept(folder: Path, run: RunFiles, about: About) -> Path:
    """Write a run's rows, unless they are there; remove those of another time or program."""
    source = run.columns.source
    there = (source.stat().st_mtime_ns, source.stat().st_size) if source else None
    key = zlib.crc32(repr((about, run.generation, there, rows.VERSION)).encode())
    path = folder / "rows" / f"{run.path.name}-{key:08x}.csv"
    if source is None or not path.exists():
        for older in path.parent.glob(f"{glob.escape(run.path.name)}-{'[0-9a-f]' * 8}.csv"):
            older.unlink()
        rowfiles.write(path, rows.rows(run, *about))
    return path


def keep(found: Experiment, planned: Planned, budget: str) -> None:
    """Write the rows of a run that is done, which leaves those of the last one for the end."""
    files = running.files_of(planned)
    if files is not None and files.generation:
        kept(planned.run_dir.parent, files, described(found, planned, budget, True))
