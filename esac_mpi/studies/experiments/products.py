"""Products of an experiment: results.csv, and the pictures and tables that its file names."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from esac_mpi.analysis.messages import Unusable, note, shorten
from esac_mpi.analysis.results import rows
from esac_mpi.host.errors import FAILED, WRONG_USAGE
from esac_mpi.host.log import complain
from esac_mpi.studies.experiments import design, running
from esac_mpi.studies.experiments.plan import Experiment, Planned, Product


def make_products(
    found: Experiment, runs: list[Planned], budget: str, failed: Iterable[str] = ()
) -> Iterator[object]:
    """Write results.csv and the products; yield the files.

    Raises Unusable where there is no run to make them from, or one of other settings; at the end
    for products that failed, and for the runs that had: failed.
    """
    folder, problems = runs[0].run_dir.parent, [*failed]
    opened = [(run, running.open_files(run), running.is_done(run)) for run in runs]
    there = [
        (run, files, over) for run, files, over in opened if files is not None and files.generation
    ]
    if not there:
        told = f"{folder}: nothing to draw yet, no run has a generation"
        raise Unusable(told, FAILED if problems else WRONG_USAGE)
    drawn = {run.run_dir for run, *_ in there}
    if absent := [run.run_dir.name for run in runs if run.run_dir not in drawn]:
        told = f"{len(there)} of {len(runs)} runs have something to draw"
        note(f"{told}, left out are {shorten(absent)}")
    if unfinished := [run.run_dir.name for run, _, over in there if not over]:
        note(
            f"not finished: {shorten(unfinished)}; all are compared at what these have reached; "
            "at a named time they are left out"
        )
    csv = folder / "results.csv"
    each = (
        rows.rows_of(run, found.id, budget, planned.label, planned.value, done, found.points)
        for planned, run, done in there
    )
    rows.write_rows(csv, chain.from_iterable(each))
    yield csv
    for product in found.products:
        for out, line in calls(product, [run for run, *_ in there], csv):
            done = subprocess.run(
                line, capture_output=True, text=True, errors="replace", check=False
            )
            if done.stderr:
                complain(done.stderr.rstrip())
            if done.returncode:
                problems.append(out.name)
            else:
                yield done.stdout.rstrip() if str(out) in done.stdout else f"{done.stdout}{out}"
    if problems:
        raise Unusable(f"failed: {', '.join(problems)}", FAILED)


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
        module = ["esac_mpi.commands", product.command] if product.command else [product.tool]
        yield out, [sys.executable, "-m", *module, *arguments, "--out", str(out)]
