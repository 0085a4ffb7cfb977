"""Write the list of jobs of a grid: one line of command-line arguments for each run.

    python tools/sweep.py --configs configs/esac/ant.toml configs/esac/hopper.toml --algorithms esac es --seeds 0-4 --out jobs.txt
    python tools/sweep.py --tasks HalfCheetah-v5 --set esac.amt_clip 1e-6 1e-4 1e-2 --set policy.hidden "64 64" "256 256"

The grid: (configs or tasks) x algorithms x the values of every --set x seeds. A field without a table (`--set sigma 0.01 0.1`)
is the one of each algorithm's own table. A field of another algorithm of the sweep is left out of a run, which then is listed
once. Every line has its own --run-dir below --root, so that a line that is started again goes on where it stopped.
Each combination is checked as the program would, before anything is written. Cost: 1 s, and 0.05 s a combination.
What a combination's file sets in vain, and what es takes from its [esac], is said once.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from esac_mpi.analysis.command import Unusable, ended, note

from esac_mpi.config import NAMES, Config, ConfigError, load, read_toml
from esac_mpi.config.reads import reads

DEFAULT = Config().algorithm


def seeds(texts: list[str]) -> list[int]:
    """Return the seeds that numbers and ranges like 0-4 name. Raises Unusable."""
    found: list[int] = []
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise Unusable(f"--seeds {text}: expected a number or a range like 0-4")
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def fields(algorithm: str, varied: list[list[str]], algorithms: list[str]) -> list[list[tuple[str, str]]]:
    """Return, for each field that this algorithm reads, its (name, value) pairs. Raises Unusable."""
    found = []
    for name, *values in varied:
        if not values:
            raise Unusable(f"--set {name}: needs one value or more")
        full = name if "." in name or name in NAMES else f"{algorithm}.{name}"
        if not reads(algorithm, full) and any(reads(other, full) for other in algorithms):
            continue
        found.append([(full, value) for value in values])
    return found


def tidy(text: str) -> str:
    """Return a text as part of a directory's name."""
    return text.replace("/", "-").replace(":", "-").replace(" ", "x")


def lines(options: argparse.Namespace) -> Iterator[tuple[list[str], Path]]:
    """Yield the arguments of every run but its directory, and the directory."""
    starts = [([str(path)], path.stem) for path in options.configs] + [
        (["--task.id", task], tidy(task)) for task in options.tasks
    ]
    for arguments, name in starts or [([], "HalfCheetah-v5")]:
        own = read_toml(arguments[0]).get("algorithm", "esac") if arguments and name == Path(arguments[0]).stem else "esac"
        for algorithm in options.algorithms or [own]:
            values = fields(algorithm, options.set, options.algorithms or [own])
            for chosen, seed in product(product(*values), seeds(options.seeds)):
                varied = [
                    tidy(f"{key.split('.')[-1]}{value}") for (key, value), many in zip(chosen, values, strict=True) if many[1:]
                ]
                more = [token for key, value in chosen for token in (f"--{key}", *value.split())]
                line = [*arguments, "--algorithm", algorithm, "--seed", str(seed), *more]
                yield line, options.root / "-".join([name, algorithm, *varied, f"seed{seed}"])


def checked(line: list[str], known: set[tuple[str, ...]], notes: set[str]) -> None:
    """Check a run's settings as the program does, once for all its seeds; add what it says to the notes. Raises Unusable."""
    place = line.index("--seed")
    key = (*line[:place], *line[place + 2 :])
    if key in known:
        return
    known.add(key)
    try:
        load(list(key), notes.add, notes.add)
    except ConfigError as error:
        raise Unusable(f"{error}\n  in: {shlex.join(line)}") from error
    except SystemExit as error:  # tyro has said what is wrong
        raise Unusable(f"  in: {shlex.join(line)}") from error


def write(options: argparse.Namespace) -> Iterator[object]:
    """Write the list; yield its path, the number of runs, and how to submit them."""
    known: set[tuple[str, ...]] = set()
    found: dict[Path, list[str]] = {}
    notes: set[str] = set()
    try:
        for line, run_dir in lines(options):
            checked(line, known, notes)
            if found.setdefault(run_dir, line) is not line:
                raise Unusable(f"two runs would share {run_dir}: {shlex.join(found[run_dir])} and {shlex.join(line)}")
    except ConfigError as error:
        raise Unusable(str(error)) from error
    for text in sorted(notes):
        note(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{shlex.join([*line, '--run-dir', str(run_dir)])}\n" for run_dir, line in found.items())
    options.out.write_text(text, encoding="utf-8")
    yield options.out
    yield f"{len(found)} runs, {len(known)} settings"
    elements = f"0-{len(found) - 1}"
    yield f"SLURM    LIST={options.out} sbatch --array={elements}%10 jobs/slurm-array.sbatch"
    yield f"PBS      qsub -v LIST={options.out} -J {elements} jobs/pbs-array.sh"
    yield f"here     xargs -L 1 -a {options.out} mpirun -n 2 python -m esac_mpi"


def main(argv: list[str]) -> int:
    """Write the list and say how to submit it; return 2 for a grid that cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", type=Path, default=[], metavar="TOML", help="configuration files")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="ID", help="tasks with the default settings")
    parser.add_argument("--algorithms", nargs="+", default=[], help="default: the configuration's own")
    parser.add_argument("--seeds", nargs="+", default=["0-4"], help="numbers and ranges; default 0-4")
    parser.add_argument("--set", nargs="+", action="append", default=[], metavar=("FIELD", "VALUE"), help="may be repeated")
    parser.add_argument("--root", type=Path, default=Path("runs/sweep"), help="directory of the run directories")
    parser.add_argument("--out", type=Path, default=Path("runs/sweep/jobs.txt"), metavar="FILE", help="the list")
    options = parser.parse_args(argv)
    return ended(lambda: write(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
