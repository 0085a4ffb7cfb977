"""The time of a generation on many ranks: a SIMULATION that replays measured costs; `bench.py scaling` feeds and checks it.

One generation is followed event by event: members are dealt to the nodes by the program's own function, and go to the ranks
of a node as they become free; exchange, plan and update follow as the program has them.
A learner phase is due every g generations. With learner_lag 0 all wait for it; with a lag it runs on rank 0, which does not
evaluate meanwhile, and all wait only if it is late at the end of the generation that merges it. ASSUMPTIONS lists the rest.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esac_mpi import schedule as dealing
from esac_mpi.noise import BLOCK

ASSUMPTIONS = (
    "a core of the cluster is as fast as a core here, and no slower when its whole node works",
    "an episode lasts as long as one drawn, with replacement, from those recorded here",
    "members: dealt to nodes by esac_mpi.schedule as if of equal length, within a node to the first free rank",
    "exchange: node barrier, allgather between node leaders (latency * ceil(log2 nodes) + bytes / bandwidth), node barrier",
    "node barrier: barrier * ceil(log2 ranks of the node); messages do not get into each other's way",
    "update: blocks of parameters over the ranks of a node; the node with the fewest ranks is waited for",
    "rank 0 records a generation while the other ranks begin the next one",
    "a learner phase every g generations (the gate always open); theta_sac is broadcast when it is merged",
    "with a lag, the phase has rank 0's core to itself until it ends; exchange and plan are not delayed by it",
)


@dataclass(frozen=True)
class Cluster:
    """Ranks on equal nodes, filled one after the other, and the network between the nodes."""

    ranks: int
    cores_per_node: int = 64
    latency: float = 5e-6  # of a message between nodes, with MPI's own share [s]
    bandwidth: float = 10e9  # between nodes [bytes/s]
    barrier: float = 20e-6  # of a step of a barrier inside a node: polling sleeps 5 us and longer [s]

    @property
    def locals(self) -> list[int]:
        """Ranks of each node [nodes]."""
        full, rest = divmod(self.ranks, self.cores_per_node)
        return [self.cores_per_node] * full + [rest] * (rest > 0)

    def send(self, nbytes: float) -> float:
        """Return the time of an allgather or broadcast between the nodes' leaders [s]."""
        hops = steps(len(self.locals))
        return hops * self.latency + nbytes / self.bandwidth if hops else 0.0

    def sync(self) -> float:
        """Return the time of a barrier inside the largest node [s]."""
        return steps(max(self.locals)) * self.barrier


@dataclass(frozen=True)
class Costs:
    """What was measured on one rank."""

    durations: np.ndarray  # of recorded episodes [m] [s]
    d: int
    noise: float = 0.0  # to make a member's parameters [s per parameter]
    update: float = 0.0  # [s per parameter and slot]
    plan: float = 0.0  # on rank 0 [s]
    record: float = 0.0  # on rank 0 [s]
    phase_steps: int = 0  # environment steps of a learner phase
    phase_updates: int = 0  # gradient updates of a learner phase
    seconds_per_step: float = 0.0
    seconds_per_update: float = 0.0

    @property
    def collection(self) -> float:
        """Time that a learner phase plays [s]."""
        return self.phase_steps * self.seconds_per_step

    @property
    def phase(self) -> float:
        """Time of a learner phase [s]."""
        return self.collection + self.phase_updates * self.seconds_per_update


@dataclass(frozen=True)
class Schedule:
    """How an algorithm uses the learner: not at all (lag None), or every `interval` generations, merged `lag` later."""

    lag: int | None = None
    interval: int = 5


def steps(parties: int) -> int:
    """Return the steps of a tree over so many parties: ceil(log2 parties)."""
    return math.ceil(math.log2(parties)) if parties > 1 else 0


def list_schedule(durations: Sequence[float] | np.ndarray, free: Sequence[float]) -> float:
    """Give each task, in order, to whoever is free first; return when the last task ends, 0 without tasks.

    `free` holds the time at which each worker becomes free [workers] [s].
    """
    workers, end = list(free), 0.0
    heapq.heapify(workers)
    for duration in durations:
        finish = workers[0] + float(duration)
        heapq.heapreplace(workers, finish)
        end = max(end, finish)
    return end


def evaluation(tasks: np.ndarray, cluster: Cluster, busy: float, learning: bool) -> float:
    """Return when the last of the tasks [n] ends; rank 0 takes none before `busy` [s], and none is meant for it if it learns."""
    ends, capacity = [], np.array(cluster.locals)
    capacity[0] -= learning
    for node, share in enumerate(dealing.deal(np.ones(tasks.size), capacity)):
        free = [0.0] * cluster.locals[node]
        if node == 0:
            free[0] = busy
        ends.append(list_schedule(tasks[share], free))
    return max(ends)


def update_seconds(n: int, cluster: Cluster, costs: Costs) -> float:
    """Return the time of the update of d parameters from n / 2 slots, mirrored [s]."""
    blocks = -(-costs.d // BLOCK)
    rounds = -(-blocks // min(cluster.locals))
    return costs.update * (n // 2) * min(rounds * BLOCK, costs.d) + 2 * cluster.sync()


def exchange_seconds(n: int, cluster: Cluster) -> float:
    """Return the time of the allgather of five numbers a member and four a rank [s]."""
    return 2 * cluster.sync() + cluster.send(8 * (5 * n + 4 * cluster.ranks))


def simulate(n: int, cluster: Cluster, costs: Costs, schedule: Schedule, cycles: int = 3, seed: int = 0) -> np.ndarray:
    """Simulate generations of n members; return the seconds per generation, mean of each cycle of `interval`, [cycles].

    One more cycle comes first and is not returned: with a lag nothing is merged in it.
    """
    random = np.random.default_rng(seed)
    serial = exchange_seconds(n, cluster) + costs.plan + cluster.send(8 * n) + update_seconds(n, cluster, costs)
    merge = cluster.send(4 * costs.d) + cluster.sync()
    seconds = np.zeros((cycles + 1) * schedule.interval)  # of each generation
    left, due = 0.0, 0  # of the phase in flight: time to its end [s], generation that merges it (0: none in flight)
    for k in range(1, len(seconds) + 1):
        tasks = random.choice(costs.durations, n) + costs.noise * costs.d
        recording = costs.record if k > 1 else 0.0
        seconds[k - 1] = max(evaluation(tasks, cluster, recording + left, left > 0), recording) + serial
        learns = schedule.lag is not None and k % schedule.interval == 0
        if learns and schedule.lag == 0:
            seconds[k - 1] += costs.phase + merge
            continue
        left = max(0.0, left - seconds[k - 1])
        if due == k:  # late: all wait for it
            seconds[k - 1] += left + merge
            left, due = 0.0, 0
        if learns and schedule.lag:
            left, due = costs.phase, k + schedule.lag
    return seconds.reshape(cycles + 1, -1)[1:].mean(axis=1)


def updates_per_second(es_seconds: float, costs: Costs, interval: int) -> tuple[float, float]:
    """Return the gradient updates/s from which on a phase is no longer the floor under g generations of ES.

    First counting the updates alone; then with the time that the phase plays (inf: playing alone is the floor).
    """
    room = interval * es_seconds
    left = room - costs.collection
    return costs.phase_updates / room, costs.phase_updates / left if left > 0 else math.inf


def draw(curves: dict[int, dict[str, np.ndarray]], points: dict[str, list[tuple[int, float]]], title: str, path: Path) -> None:
    """Write the picture: seconds per generation against ranks, a panel for each population size.

    curves: {n: {"ranks": [points], name: seconds [points]}}, simulated; points: {name: [(ranks, seconds)]}, measured, and
    drawn where n is the smallest. Needs matplotlib.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(curves), figsize=(1 + 4.2 * len(curves), 4.4), squeeze=False, layout="constrained")
    for axes, (n, lines) in zip(panels[0], curves.items(), strict=True):
        for (name, seconds), (colour, style) in zip(
            ((k, v) for k, v in lines.items() if k != "ranks"),
            (("#0072B2", "-"), ("#D55E00", "-"), ("#009E73", "-"), ("0.5", ":")),
            strict=False,
        ):
            axes.loglog(lines["ranks"], seconds, style, color=colour, lw=1.6, label=f"{name}, simulated")
            if n == min(curves) and name in points:
                axes.loglog(*zip(*points[name], strict=True), "o", ms=5, mfc="none", color=colour, label=f"{name}, measured")
        axes.set(title=f"n = {n:,}", xlabel="ranks", ylabel="seconds per generation")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].legend(fontsize="x-small", frameon=False)
    figure.suptitle(title, fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
