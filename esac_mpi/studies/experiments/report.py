"""What an experiment is, in words."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esac_mpi.config import as_words
from esac_mpi.studies.experiments import design


def list_experiments() -> Iterator[str]:
    """Yield a line for each experiment."""
    for name in design.names():
        found = design.experiment(name)
        yield f"{name:<13} {found.title}"


def describe(id: str) -> Iterator[str]:
    """Yield an experiment's title, claim, runs of each budget, variants, products."""
    found = design.experiment(id)
    yield f"{found.id}: {found.title}\n\nThe paper: {found.claim}\n"
    for name, budget in found.budgets.items():
        runs = design.runs(found, name, Path())
        seeds = f"{budget.seeds} seed{'s' if budget.seeds > 1 else ''}"
        wall = f", {budget.seconds:g} s each" if budget.seconds else ""
        yield f"{name:<9} {len(runs)} runs; {seeds}{wall}"
        yield f"          tasks {', '.join(budget.tasks or found.tasks)}"
    yield f"\nwhat a run costs here: python -m esac_mpi {shlex.join(runs[0].line)} --check\n"
    for name, settings in found.variants.items():
        yield f"{name:<14} {as_options(settings)}"
    if found.field:
        yield f"\nswept: {found.field} = {', '.join(map(str, found.values))}"
    for name, budget in found.budgets.items():
        own = {"": budget.settings, **budget.for_task, **budget.for_variant}
        for what, settings in own.items():
            if settings:
                of = f"{name}, {what}" if what else name
                yield f"{of}: {as_options(settings)}"
    yield ""
    for product in found.products:
        yield f"{product.out:<24} {product.tool} {shlex.join(product.arguments)}"


def as_options(settings: dict[str, Any]) -> str:
    """Return settings as the command line has them."""
    options = (f"--{key} {' '.join(as_words(value))}" for key, value in settings.items())
    return " ".join(options) or "as the tasks say"
