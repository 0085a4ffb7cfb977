"""How long generations took, or by the computed clock would have taken, by algorithm, population size and ranks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from esac_mpi.analysis.busy import busy
from esac_mpi.analysis.clock.recorded import ends, generation_seconds
from esac_mpi.analysis.curves import column
from esac_mpi.analysis.groups import grouped
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.config import table_of
from esac_mpi.record import RunFiles


@dataclass(frozen=True)
class Point:
    """One run: what was run, on how many ranks, and how long a generation took."""

    label: str
    n: int  # members
    ranks: int
    seconds: float  # per generation
    episodes: int  # of the population, per generation
    ideal: float | None = (
        None  # of a computed one: the computed time on the run's own ranks, shared without loss [s]
    )

    @property
    def computed(self) -> bool:
        """Whether nobody ran this."""
        return self.ideal is not None


Times = dict[tuple[str, int], dict[int, list[Point]]]  # {(label, n): {ranks: runs}}


def point(run: RunFiles, label: str, last: int) -> Point | None:
    """Return what a run measured, None if it has no population or fewer than two generations on its last number of ranks."""
    fitness, ranks = column(run, "metrics/fitness"), busy(run).ranks
    if fitness.ndim < 2 or len(fitness) < 2:
        return None
    seconds = generation_seconds(run) - np.nan_to_num(column(run, "timing/seconds_evaluation"))
    others = np.flatnonzero(ranks != ranks[-1])
    first = others[-1] + 1 if others.size else 0  # on these ranks, which start up in it
    same = seconds[first + 1 :][-last:]
    if not same.size:
        return None
    episodes = getattr(run.config.own, "fitness_episodes", 1)  # of a member
    return Point(
        label, fitness.shape[1], int(ranks[-1]), float(same.mean()), fitness.shape[1] * episodes
    )


def elsewhere(run: RunFiles, measured: Point, ranks: Iterable[int], last: int) -> Iterator[Point]:
    """Yield what a run would have measured on other numbers of ranks. Raises Unusable where no clock can be computed."""
    on_cluster = ends(run, evaluates=False)

    def seconds(count: int) -> float:
        return float(
            np.diff(list(on_cluster(Cluster(count))))[-last:].mean()
        )  # without the first generation

    work = measured.ranks * seconds(measured.ranks)
    for count in ranks:
        yield replace(measured, ranks=count, seconds=seconds(count), ideal=work / count)


def times_of(runs: list[RunFiles], last: int, computed_for: Iterable[int] = ()) -> Times:
    """Return the times of all runs, and on ranks that nobody ran on those that are computed from the runs on the fewest.

    Raises Unusable for several tasks, none with a population, or a run without a clock.
    """
    tasks = sorted({run.config.task.id for run in runs})
    if len(tasks) > 1:
        raise Unusable(f"mixed tasks: {', '.join(tasks)}; draw one at a time")
    if len(cpus := {str(run.provenance.get("cpu")) for run in runs}) > 1:
        note(f"the runs are from different CPUs: {', '.join(sorted(cpus))}")
    sizes = {f"{table_of(run.config.algorithm)}.population_size" for run in runs}
    lines: dict[tuple[str, int], list[tuple[RunFiles, Point]]] = {}
    for label, found in grouped(runs, sizes)[tasks[0]].items():
        for run in found:
            if (p := point(run, label, last)) is None:
                note(f"left out, no population or a single generation: {run.path.name}")
                continue
            lines.setdefault((label, p.n), []).append((run, p))
    if not lines:
        raise Unusable("nothing to draw yet: no run given has two generations of a population")
    order = sorted(lines, key=lambda line: (line[0], -line[1]))
    times = {line: by_ranks(lines[line], last, computed_for) for line in order}
    if len({ranks for found in times.values() for ranks in found}) == 1:
        note("all runs had the same number of ranks: how they scale is not seen")
    return times


def by_ranks(
    measured: list[tuple[RunFiles, Point]], last: int, computed_for: Iterable[int]
) -> dict[int, list[Point]]:
    """Return the points of a line by ranks, computed ones where it has none. Raises Unusable where no clock can be computed."""
    found: dict[int, list[Point]] = {}
    for _, p in measured:
        found.setdefault(p.ranks, []).append(p)
    fewest, others = min(found), sorted(set(computed_for) - set(found))
    for run, p in measured if others else ():
        if p.ranks == fewest:
            for other in elsewhere(run, p, others, last):
                found.setdefault(other.ranks, []).append(other)
    return found


def per_generation(points: list[Point]) -> list[float]:
    """Return seconds per generation of the runs of a point."""
    return [p.seconds for p in points]


def per_episode(points: list[Point]) -> list[float]:
    """Return seconds per episode of the population."""
    return [p.seconds / p.episodes for p in points]


def efficiency(line: dict[int, list[Point]]) -> dict[int, float]:
    """Return the parallel efficiency at each number of ranks, 1 at the fewest; of computed times, by the computed time there."""
    least = min(line)
    work = least * float(np.mean(per_generation(line[least])))
    found = {}
    for ranks, points in sorted(line.items()):
        ideals = [p.ideal for p in points if p.ideal is not None] or [work / ranks]
        found[ranks] = float(np.mean(ideals) / np.mean(per_generation(points)))
    return found
