"""How a run goes on, told once at each start from the rows of the last, else its first ones.

Nothing is measured for it. What is told is a window of whole cycles (evaluations, learner phases),
of rows by as many ranks as there are now, with the learner at work if there is one; for a run that
is nearly over nothing is.
"""

from collections.abc import Mapping

import numpy as np

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config
from esac_mpi.host.log import duration

SHORTEST = 300.0  # a run that is over sooner is not told of [s]
IDLE = 0.5  # share of the ranks' time in which they wait that is worth a remark
NAMES = ("busy_ranks", "busy_mean", "seconds_phase", "evaluation_seconds", "seconds_learn")


def line(rows: Mapping[str, np.ndarray], config: Config, ranks: int, progress: float) -> str:
    """Say how the run goes on, "" if rows do not tell yet. rows: metrics/<name>, timing/<name>.

    progress: how much of the budget is spent, 0 to 1.
    """
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    interval = learning.interval(config) if learning else 0  # 0: nothing learns
    count = max(config.evaluation.every, interval)  # after which all was done that is now and then
    generation = rows.get("metrics/generation", np.zeros(0))
    # the first row of a start imports and warms up
    if len(generation) < count + 2 or not 0 < progress < 1:
        return ""
    last = {
        name: np.nan_to_num(np.asarray(rows[f"timing/{name}"][-count:], float))
        for name in NAMES
        if f"timing/{name}" in rows
    }
    seconds = float(rows["timing/wall_seconds"][-1] - rows["timing/wall_seconds"][-count - 1])
    updates = rows.get("metrics/gradient_updates", np.zeros(count + 1))
    left = seconds / count * float(generation[-1]) * (1 / progress - 1)
    waits = interval and updates[-1] == updates[-count - 1]
    if (last["busy_ranks"] != ranks).any() or waits or left < SHORTEST:
        return ""
    idle = max(0.0, 1 - busy(last, config) / (ranks * seconds))
    said = f"{seconds / count:.3g} s a generation, ranks idle {idle:.0%} of the time"
    said += f"; {duration(left)} left at this pace"
    if ranks > 1 and idle >= IDLE and interval:
        share = min(1, last.get("seconds_learn", np.zeros(1)).sum() / seconds)
        said += f", {share:.0%} of it with the learner: --check says what would help"
    return said


def busy(last: Mapping[str, np.ndarray], config: Config) -> float:
    """Sum what ranks did [s]; a population's busy seconds leave phases and lessons out."""
    declares = ALGORITHMS[config.algorithm].DECLARES
    beside = ["evaluation_seconds"]
    if declares.evolution or declares.operators(config) == "individuals":
        beside.append("seconds_phase")
    done = float((last["busy_mean"] * last["busy_ranks"]).sum())
    return done + sum(float(last[name].sum()) for name in beside if name in last)
