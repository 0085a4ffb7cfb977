"""What the time of a run's ranks went to, from the recorded times: rank-seconds of each activity; the rest is waiting."""

import numpy as np

from esac_mpi.analysis import task_times
from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock.recorded import (
    bears_offspring,
    generation_seconds,
    offspring,
    phase_seconds,
    running,
    seconds,
    teaches,
)
from esac_mpi.analysis.clock.recorded_tasks import has_tasks
from esac_mpi.analysis.curves import column
from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles


def has_members(run: RunFiles) -> bool:
    """Return whether a run has a population: without one, the ranks' busy time is the learner's."""
    return "metrics/fitness" in run.columns


def activities(run: RunFiles) -> dict[str, np.ndarray]:
    """Return the rank-seconds of each activity in every generation, each [generations]; all add up to ranks * wall seconds."""
    ranks, members, _, root = busy(run)
    if not ranks.size:
        raise Unusable(f"{run.path}: no busy seconds of ranks are recorded")
    if has_tasks(run):
        return task_times.activities(run)
    learner = seconds(run, "learn")
    played = (
        {} if has_members(run) else {"episodes": np.maximum(members - root, 0)}
    )  # a learner's, on the other ranks
    if played:
        members = np.zeros_like(members)
    beside = running(run) * np.maximum(seconds(run, "evaluate") - root, 0)
    learner = np.nan_to_num(phase_seconds(run)) if teaches(run) else learner + beside
    born = {}
    if bears_offspring(run):
        members, learner = (
            np.nansum(column(run, "timing/member_seconds"), axis=1),
            np.nan_to_num(phase_seconds(run)),
        )
        born = {"offspring": offspring(run)[0].sum(axis=1)}
    found = {
        "members": members, **played, **born, "learner": learner, "update": ranks * seconds(run, "update"),
        "noise-free evaluation": ranks * seconds(run, "evaluation"), "writing": seconds(run, "record"),
    }  # fmt: skip
    whole = ranks * generation_seconds(run)
    return {**found, "idle": np.maximum(whole - sum(found.values()), 0)}


def idle_share(run: RunFiles) -> np.ndarray:
    """Return the share of the ranks' time in which they waited [generations]; nan where nothing is recorded."""
    found = activities(run)
    whole = np.asarray(sum(found.values()))
    return np.divide(found["idle"], whole, out=np.full_like(whole, np.nan), where=whole > 0)


def idle(run: RunFiles, rows: int = 0) -> float | None:
    """Return the share of the ranks' time in which they waited, in the last `rows` generations (0 = all); None: not recorded."""
    try:
        found = {name: values[-rows:].sum() for name, values in activities(run).items()}
    except Unusable:
        return None
    whole = float(sum(found.values()))
    return float(found["idle"]) / whole if whole > 0 else None
