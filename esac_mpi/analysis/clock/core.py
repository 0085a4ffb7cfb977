"""A core to whose speed the times of a run are brought, so that runs made at other times, or beside other work, can be compared.

Processor time leaves out that a run had no core, not that the core was slow: other work takes caches and the other thread of
a core, and the same updates then cost up to twice as much. What a run did is counted, to the step and the update. So a
generation's times are multiplied by what its steps would take on this core over what they took on its own, and those of
a learner's phase by the same of its updates. Proportions within a generation, or a phase, stay as they were recorded.
"""

from dataclasses import dataclass

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles


@dataclass(frozen=True)
class Core:
    """What work takes on a core."""

    step: float  # of the population, with all that a rank does for its members [s]
    update: float  # of the learner [s]; 0 = it has none


def paces(run: RunFiles, core: Core, used: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by what to multiply each generation's times, and those of the phase that entered in it, both [generations].

    used: core seconds of the population [generations]; share: of a generation's time in which a core was there. Raises Unusable.
    """
    columns = run.columns
    if {"timing/task_busy", "timing/offspring_seconds"} & set(columns) or hasattr(run.config.own, "trained_fraction"):
        raise Unusable(
            f"{run.path}: {run.config.algorithm} has work beside steps and a learner's updates, which no core is told of"
        )
    updates = np.diff(columns.get("metrics/gradient_updates", np.zeros(run.generation)), prepend=0)
    updating = np.nan_to_num(columns.get("timing/seconds_updates", np.zeros(run.generation))) * share
    learner = pace(updates, updating, core.update)
    steps = np.diff(columns["metrics/env_steps_population"], prepend=0)
    return (pace(steps, used, core.step) if steps.any() else learner), learner


def pace(counted: np.ndarray, lasted: np.ndarray, each: float) -> np.ndarray:
    """Return what so much work would take, of `each` seconds, over what it took: of a generation, else of all of them.

    counted, lasted: of every generation [generations]. Where nothing was counted it is 1.
    """
    there = (counted > 0) & (lasted > 0)
    whole = counted[there].sum() * each / lasted[there].sum() if there.any() else 1.0
    return np.divide(counted * each, lasted, out=np.full(len(counted), whole), where=there)
