"""What an experiment is, in words, and as lists of jobs with the commands that submit them."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.algorithms.declaration import shared_episodes
from esac_mpi.studies import job_lists
from esac_mpi.studies.experiments import design
from esac_mpi.studies.experiments.plan import Planned, as_options


def list_experiments() -> Iterator[str]:
    """Yield a line for each experiment."""
    for name in design.names():
        yield f"{name:<13} {design.experiment(name).title}"


def describe(id: str) -> Iterator[str]:
    """Yield an experiment's title, claim, runs of each budget, variants, products."""
    found = design.experiment(id)
    yield f"{found.id}: {found.title}\n\nClaim: {found.claim}\n"
    for name, budget in found.budgets.items():
        runs = design.runs(found, name, Path())
        seeds = f"{budget.seeds} seed{'s' if budget.seeds > 1 else ''}"
        wall = f", {budget.seconds:g} s each" if budget.seconds else ""
        yield f"{name:<9} {len(runs)} runs; {seeds}{wall}"
        yield f"          tasks {', '.join(budget.tasks or found.tasks)}"
    yield f"\nwhat a run costs here: python -m esac_mpi {shlex.join(runs[0].line)} --check\n"
    for name, settings in found.variants.items():
        yield f"{name:<14} {' '.join(as_options(settings)) or 'as the tasks say'}"
    if found.field:
        yield f"\nswept: {found.field} = {', '.join(map(str, found.values))}"
    for name, budget in found.budgets.items():
        own = ("", budget.settings), *budget.for_task.items(), *budget.for_variant.items()
        for what, settings in own:
            if settings:
                of = f"{name}, {what}" if what else name
                yield f"{of}: {' '.join(as_options(settings))}"
    yield ""
    for product in found.products:
        yield f"{product.out:<24} {product.tool} {shlex.join(product.arguments)}"


def jobs(id: str, budget_name: str, root: Path) -> Iterator[object]:
    """Write a list of jobs for each number of ranks; yield how to submit them. Raises Unusable."""
    found = design.experiment(id)
    by_ranks: dict[int, list[Planned]] = {}
    for run in design.runs(found, budget_name, root):
        by_ranks.setdefault(ranks_of(run, found.budgets[budget_name].cores), []).append(run)
    for ranks, group in sorted(by_ranks.items()):
        out = group[0].run_dir.with_name(f"jobs-{ranks}-ranks.txt")
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
