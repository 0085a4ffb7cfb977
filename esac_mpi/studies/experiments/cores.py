"""What work takes on the core that an experiment's clocks are computed for: the table [core] of its file.

    [core]
    step = {cheetah = 27.0}            # microseconds of a step of each task's population, its policy and all else of a rank
    update = {es = 0.0, sac = 0.76}    # milliseconds of a gradient update of each algorithm; 0 = it has no learner

Without it each run's clock is that of the cores it had (analysis/clock/core.py).
"""

import math
from collections.abc import Collection
from typing import Any

from esac_mpi.analysis.clock import Core
from esac_mpi.analysis.messages import Unusable

Costs = dict[str, dict[str, float]]  # {"step": {task: [us]}, "update": {algorithm: [ms]}}, or empty


def parsed(table: dict[str, Any], tasks: Collection[str], clocks: bool, source: str) -> Costs:
    """Return the table of an experiment's file, empty where it has none; clocks: whether it has a budget with a clock.

    Raises Unusable.
    """
    if not table:
        return {}
    if not clocks:
        raise Unusable(f"{source}: no budget has a clock, which alone it is for")
    if set(table) != {"step", "update"} or not all(
        isinstance(costs, dict) for costs in table.values()
    ):
        raise Unusable(f"{source}: expected the tables step and update, not {', '.join(table)}")
    for name, costs in table.items():
        for key, cost in costs.items():
            number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
            if not number or not 0 <= cost < math.inf or (cost == 0 and name == "step"):
                raise Unusable(
                    f"{source}: {name}.{key} = {cost!r}: expected a positive number{', or 0' * (name == 'update')}"
                )
    if unknown := set(table["step"]) - set(tasks):
        raise Unusable(
            f"{source}: step: unknown task '{min(unknown)}'; there are {', '.join(tasks)}"
        )
    return table


def core(costs: Costs, task: str, algorithm: str, source: str) -> Core | None:
    """Return the core that a run's clock is computed for, None for its own. Raises Unusable where its costs are not given."""
    if not costs:
        return None
    for name, key in (("step", task), ("update", algorithm)):
        if key not in costs[name]:
            raise Unusable(
                f"{source}: core.{name} has no '{key}'; 0 is an update of an algorithm that has no learner"
            )
    return Core(costs["step"][task] * 1e-6, costs["update"][algorithm] * 1e-3)
