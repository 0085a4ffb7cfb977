"""What an experiment is, in words."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esac_mpi.config import as_words
from esac_mpi.studies.experiments import design


def listing() -> Iterator[str]:
    """Yield a line for each experiment."""
    for name in design.names():
        found = design.experiment(name)
        yield f"{name:<13} {found.title}"


def shown(id: str) -> Iterator[str]:
    """Yield an experiment's title, claim, runs of each budget, variants, products."""
    found = design.experiment(id)
    yield f"{found.id}: {found.title}\n\nThe paper: {found.claim}\n"
    for name, budget in found.budgets.items():
        runs = design.runs(found, name, Path())
        seeds = f"{budget.seeds} seed{'s' if budget.seeds > 1 else ''}"
        wall = f", {budget.seconds:g} s each" if budget.seconds else ""
        if budget.clock:
            wall = f", {budget.clock.seconds:g} s each, {budget.clock.machine}"
        yield f"{name:<6} {len(runs)} runs; {seeds}{wall}"
        yield f"       tasks {', '.join(budget.tasks or found.tasks)}"
    if found.costs:
        yield from core(found.costs)
    yield f"\nwhat a run costs here: python -m esac_mpi {shlex.join(runs[0].line)} --check\n"
    for name, settings in found.variants.items():
        yield f"{name:<14} {written(settings)}"
    if found.field:
        yield f"\nswept: {found.field} = {', '.join(map(str, found.values))}"
    for name, budget in found.budgets.items():
        own = {"": budget.settings, **budget.for_task, **budget.for_variant}
        for what, settings in own.items():
            if settings:
                yield f"{name}{', ' * bool(what)}{what}: {written(settings)}"
    yield ""
    for product in found.products:
        yield f"{product.out:<24} {product.tool} {shlex.join(product.arguments)}"


def core(costs: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield what work takes on the core that clocks are computed for."""
    for name, unit in ("step", "us"), ("update", "ms"):
        listed = ", ".join(f"{key} {cost:g}" for key, cost in costs[name].items())
        yield f"{name} of a core [{unit}]: {listed}"


def written(settings: dict[str, Any]) -> str:
    """Return settings as the command line has them."""
    return (
        " ".join(f"--{key} {' '.join(as_words(value))}" for key, value in settings.items())
        or "as the tasks say"
    )
