"""A core to whose speed a run's times are brought, to compare runs of other times or under load.

Processor time leaves out that a run had no core, not that the core was slow: other work takes
caches and the core's other thread, and the same updates then cost up to twice as much. What a run
did is counted, to the step and the update: these take what they take on this core, whatever they
took. All else of the run is multiplied by what its counted work takes here over what it took there.
"""

from dataclasses import dataclass

import numpy as np

from esac_mpi.record import RunFiles


@dataclass(frozen=True)
class Core:
    """What work takes on a core."""

    step: float  # of the population, with all that a rank does for its members [s]
    update: float  # of the learner [s]; 0 = it has none


@dataclass(frozen=True)
class Pace:
    """By what to multiply times that were recorded."""

    counted: np.ndarray  # of what was counted in a generation [generations]
    rest: float  # of all else


AS_RECORDED = Pace(np.ones(1), 1.0)


def paces(run: RunFiles, core: Core, used: np.ndarray, share: np.ndarray) -> tuple[Pace, Pace]:
    """Return the pace of a run's population, counted by its steps, and of its learner, by updates.

    used: core seconds of the population [generations]; share: of a generation's time in which a
    core was there. Of a run without a population both are the learner's.
    """
    columns = run.columns
    updates = np.diff(columns.get("metrics/gradient_updates", np.zeros(run.generation)), prepend=0)
    updating = (
        np.nan_to_num(columns.get("timing/seconds_updates", np.zeros(run.generation))) * share
    )
    learner = pace(updates, updating, core.update)
    steps = np.diff(columns["metrics/env_steps_population"], prepend=0)
    return (pace(steps, used, core.step) if steps.any() else learner), learner


def pace(counted: np.ndarray, lasted: np.ndarray, each: float) -> Pace:
    """Return the pace of work of `each` s a piece; counted and lasted [s]: each [generations]."""
    there = (counted > 0) & (lasted > 0)
    rest = float(counted[there].sum() * each / lasted[there].sum()) if there.any() else 1.0
    return Pace(
        np.divide(counted * each, lasted, out=np.full(len(counted), rest), where=there), rest
    )
