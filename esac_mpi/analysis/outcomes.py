"""What a run came to, as one figure: best and final return, or fitness of the population."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.curves import (
    Curve,
    column,
    column_curve,
    per_generation,
    position,
    return_curve,
)
from esac_mpi.analysis.evaluations import BETTER
from esac_mpi.analysis.fates import FATES, rate
from esac_mpi.analysis.measures import best_return
from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles

MEASURES = {
    "final": "mean return of the last evaluation",
    "best": "return of the best policy on start states that did not choose it",
    "population_max": "largest fitness in the last generation, of the noisy population",
    "mean": "mean fitness of the noisy population, mean over generations",
    "fates": "how often the learner's actor was elite, selected or discarded by the selections after its injections [%]",
}
OF_POLICY = ("best", "final")
OF_POPULATION: dict[str, Callable[..., np.ndarray]] = {  # of the members' returns in a generation
    "population_max": np.nanmax,
    "mean": np.nanmean,
}


@dataclass(frozen=True)
class At:
    """Where runs are compared: after so many environment steps, or so much wall time; 0 and 0 = at their ends."""

    steps: int = 0  # true steps of population and learner
    seconds: float = 0.0  # [s]
    machine: Machine | None = None  # that wall time is computed for; None: the measured one

    @property
    def limit(self) -> float:
        """The limit, inf where there is none."""
        return self.steps or self.seconds or np.inf

    def __str__(self) -> str:
        if self.seconds:
            return f"{self.seconds:,g} s of wall time{f', {self.machine}' if self.machine else ''}"
        return f"{self.steps:,} true steps of population and learner"

    def end(self, run: RunFiles) -> float:
        """Return how far a run has come, 0 before its first generation. Raises Unusable."""
        return float(self.positions(run)[-1:].sum())

    def positions(self, run: RunFiles) -> np.ndarray:
        """Return where a run's generations lie, float64 [generations]. Raises Unusable."""
        if self.machine:
            return computed(run, self.machine)
        return position(run, "wall" if self.seconds else "env_steps")

    def within(self, run: RunFiles, curve: Curve) -> np.ndarray:
        """Return the values as far as the limit of a curve that is against measured wall time, or steps. Raises Unusable."""
        if self.machine:
            curve = replace(curve, x=np.interp(curve.x, position(run, "wall"), self.positions(run)))
        return curve.y[curve.x <= self.limit]


AT_THE_END = At()


def outcome(run: RunFiles, measure: str, at: At = AT_THE_END, policy: str = BETTER) -> float:
    """Return a figure of a run (MEASURES, a fate for fates) from what it did up to there; nan: none, or not that far.

    Raises Unusable.
    """
    x = "wall" if at.seconds else "env_steps"
    if np.isfinite(at.limit) and at.end(run) < at.limit:
        return np.nan
    told = (
        measure == "best" and policy == BETTER and "metrics/best_return" in run.columns
    )  # by the run itself
    if told and not np.isfinite(at.limit):
        found = best_return(run)
        return np.nan if found is None else found
    if told:
        curve = column_curve(run, x, column(run, "metrics/best_return"))
    elif measure in OF_POLICY:
        curve = return_curve(run, x, policy)
    elif measure in FATES:
        curve = column_curve(run, x, rate(run, measure))
    elif measure in OF_POPULATION:
        curve = column_curve(run, x, per_generation(run, OF_POPULATION[measure]))
    else:
        raise Unusable(
            f"measure '{measure}': there are {', '.join([*OF_POLICY, *OF_POPULATION, *FATES])}"
        )
    within = at.within(run, curve)
    if not within.size:
        return np.nan
    return float(
        within.max()
        if measure == "best" and not told
        else within.mean()
        if measure == "mean"
        else within[-1]
    )
