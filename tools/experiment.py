"""The paper's experiments, and ablations: list them, show what one is and costs, run it here, or submit it to a cluster.

    python tools/experiment.py list
    python tools/experiment.py show ID
    python tools/experiment.py run ID [--budget smoke|small|paper] [--at-once 2]
    python tools/experiment.py draw ID [--budget B]
    python tools/experiment.py submit ID [--budget B] [--dry-run]
    python tools/experiment.py speeds

run starts what is not finished, --at-once runs of one core each (runs on several ranks alone), prints a line as each ends, and
can be interrupted and started again: every run goes on where it was. All variants of seed 0 come first. At its end, and by draw
at any time, it writes results.csv and the pictures and tables of the experiment into its folder, runs/experiments/ID-BUDGET.
submit prints the estimated core-hours, writes the list of jobs and submits it with sbatch or qsub, or prints how to.
speeds measures what the estimates are made from. An experiment is a file of configs/experiments/, whose README has the format.
Cost: as show says. Exit codes: 0 all done; 75 stopped, run it again; 1 a run or product failed; 2 wrong usage.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from esac_mpi.experiments import design
from esac_mpi.experiments import estimates
from esac_mpi.experiments import running
from esac_mpi.analysis.command import Unusable, ended, note, some
from esac_mpi.experiments.design import ROOT, Experiment, Planned, Product

from esac_mpi.config import as_words
from esac_mpi.record import RunFiles

STOPPED = 75
Recorded = list[tuple[RunFiles, str, str, bool]]  # runs: variant, swept value, whether it is done
Recorder = Callable[[Path, Recorded, str, str, int], None]  # see `recorded`


def listing() -> Iterator[str]:
    """Yield a line for each experiment."""
    for name in design.names():
        found = design.experiment(name)
        yield f"{name:<10} {found.title}"


def shown(id: str, root: Path) -> Iterator[str]:
    """Yield what an experiment is: title, claim, runs and cost of each budget, variants, products."""
    found, known = design.experiment(id), estimates.speeds()
    yield f"{found.id}: {found.title}\n\nThe paper: {found.claim}\n"
    for name, budget in found.budgets.items():
        runs = design.runs(found, name, root)
        seeds, wall = f"{budget.seeds} seed{'s' * (budget.seeds > 1)}", f", {budget.seconds:g} s each" if budget.seconds else ""
        yield f"{name:<6} {priced(runs, budget.cores, known)}; {seeds}{wall}"
        yield f"       tasks {', '.join(budget.tasks or found.tasks)}"
    yield f"\nestimated from {known.about}\n"
    for name, settings in found.variants.items():
        yield f"{name:<14} {written(settings)}"
    if found.field:
        yield f"\nswept: {found.field} = {', '.join(map(str, found.values))}"
    for name, budget in found.budgets.items():
        for what, settings in {"": budget.settings, **budget.for_task, **budget.for_variant}.items():
            if settings:
                yield f"{name}{', ' * bool(what)}{what}: {written(settings)}"
    yield ""
    for product in found.products:
        yield f"{product.out:<24} {product.tool} {shlex.join(product.arguments)}"


def priced(runs: list[Planned], cores: int, known: estimates.Speeds) -> str:
    """Return what runs cost, or that it is not known."""
    try:
        return estimates.total(runs, cores, known)
    except Unusable as error:
        return f"{len(runs)} runs, cost unknown: {error}"


def written(settings: dict[str, Any]) -> str:
    """Return settings as the command line has them."""
    return " ".join(f"--{key} {' '.join(as_words(value))}" for key, value in settings.items()) or "as the tasks say"


def carried_out(options: argparse.Namespace, recorder: Recorder) -> Iterator[object]:
    """Run what is not finished, then record and draw. Raises Unusable, Failed."""
    if options.at_once < 1:
        raise Unusable("--at-once must be 1 or more")
    found = design.experiment(options.id)
    runs = design.runs(found, options.budget, options.root)
    folder = folder_of(found, options)
    folder.mkdir(parents=True, exist_ok=True)
    spent, results = running.Spent(folder), []
    work = [(run, rest) for run in runs if (rest := running.left(run, spent)) is not None]
    yield f"{folder}: {len(runs)} runs, {len(runs) - len(work)} finished"
    with running.wish() as heard, closing(running.carry_out(work, options.at_once, spent, heard)) as ends:
        for result in ends:
            results.append(result)
            print(f"[{len(runs) - len(work) + len(results)}/{len(runs)}] {result}", flush=True)
    if heard or any(result.how == "stopped" for result in results):
        raise Failed("stopped; the same command goes on", STOPPED)
    problems = [result.planned.run_dir.name for result in results if result.how == "failed"]
    problems += yield from drawn(found, runs, folder, options.budget, recorder)
    if problems:
        raise Failed(f"failed: {', '.join(problems)}")


class Failed(Unusable):
    """Something of an experiment did not come to its end, after all else that could be done was."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def folder_of(found: Experiment, options: argparse.Namespace) -> Path:
    """Return the folder of an experiment at a budget."""
    return options.root / f"{found.id}-{options.budget}"


def drawn(
    found: Experiment, runs: list[Planned], folder: Path, budget: str, recorder: Recorder
) -> Generator[object, None, list[str]]:
    """Write results.csv and the products from the runs that there are; yield the files, return the products that failed.

    Raises Unusable where there is no run to make them from, or one of other settings.
    """
    spent = running.Spent(folder)
    opened = [(run, running.opened(run), running.left(run, spent) is None) for run in runs]
    there = [(run, files, over) for run, files, over in opened if files is not None and files.generation]
    if not there:
        raise Unusable(f"{folder}: nothing to draw yet, no run has a generation")
    if len(there) < len(runs):
        note(f"{len(there)} of {len(runs)} runs have something to draw")
    if unfinished := [run.run_dir.name for run, _, over in there if not over]:
        note(f"not finished: {some(unfinished)}; all are compared at what these have reached")
    csv, failed = folder / "results.csv", list[str]()
    recorder(csv, [(files, run.label, run.value, over) for run, files, over in there], found.id, budget, found.points)
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
    """Yield the file and the command line of each call that makes a product: one, or one for each task or run."""
    groups: dict[str, list[Planned]] = {}
    for run in runs:
        key = run.run_dir.name if "{run}" in product.out else run.task if "{task}" in product.out else ""
        groups.setdefault(key, []).append(run)
    for key, group in groups.items():
        paths = [str(run.run_dir) for run in group]
        replaced = {"{runs}": paths, "{run}": paths[:1], "{csv}": [str(csv)], "{task}": [group[0].config.task.id]}
        out = csv.with_name(product.out.replace("{run}", key).replace("{task}", key))
        arguments = [token for argument in product.arguments for token in replaced.get(argument, [argument])]
        yield out, [sys.executable, str(ROOT / "tools" / product.tool), *arguments, "--out", str(out)]


def recorded(csv: Path, runs: Recorded, experiment: str, budget: str, most: int) -> None:
    """Write the compact record of runs, each with its variant and swept value, at most `most` rows a run."""
    import results

    found = (results.rows(run, experiment, budget, variant, value, done, most) for run, variant, value, done in runs)
    results.write(csv, chain.from_iterable(found))


def submitted(options: argparse.Namespace) -> Iterator[object]:
    """Write the lists of jobs, one for each number of ranks, and submit them where there is a batch system.

    Raises Unusable where wall time ends the runs, Failed.
    """
    found = design.experiment(options.id)
    budget = design.chosen(found, options.budget)
    if budget.seconds:
        raise Unusable(
            "runs of this budget are ended by wall time, which `run` gives them; as jobs they would go on:"
            " choose another budget, or run it here"
        )
    runs, cores = design.runs(found, options.budget, options.root), budget.cores
    yield priced(runs, cores, estimates.speeds())
    by_ranks: dict[int, list[Planned]] = {}
    for run in runs:
        by_ranks.setdefault(estimates.ranks_of(run, cores), []).append(run)
    system = next((name for name in ("sbatch", "qsub") if shutil.which(name)), "")
    for ranks, group in sorted(by_ranks.items()):
        out = folder_of(found, options) / f"jobs-{ranks}-ranks.txt"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(f"{line(run)}\n" for run in group), encoding="utf-8")
        yield f"{out}: {len(group)} jobs of {ranks} rank{'s' * (ranks > 1)}"
        commands = {"sbatch": slurm(out, len(group), ranks), "qsub": pbs(out, len(group), ranks)}
        for name, (environment, call) in commands.items():
            if name == system and not options.dry_run:
                if code := subprocess.run(call, env={**os.environ, **environment}, check=False).returncode:
                    raise Failed(f"{shlex.join(call)}: exit code {code}; what follows it was not submitted")
            elif name == system or not system:
                settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
                yield f"{name:<7} {settings} {shlex.join(call)}"


def line(run: Planned) -> str:
    """Return a run's line of a list, as tools/sweep.py writes it."""
    return shlex.join([*run.line, "--run-dir", str(run.run_dir)])


def slurm(out: Path, count: int, ranks: int) -> tuple[dict[str, str], list[str]]:
    """Return environment and command line that submit a list to Slurm."""
    return {"LIST": str(out)}, ["sbatch", f"--ntasks={ranks}", f"--array=0-{count - 1}%10", "jobs/slurm-array.sbatch"]


def pbs(out: Path, count: int, ranks: int) -> tuple[dict[str, str], list[str]]:
    """Return environment and command line that submit a list to PBS; an array has two elements or more."""
    environment = {"LIST": str(out), "LAUNCH": f"mpiexec -n {ranks}"} | ({"INDEX": "0"} if count == 1 else {})
    select = f"select=1:ncpus={ranks}:mpiprocs={ranks}:ompthreads=1"
    elements = ["-J", f"0-{count - 1}"] if count > 1 else []
    return environment, ["qsub", "-v", ",".join(environment), "-l", select, *elements, "jobs/pbs-array.sh"]


def redrawn(options: argparse.Namespace, recorder: Recorder) -> Iterator[object]:
    """Record and draw what there is. Raises Unusable, Failed."""
    found = design.experiment(options.id)
    runs = design.runs(found, options.budget, options.root)
    if failed := (yield from drawn(found, runs, folder_of(found, options), options.budget, recorder)):
        raise Failed(f"failed: {', '.join(failed)}")


def measured(options: argparse.Namespace) -> Iterator[object]:
    """Measure this machine's speeds for the tasks of all experiments."""
    from esac_mpi.experiments import stopwatch

    planned = [run for name in design.names() for b in ("small", "paper") for run in runs_of(name, b)]
    yield stopwatch.write(sorted({run.config.task.id for run in planned}), options.machine)


def runs_of(name: str, budget: str) -> list[Planned]:
    """Return the runs of a budget, none if the experiment has no such budget."""
    found = design.experiment(name)
    return design.runs(found, budget, Path()) if budget in found.budgets else []


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    main = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = main.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="the experiments")
    default = {"show": None, "run": "small", "draw": "small", "submit": "paper"}
    for name, what in default.items():
        action = actions.add_parser(name)
        action.add_argument("id", metavar="ID", help="a file of configs/experiments/, without .toml")
        action.add_argument("--root", type=Path, default=Path("runs/experiments"), help="directory of the experiments' folders")
        if what:
            action.add_argument("--budget", default=what, help=f"smoke, small or paper; default {what}")
    actions.choices["run"].add_argument("--at-once", type=int, default=2, metavar="N", help="runs at the same time (2)")
    actions.choices["submit"].add_argument("--dry-run", action="store_true", help="print the commands instead")
    speeds = actions.add_parser("speeds", help="measure this machine, for the estimates")
    speeds.add_argument("--machine", default=f"{os.cpu_count()} cores", help="what kind of machine this is")
    return main


def main(argv: list[str], recorder: Recorder = recorded) -> int:
    """Do what the command line says; return the exit code."""
    options = parser().parse_args(argv)
    actions: dict[str, Callable[[], Iterator[object]]] = {
        "list": listing,
        "show": lambda: shown(options.id, options.root),
        "run": lambda: carried_out(options, recorder),
        "draw": lambda: redrawn(options, recorder),
        "submit": lambda: submitted(options),
        "speeds": lambda: measured(options),
    }
    return ended(actions[options.action])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
