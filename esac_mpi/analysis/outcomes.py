"""What a run came to, as one figure: best and final return, or fitness of the population."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from esac_mpi.analysis import curves
from esac_mpi.analysis.clock import describe_ranks
from esac_mpi.analysis.curves import Axis
from esac_mpi.analysis.measures import best_return, column
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.returns import BETTER
from esac_mpi.record import RunFiles

MEASURES = {
    "final": "mean return of the last evaluation",
    "best": "return of the best policy on start states that did not choose it",
    "population_max": "largest fitness in the last generation, of the noisy population",
    "mean": "mean fitness of the noisy population, mean over generations",
    "fates": "how often the learner's actor was elite, selected or discarded by the selections"
    " after its injections [%]",
}
OF_POLICY = ("best", "final")
FATES = ("elite", "selected", "discarded")  # by the values of metrics/learner_fate; -1: none
OF_POPULATION: dict[str, Callable[..., np.ndarray]] = {  # of the members' returns in a generation
    "population_max": np.nanmax,
    "mean": np.nanmean,
}


@dataclass(frozen=True)
class At:
    """Where runs are compared: at a place of an axis; inf: at their ends."""

    limit: float = np.inf  # true steps of population and learner, or wall time [s]
    axis: Axis = "env_steps"

    def __str__(self) -> str:
        if self.axis == "env_steps":
            return f"{self.limit:,} true steps of population and learner"
        where = f", {describe_ranks(self.axis)}" if isinstance(self.axis, int) else ""
        return f"{self.limit:,g} s of wall time{where}"


AT_THE_END = At()


def describe(measure: str, policy: str, better: str = "") -> str:
    """Say what a measure is, and of which policy; better: whose it is of the better one."""
    if measure == "best" and policy != BETTER:
        return f"best mean return of an evaluation, {policy}, which flatters"
    whose = better if policy == BETTER else policy
    return f"{MEASURES[measure]}, {whose}" if whose and measure in OF_POLICY else MEASURES[measure]


def rate(run: RunFiles, fate: str) -> np.ndarray:
    """Compute a fate's share of the selections that met the actor so far [generations] [%]."""
    fates = column(run, "metrics/learner_fate")
    met = (fates >= 0).cumsum()
    so_far = (fates == FATES.index(fate)).cumsum()
    return np.where(met > 0, 100 * so_far / np.maximum(met, 1), np.nan)


def outcome(run: RunFiles, measure: str, at: At = AT_THE_END, policy: str = BETTER) -> float:
    """Compute a figure of a run (MEASURES, FATES) up to `at`; nan: none so far. Raises Unusable."""
    if at.limit < np.inf and curves.position(run, at.axis)[-1:].sum() < at.limit:
        return np.nan
    recorded = measure == "best" and policy == BETTER  # the run itself recorded which was the best
    if recorded and at.limit == np.inf:
        found = best_return(run)
        return np.nan if found is None else found
    if recorded:
        curve = curves.column_curve(run, at.axis, column(run, "metrics/best_return"))
    elif measure in OF_POLICY:
        curve = curves.return_curve(run, at.axis, policy)
    elif measure in FATES:
        curve = curves.column_curve(run, at.axis, rate(run, measure))
    elif measure in OF_POPULATION:
        curve = curves.column_curve(
            run, at.axis, curves.per_generation(run, OF_POPULATION[measure])
        )
    else:
        there = ", ".join([*OF_POLICY, *OF_POPULATION])  # "fates" is a table's, in three columns
        raise Unusable(f"measure '{measure}': there are {there}")
    within = curve.y[curve.x <= at.limit]
    if not within.size:
        return np.nan
    if measure == "mean":
        return float(within.mean())
    return float(within.max() if measure == "best" and not recorded else within[-1])
