"""How a run goes on, told once at each start from rows that are there anyway: of the last start, else of its first generations.

Nothing is measured for it. What is told is a window of whole cycles (evaluations, learner phases), of rows by as many ranks as
there are now, with the learner at work if there is one; for a run that is nearly over nothing is.
"""

from collections.abc import Mapping

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import CEMRL, Config, Evolution
from esac_mpi.host.log import duration

SHORTEST = 300.0  # a run that is over sooner is not told of [s]
IDLE = 0.5  # share of the ranks' time in which they wait that is worth a remark
NAMES = {
    f"timing/{name}"
    for name in ("busy_ranks", "busy_mean", "seconds_phase", "evaluation_seconds", "seconds_learn")
}


def window(config: Config) -> int:
    """Return the generations after which a run has done all that it does now and then."""
    return max(config.evaluation.every, getattr(config.own, "gradient_interval", 1))


def line(rows: Mapping[str, np.ndarray], config: Config, ranks: int, progress: float) -> str:
    """Return the line, empty where the newest rows do not tell yet. rows: a run's, metrics/<name> and timing/<name>.

    progress: how much of the budget is spent, 0 to 1.
    """
    count, generation = window(config), rows.get("metrics/generation", np.zeros(0))
    if (
        len(generation) < count + 2 or not 0 < progress < 1
    ):  # the first one of a start imports and warms up
        return ""
    last = {
        name: np.nan_to_num(np.asarray(values[-count:], float))
        for name, values in rows.items()
        if name in NAMES
    }
    seconds = float(rows["timing/wall_seconds"][-1] - rows["timing/wall_seconds"][-count - 1])
    learns = ALGORITHMS[config.algorithm].DECLARES.learning is not None and getattr(
        config.own, "sac_phases", True
    )
    updates = rows.get("metrics/gradient_updates", np.zeros(count + 1))
    left = seconds / count * float(generation[-1]) * (1 / progress - 1)
    if (
        (last["timing/busy_ranks"] != ranks).any()
        or (learns and updates[-1] == updates[-count - 1])
        or left < SHORTEST
    ):
        return ""
    idle = max(0.0, 1 - busy(last, config) / (ranks * seconds))
    told = f"{seconds / count:.3g} s a generation, ranks idle {idle:.0%} of the time; {duration(left)} left at this pace"
    if ranks > 1 and idle >= IDLE:
        learning = last.get("timing/seconds_learn", np.zeros(1)).sum() / seconds
        told += (
            f", {min(learning, 1):.0%} of it with the learner: --check says what would help"
            if learns
            else ""
        )
    return told


def busy(last: Mapping[str, np.ndarray], config: Config) -> float:
    """Return what all ranks did in these rows [s]. A population's busy seconds leave the learner's phases and lessons out."""
    done = float((last["timing/busy_mean"] * last["timing/busy_ranks"]).sum())
    beside = ["timing/evaluation_seconds"] + ["timing/seconds_phase"] * isinstance(
        config.own, Evolution | CEMRL
    )
    return done + sum(float(last[name].sum()) for name in beside if name in last)
