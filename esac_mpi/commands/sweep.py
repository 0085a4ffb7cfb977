"""Write the list of jobs of a grid: one line of command-line arguments for each run.

    esac-mpi sweep --tasks ID... | --configs TOML... [--algorithms NAME...] [--set FIELD X...]

Examples:
    esac-mpi sweep --tasks Hopper-v5 Ant-v5 --algorithms esac es --seeds 0-4
    esac-mpi sweep --configs configs/esac/ant.toml --set esac.amt_clip 1e-6 1e-4 1e-2
    esac-mpi sweep --tasks HalfCheetah-v5 --set policy.hidden "64 64" "256 256" --out sizes.txt

The grid: (configs or tasks) x algorithms x the values of every --set x seeds. A field without a
table (`--set sigma 0.01 0.1`) is each algorithm's own. A field that an algorithm does not have is
left out of its runs. Every line has its own --run-dir, so one that is started again continues.
The settings of every combination are checked before anything is written; no task is made, so that a
login node needs no simulator. Cost: 1 s, and 0.05 s a combination.
"""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esac_mpi.analysis.command import out_path
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.config import ConfigError, automatic, load
from esac_mpi.host.paths import read_path
from esac_mpi.studies import job_lists
from esac_mpi.studies.experiments.sweeps import combinations, seeds


def main(options: argparse.Namespace) -> Iterator[object]:
    """Write the list; yield its path, the number of runs, and how to submit them."""
    found: dict[Path, list[str]] = {}
    notes: set[str] = set()
    chosen: set[str] = set()
    grid, numbers = list(combinations(options)), seeds(options.seeds or ["0-4"])
    for words, name in grid:
        try:
            chosen.update(automatic(load(words, notes.add)[0]))
        except ConfigError as error:
            raise Unusable(f"{error}\n  in: {shlex.join(words)}") from error
        for seed in numbers:
            line = [*words, "--seed", str(seed)]
            run_dir = options.root / f"{name}-seed{seed}"
            if found.setdefault(run_dir, line) is not line:
                both = f"{shlex.join(found[run_dir])} and {shlex.join(line)}"
                raise Unusable(f"two runs would share {run_dir}: {both}")
    if chosen:
        notes.add(
            f"each run chooses {', '.join(sorted(chosen))} at its first start, by ranks and "
            "machine, so seeds may differ; to fix one: --set NAME NUMBER"
        )
    for said in sorted(notes):
        note(said)
    list_of = [[*line, "--run-dir", str(run_dir)] for run_dir, line in found.items()]
    job_lists.write(options.out, list_of)
    yield options.out
    yield f"{len(found)} runs, {len(grid)} settings"
    yield from job_lists.submission(options.out, len(found))
    yield f"here     xargs -L 1 -a {shlex.quote(str(options.out))} mpirun -n 2 python -m esac_mpi"


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add, folder = line.add_argument, Path("runs/sweep")
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add("--configs", type=read_path, metavar="TOML", help="configuration files", **several)
    add("--tasks", metavar="ID", help="tasks with the default settings", **several)
    add("--algorithms", help="default: the configuration's own", **several)
    add("--seeds", help="numbers and ranges; default 0-4", **several)
    names = ("FIELD", "VALUE")
    add("--set", nargs="+", action="append", default=[], metavar=names, help="may be repeated")
    add("--root", type=read_path, default=folder, help="directory of the run directories")
    add("--out", type=out_path, default=folder / "jobs.txt", metavar="FILE", help="the list")
