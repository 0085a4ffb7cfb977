"""An experiment's runs as lists of jobs, and the commands that submit them."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import shared_episodes
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.invocation import called
from esac_mpi.studies.experiments import design
from esac_mpi.studies.experiments.plan import Planned

SCRIPTS = Path("jobs")  # the shipped job scripts


def submitted(id: str, budget_name: str, root: Path, dry_run: bool) -> Iterator[object]:
    """Write a list of jobs for each number of ranks; submit it where a batch system is.

    Raises Unusable.
    """
    found = design.experiment(id)
    budget = design.chosen(found, budget_name)
    system = next((name for name in ("sbatch", "qsub") if shutil.which(name)), "")
    if system and not dry_run and not SCRIPTS.is_dir():
        raise Unusable(without_scripts())
    runs, cores = design.runs(found, budget_name, root), budget.cores
    by_ranks: dict[int, list[Planned]] = {}
    for run in runs:
        by_ranks.setdefault(ranks_of(run, cores), []).append(run)
    for ranks, group in sorted(by_ranks.items()):
        out = design.folder_of(found, budget_name, root) / f"jobs-{ranks}-ranks.txt"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(f"{line(run)}\n" for run in group), encoding="utf-8")
        yield f"{out}: {len(group)} jobs of {ranks} rank{'s' * (ranks > 1)}"
        commands = {"sbatch": slurm(out, len(group), ranks), "qsub": pbs(out, len(group), ranks)}
        for name, (environment, call) in commands.items():
            if name == system and not dry_run:
                if code := subprocess.run(
                    call, env={**os.environ, **environment}, check=False
                ).returncode:
                    raise Unusable(
                        f"{shlex.join(call)}: exit code {code}; what follows it was not submitted",
                        1,
                    )
            elif name == system or not system:
                settings = " ".join(
                    f"{key}={shlex.quote(value)}" for key, value in environment.items()
                )
                yield f"{name:<7} {settings} {shlex.join(call)}"


def ranks_of(run: Planned, cores: int) -> int:
    """Choose the ranks of a run's job: its own number; else `cores` where they share episodes."""
    learning = ALGORITHMS[run.config.algorithm].DECLARES.learning
    alone = learning is not None and learning.learner(run.config) == run.config.algorithm
    return run.ranks or (1 if alone and not shared_episodes(run.config) else cores)


def without_scripts() -> str:
    """Say what to do where there are no job scripts."""
    return f"{SCRIPTS}/ is not here: {called('examples')} copies it, to be edited for your machine"


def line(run: Planned) -> str:
    """Write a run's line of a list, as esac-mpi sweep does."""
    return shlex.join([*run.line, "--run-dir", str(run.run_dir)])


def slurm(out: Path, count: int, ranks: int) -> tuple[dict[str, str], list[str]]:
    """Build the environment and command line that submit a list to Slurm."""
    array = f"--array=0-{count - 1}%10"
    return {"LIST": str(out)}, ["sbatch", f"--ntasks={ranks}", array, "jobs/slurm-array.sbatch"]


def pbs(out: Path, count: int, ranks: int) -> tuple[dict[str, str], list[str]]:
    """Build those for PBS, where an array has two elements or more."""
    # in SELECT for the rounds that follow
    select = f"select=1:ncpus={ranks}:mpiprocs={ranks}:ompthreads=1"
    environment = {"LIST": str(out), "LAUNCH": f"mpiexec -n {ranks}", "SELECT": select}
    elements = ["-J", f"0-{count - 1}"]
    if count == 1:
        environment["INDEX"] = "0"
        elements = []
    line = ["qsub", "-v", ",".join(environment), "-l", select, *elements, "jobs/pbs-array.sh"]
    return environment, line
