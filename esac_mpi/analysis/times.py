"""Where ranks' time goes, and how long generations and runs take; measured, and on other ranks.

Activities are rank-seconds of each generation, from the recorded times; the rest is waiting
("idle"). Of tasks without a barrier (AES-RL), each recorded in the row in which its result was
told, they share out the busy time of that row's ranks. Computed times, for other numbers of ranks,
are those of clock/.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from esac_mpi.analysis.clock import generation_ends, recorded
from esac_mpi.analysis.clock.recorded_tasks import has_tasks, individuals_and_turns
from esac_mpi.analysis.curves import position
from esac_mpi.analysis.groups import grouped, refuse_twins
from esac_mpi.analysis.measures import column, generation_seconds, read_busy, seconds, select_begun
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.analysis.tables import Row
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.config import table_of
from esac_mpi.record import RunFiles

# ---- activities


def population_of(run: RunFiles) -> int:
    """Return the size of a run's population; 0: none, and the ranks' busy time is the learner's."""
    shape = run.columns.shapes.get("metrics/fitness", ())
    return shape[1] if len(shape) == 2 else 0  # one number a generation is no population's


def activities(run: RunFiles) -> dict[str, np.ndarray]:
    """Measure activities' rank-seconds [generations], together ranks * wall. Raises Unusable."""
    ranks = read_busy(run).ranks
    if not ranks.size:
        raise Unusable(f"{run.path}: no busy seconds of ranks are recorded")
    found = of_tasks(run) if has_tasks(run) else of_generations(run)
    found["noise-free evaluation"] = ranks * seconds(run, "evaluation")
    found["writing"] = seconds(run, "record")
    whole = ranks * generation_seconds(run)
    return {**found, "idle": np.maximum(whole - sum(found.values()), 0)}


def of_generations(run: RunFiles) -> dict[str, np.ndarray]:
    """Measure the activities of generations that end with a barrier."""
    ranks, total, _, root = read_busy(run)
    update = {"update": ranks * seconds(run, "update")}
    learner = np.nan_to_num(recorded.phase_seconds(run))
    if recorded.has_offspring(run):
        members = np.nansum(column(run, "timing/member_seconds"), axis=1)
        born = recorded.offspring(run)[0].sum(axis=1)
        return {"members": members, "offspring": born, "learner": learner, **update}
    if not recorded.has_lessons(run):
        beside = recorded.has_phase_beside(run) * np.maximum(seconds(run, "evaluate") - root, 0)
        learner = seconds(run, "learn") + beside
    if population_of(run):
        return {"members": total, "learner": learner, **update}
    return {"episodes": np.maximum(total - root, 0), "learner": learner, **update}


def of_tasks(run: RunFiles) -> dict[str, np.ndarray]:
    """Measure the activities of tasks without a barrier. Raises Unusable."""
    if "timing/task_busy" not in run.columns:
        raise Unusable(f"{run.path}: made before the times of tasks were recorded")
    total = read_busy(run).total
    there = np.isfinite(run.columns["timing/task_worker"])
    critic = individuals_and_turns(run)[1]
    spent = np.where(there, run.columns["timing/task_busy"], 0.0)
    updating = np.where(there & ~critic, run.columns["timing/task_updating"], 0.0).sum(axis=1)
    learner = np.where(critic, spent, 0.0).sum(axis=1)
    whole = spent.sum(axis=1)
    share = np.divide(total, whole, out=np.zeros_like(total), where=whole > 0)
    return {
        "individuals' updates": updating * share,
        "episodes": (whole - learner - updating) * share,
        "learner": learner * share,
        "decisions": seconds(run, "lead"),
    }


def idle_share(run: RunFiles) -> np.ndarray:
    """Measure the waiting share of the ranks' time [generations]; nan: nothing is recorded."""
    found = activities(run)
    whole = np.asarray(sum(found.values()))
    return np.divide(found["idle"], whole, out=np.full_like(whole, np.nan), where=whole > 0)


def idle(run: RunFiles, generations: slice) -> float:
    """Measure the waiting share of the ranks' time in some generations; nan: not recorded."""
    try:
        found = {name: values[generations].sum() for name, values in activities(run).items()}
    except Unusable:
        return np.nan
    whole = float(sum(found.values()))
    return float(found["idle"]) / whole if whole > 0 else np.nan


# ---- time of a generation, by algorithm, population size and ranks


def measure_rest(run: RunFiles, last: int) -> float:
    """Measure the time of a generation without its evaluation [s], mean of the last ones.

    Of those on the run's last number of ranks but the first, in which these start up; nan: none.
    """
    ranks = read_busy(run).ranks
    others = np.flatnonzero(ranks != ranks[-1:])
    first = others[-1] + 1 if others.size else 0
    lasted = generation_seconds(run) - seconds(run, "evaluation")
    same = lasted[first + 1 :][-last:]
    return float(same.mean()) if same.size else np.nan


def compute_rest(run: RunFiles, ranks: int, last: int) -> float:
    """Compute the same for so many ranks [s]. Raises Unusable where a run has no clock."""
    ends = list(recorded.make_clock(run, evaluates=False)(Cluster(ranks)))
    return float(np.diff(ends)[-last:].mean())


def scaling(runs: list[RunFiles], last: int, computed_for: Iterable[int] = ()) -> list[Row]:
    """Tabulate the time of a generation by label, population size and ranks.

    Ranks that no run had are computed from the runs on the fewest, and efficiency is 1 on these.
    Raises Unusable for several tasks, none with a population, or a run without a clock.
    """
    tasks = sorted({run.config.task.id for run in runs})
    if len(tasks) > 1:
        raise Unusable(f"mixed tasks: {', '.join(tasks)}; scaling is of one at a time")
    if len(cpus := {str(run.provenance.get("cpu")) for run in runs}) > 1:
        note(f"the runs are from different CPUs: {', '.join(sorted(cpus))}")
    sizes = {f"{table_of(run.config.algorithm)}.population_size" for run in runs}
    lines: dict[tuple[str, int], dict[int, list[RunFiles]]] = {}
    for label, found in grouped(runs, sizes)[tasks[0]].items():
        for run in found:
            if population_of(run) and np.isfinite(measure_rest(run, last)):
                line = lines.setdefault((label, population_of(run)), {})
                line.setdefault(int(read_busy(run).ranks[-1]), []).append(run)
            else:
                note(f"left out, no population or a single generation: {run.path.name}")
    if not lines:
        raise Unusable("nothing to show yet: no run given has two generations of a population")
    rows = [
        {"run": label, "n": n, **row}
        for (label, n), line in sorted(lines.items(), key=lambda line: (line[0][0], -line[0][1]))
        for row in over_ranks(line, n, last, computed_for)
    ]
    if len({row["ranks"] for row in rows}) == 1:
        note("all runs had the same number of ranks: how they scale is not seen")
    return rows


def over_ranks(
    line: dict[int, list[RunFiles]], n: int, last: int, computed_for: Iterable[int]
) -> Iterator[Row]:
    """Yield a row for each number of ranks, measured or computed; n: members of each run."""
    least, there = min(line), line[min(line)]
    episodes = n * getattr(there[0].config.own, "fitness_episodes", 1)
    every = sorted({*line, *computed_for})
    fewest = {True: np.mean([measure_rest(run, last) for run in there])}  # {is measured: time [s]}
    if len(every) > len(line):
        fewest[False] = np.mean([compute_rest(run, least, last) for run in there])
    for ranks in every:
        if ranks in line:
            seconds = np.mean([measure_rest(run, last) for run in line[ranks]])
        else:
            seconds = np.mean([compute_rest(run, ranks, last) for run in there])
        alone = fewest[ranks in line]
        yield {
            "ranks": ranks,
            "s a generation": float(seconds),
            "s an episode": float(seconds / episodes),
            "efficiency": float(least * alone / (ranks * seconds)),
            "": "measured" if ranks in line else "computed",
        }


# ---- time to a number of steps, and who waits


def waiting(runs: list[RunFiles], ranks: list[int], steps: int = 0) -> list[Row]:
    """Return a row for each task, label and number of ranks, mean over seeds.

    steps: to so many nominal ones; 0 = as far as all runs of a task are. Computed, waiting is
    1 - T(1) / (R T(R)), T the computed clock: of algorithms whose work is the same on any number of
    ranks; of others (AES-RL's order = arrival) none is told. Raises Unusable.
    """
    rows, apart = [], {"seed"}  # on several ranks one seed may come twice
    for task, labels in grouped(select_begun(runs, "tabulate"), apart).items():
        ends = (position(run, "nominal_steps")[-1] for found in labels.values() for run in found)
        reached = min(ends)
        if steps > reached:
            raise Unusable(f"{task}: a run has {reached:,.0f} nominal steps, not {steps:,}")
        for label, found in labels.items():
            by_count: dict[int, list[RunFiles]] = {}
            for run in found:
                by_count.setdefault(int(read_busy(run).ranks[-1]), []).append(run)
            for count, same in sorted(by_count.items()):
                refuse_twins(same)
                each = [measure_waits(run, ranks, steps or int(reached)) for run in same]
                means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
                about = {"task": task, "run": label, "ranks": count, "seeds": len(same)}
                rows.append(about | means)
    if len({row["ranks"] for row in rows}) > 1:
        note(
            "runs on several numbers of ranks: compute from those on one, whose times are cleanest"
        )
    return rows


def measure_waits(run: RunFiles, ranks: list[int], steps: int) -> dict[str, float]:
    """Measure minutes and waiting to a number of steps; compute them for other ranks."""
    end = int(np.searchsorted(position(run, "nominal_steps"), steps))
    found = {"minutes": float(run.columns["timing/wall_seconds"][end]) / 60}
    found["waiting [%]"] = 100 * idle(run, slice(end + 1))
    alone = generation_ends(run, 1)[end] / 60 if ranks else np.nan
    alike = run.config.own.follows is None  # the same work on any number of ranks
    for count in ranks:
        minutes = float(generation_ends(run, count)[end]) / 60
        found[f"minutes on {count}"] = minutes
        share = 100 * (1 - alone / (count * minutes)) if alike else np.nan
        found[f"waiting on {count} [%]"] = share
    return found
