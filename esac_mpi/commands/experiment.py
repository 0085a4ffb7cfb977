"""Run, list, show and draw the papers' experiments and ablations, here or on a cluster.

    esac-mpi experiment list | show ID | run ID | draw ID | jobs ID | random TASK...

Examples:
    esac-mpi experiment show fig2c                          # one of them, whole
    esac-mpi experiment run fig2c --budget smoke            # make the runs, two at a time
    esac-mpi experiment jobs table1                         # job arrays, and how to submit them

show    the paper's claim, what is compared, the runs of each budget, and what is made of them
run     make the runs that are not finished, --at-once of one core each; runs on several ranks go
        alone. Repeat it after an interruption: every run continues where it was
draw    write results.csv, pictures and tables to runs/experiments/ID-BUDGET; run ends with it
jobs    write a list of jobs for each number of ranks, and print how to submit them
random  measure the returns of random actions, and write them beside the experiments

With --seeds several machines share an experiment; `esac-mpi results` reads several results.csv as
one.
Cost: show prints the command that forecasts it for a run.
Exit codes: 0 all done; 75 stopped, run it again; 1 failed; 2 wrong usage.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from esac_mpi.analysis.command import count, whole_number
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config.bounds import PLAIN, is_plain
from esac_mpi.config.exact import whole
from esac_mpi.host import batch_system
from esac_mpi.host.errors import WRONG_USAGE, Interrupted
from esac_mpi.host.paths import read_path
from esac_mpi.studies.experiments import design, running
from esac_mpi.studies.experiments.plan import Planned
from esac_mpi.studies.experiments.products import make_products
from esac_mpi.studies.experiments.report import describe, jobs, list_experiments


def select_seeds(runs: list[Planned], seeds: list[int] | None, what: str) -> list[Planned]:
    """Return the runs of these seeds, None = all. Raises Unusable, naming what, for another."""
    there = {run.seed for run in runs}
    for seed in seeds or []:
        if seed not in there:
            raise Unusable(f"--seeds {seed}: {what}, has {len(there)}, from 0 to {max(there)}")
    return [run for run in runs if seeds is None or run.seed in seeds]


def run(options: argparse.Namespace) -> Iterator[object]:
    """Run what is not finished, then record and draw. Raises Unusable."""
    if name := batch_system.of_several(os.environ):
        if not batch_system.is_speaker(os.environ):
            raise SystemExit(WRONG_USAGE)
        told = f"{name} = {os.environ[name]}, and an experiment starts its runs itself"
        raise Unusable(f"{told}: call it without mpirun or srun (or unset {name})")
    found = design.experiment(options.id)
    every = design.runs(found, options.budget, options.root)
    runs = select_seeds(every, options.seeds, f"{found.id}, {options.budget}")
    folder = every[0].run_dir.parent
    folder.mkdir(parents=True, exist_ok=True)
    ended, work = [], [run for run in runs if not running.is_done(run)]
    yield f"{folder}: {len(runs)} runs, {len(runs) - len(work)} finished"
    with (
        running.collected_signals() as signals,
        closing(running.run_all(work, options.at_once, signals)) as ends,
    ):
        for one in ends:
            ended.append(one)
            yield f"[{len(runs) - len(work) + len(ended)}/{len(runs)}] {one}"
    if signals or any(one.end == "stopped" for one in ended):
        raise Unusable("stopped; the same command goes on", Interrupted.code)
    failed = [one.planned.run_dir.name for one in ended if one.end == "failed"]
    yield from make_products(found, every, options.budget, failed)


def draw(options: argparse.Namespace) -> Iterator[object]:
    """Record and draw what there is. Raises Unusable."""
    found = design.experiment(options.id)
    runs = design.runs(found, options.budget, options.root)
    yield from make_products(found, runs, options.budget)


def measure_random(options: argparse.Namespace) -> Iterator[object]:
    """Measure what random actions return on tasks."""
    from esac_mpi.studies.experiments import random_actions

    yield random_actions.write(options.tasks, horizon=options.horizon, kwargs=options.kwargs)


def json_object(text: str) -> dict[str, Any]:
    """Return the object that a text of JSON is, as task.kwargs may be. Raises ArgumentTypeError."""
    found = None
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
    if not (isinstance(found, dict) and is_plain(found)):
        raise argparse.ArgumentTypeError(f"{text!r:.80}: expected an object of JSON, {PLAIN}")
    return found


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    actions = line.add_subparsers(dest="action", required=True, prog=line.prog)
    actions.add_parser("list", help="the experiments")
    default = {"show": "", "run": "small", "draw": "small", "jobs": "paper"}
    for name, budget in default.items():
        add = actions.add_parser(name).add_argument
        add("id", metavar="ID", help="a file of configs/experiments/, without .toml")
        if budget:
            root, text = Path("runs/experiments"), "where the experiments' folders are"
            add("--root", type=read_path, default=root, help=text)
            add("--budget", default=budget, help=f"smoke, small or paper; default {budget}")
    add = actions.choices["run"].add_argument
    text = "of the budget's seeds these alone"
    add("--seeds", nargs="+", action="extend", type=whole, metavar="N", help=text)
    add("--at-once", type=count, default=2, metavar="N", help="runs at the same time (2)")
    text = "what random actions return, for normalised scores"
    add = actions.add_parser("random", help=text).add_argument
    add("tasks", nargs="+", metavar="TASK", help="a task's id")
    text = "truncate episodes there [steps]; 0: the task's own limit"
    add("--horizon", type=whole_number, default=0, help=text)
    text = "what the task is made with, an object"
    add("--kwargs", type=json_object, default={}, metavar="JSON", help=text)


def main(options: argparse.Namespace) -> Iterator[object]:
    """Do what the command line says. Raises Unusable."""
    actions: dict[str, Callable[[], Iterator[object]]] = {
        "list": list_experiments,
        "show": lambda: describe(options.id),
        "run": lambda: run(options),
        "draw": lambda: draw(options),
        "jobs": lambda: jobs(options.id, options.budget, options.root),
        "random": lambda: measure_random(options),
    }
    return actions[options.action]()
