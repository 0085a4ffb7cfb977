"""What ranks did with tasks that have no barrier, from the recorded times of each: moments, and shares of the ranks' time.

A task is recorded in the row of the generation in which its result was told. What is told of a generation's tasks shares out the
busy time of its ranks, some of which was of tasks that were told later.
"""

from typing import NamedTuple

import numpy as np

from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock.recorded import generation_seconds, seconds
from esac_mpi.analysis.clock.recorded_tasks import individuals_and_turns
from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles


class Told(NamedTuple):
    """Tasks that were told, each [tasks]; moments are wall time since the start of the run [s]."""

    worker: np.ndarray
    rank: np.ndarray
    start: np.ndarray
    end: np.ndarray
    told: np.ndarray
    busy: np.ndarray  # its rank's time that it took [s]
    updating: np.ndarray  # of this on updates [s]
    steps: np.ndarray
    updates: np.ndarray
    critic: np.ndarray  # whether it is a turn of the critic


def told(run: RunFiles, generation: int) -> Told:
    """Return the tasks that were told in one row of the history."""
    names = Told._fields[:-1]
    rows = [run.columns[f"timing/task_{name}"][generation] for name in names]
    found = dict(zip(names, (row[np.isfinite(rows[0])] for row in rows), strict=True))
    critic = individuals_and_turns(run)[1][generation, np.isfinite(rows[0])]
    wall = run.columns["timing/wall_seconds"]
    begun = (wall[generation - 1] if generation else 0.0) + seconds(run, "record")[generation]
    for name in ("start", "end", "told"):
        found[name] = found[name] + begun
    return Told(**found, critic=critic)


def activities(run: RunFiles) -> dict[str, np.ndarray]:
    """Return the rank-seconds of each activity in every generation, each [generations]; all add up to ranks * wall seconds.

    Raises Unusable.
    """
    if "timing/task_busy" not in run.columns:
        raise Unusable(f"{run.path}: made before the time of every task was recorded")
    ranks, total, *_ = busy(run)
    there, critic = np.isfinite(run.columns["timing/task_worker"]), individuals_and_turns(run)[1]
    spent, updating = (
        np.where(there, run.columns[f"timing/task_{name}"], 0.0) for name in ("busy", "updating")
    )
    trains = np.where(critic, 0.0, updating).sum(axis=1)
    parts = np.array(
        [
            trains,
            np.where(critic, 0.0, spent).sum(axis=1) - trains,
            np.where(critic, spent, 0.0).sum(axis=1),
        ]
    )
    parts *= np.divide(
        total, parts.sum(axis=0), out=np.zeros_like(total), where=parts.sum(axis=0) > 0
    )
    found = {
        "individuals' updates": parts[0], "episodes": parts[1], "learner": parts[2], "decisions": seconds(run, "lead"),
        "noise-free evaluation": ranks * seconds(run, "evaluation"), "writing": seconds(run, "record"),
    }  # fmt: skip
    whole = ranks * generation_seconds(run)
    return {**found, "idle": np.maximum(whole - sum(found.values()), 0)}


def segments(run: RunFiles, generation: int) -> list[tuple[float, float, str, float, float]]:
    """Return (lane, height, activity, start, length) [s] of one row of the history.

    A rank's lane is 1 high; rank 0 has its individuals in the upper half of its lane, and the critic's turns, between which and
    these it shares its time, in the lower one.
    """
    found, wall = told(run, generation), run.columns["timing/wall_seconds"][generation]
    lasted, bars = seconds(run, "evaluation")[generation], []
    for i, rank in enumerate(found.rank.tolist()):
        length = found.end[i] - found.start[i]
        first = length * found.updating[i] / found.busy[i] if found.busy[i] else 0.0
        lane, height = (
            (rank + 0.25 * (1 if found.critic[i] else -1), 0.5) if rank == 0 else (rank, 1.0)
        )
        if found.critic[i]:
            bars.append((lane, height, "learner", found.start[i], length))
            continue
        bars.append((lane, height, "individuals' updates", found.start[i], first))
        bars.append((lane, height, "episodes", found.start[i] + first, length - first))
    ranks = int(busy(run).ranks[generation])
    bars += [
        (float(rank), 1.0, "noise-free evaluation", wall - lasted, lasted) for rank in range(ranks)
    ]
    record = seconds(run, "record")[generation]
    begun = run.columns["timing/wall_seconds"][generation - 1] if generation else 0.0
    return [*bars, (0.0, 1.0, "writing", begun, record)]
