"""An experiment's runs as lists of jobs, and the commands that submit them."""

from collections.abc import Iterator
from pathlib import Path

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import shared_episodes
from esac_mpi.studies import job_lists
from esac_mpi.studies.experiments import design
from esac_mpi.studies.experiments.plan import Planned


def jobs(id: str, budget_name: str, root: Path) -> Iterator[object]:
    """Write a list of jobs for each number of ranks; yield how to submit them. Raises Unusable."""
    found = design.experiment(id)
    cores = design.budget_named(found, budget_name).cores
    by_ranks: dict[int, list[Planned]] = {}
    for run in design.runs(found, budget_name, root):
        by_ranks.setdefault(ranks_of(run, cores), []).append(run)
    for ranks, group in sorted(by_ranks.items()):
        out = design.folder_of(found, budget_name, root) / f"jobs-{ranks}-ranks.txt"
        job_lists.write(out, [run.arguments for run in group])
        yield f"{out}: {len(group)} jobs of {ranks} rank{'s' if ranks > 1 else ''}"
        yield from job_lists.submission(out, len(group), ranks)


def ranks_of(run: Planned, cores: int) -> int:
    """Choose the ranks of a run's job: its own number; else `cores` where they share episodes."""
    declares = ALGORITHMS[run.config.algorithm].DECLARES
    learning = declares.learning
    plays_alone = learning is not None and learning.learner(run.config) == run.config.algorithm
    shares = shared_episodes(run.config) or declares.offspring(run.config)  # ERL's population
    return run.ranks or (1 if plays_alone and not shares else cores)
