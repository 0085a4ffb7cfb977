"""The time of a generation on many ranks: a SIMULATION that replays measured costs; `tools.bench scaling` feeds and checks it.

Generations drawn from the costs go through the one clock of a cluster that there is, esac_mpi.comm.clock.generations, which
has the program's order of things. A learner phase is due every g generations. With learner_lag 0 all wait for it; with a lag it
runs on rank 0, which does not evaluate meanwhile, and all wait only if it is late at the end of the generation that merges it.
Where a device makes the updates, rank 0 plays the phase's episodes and then evaluates, but for what it does for the device.
ASSUMPTIONS lists the rest.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from esac_mpi.analysis.colours import Look, algorithm_of, looks
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.generations import Generation, ticks
from esac_mpi.operators.noise import pieces

ASSUMPTIONS = (
    "a core of the cluster is as fast as a core here, and no slower when its whole node works",
    "an episode lasts as long as one drawn, with replacement, from those recorded here",
    "members: dealt to nodes by esac_mpi.comm.schedule as if of equal length, within a node to the first free rank",
    "exchange: node barrier, allgather between node leaders (latency * ceil(log2 nodes) + bytes / bandwidth), node barrier",
    "node barrier: barrier * ceil(log2 ranks of the node); messages do not get into each other's way",
    "update: blocks of parameters, and chunks of slots, over the ranks of a node; the node with the fewest ranks is waited for",
    "observations are not normalised, so that no sums over them travel",
    "rank 0 records a generation while the other ranks begin the next one",
    "a learner phase every g generations (the gate always open); theta_sac is broadcast when it is merged",
    "with a lag, the phase has rank 0's core to itself but for writing, plan and update, which rank 0 has its part in",
    "with a device for the updates, rank 0's core is the members' but for what updates take of it; no episode is too long for it",
)


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
    seconds_per_update: float = 0.0  # on rank 0, or on its device
    host_per_update: float | None = (
        None  # of rank 0's core where a device makes the updates; None: rank 0 makes them
    )

    @property
    def collection(self) -> float:
        """Time that a learner phase plays [s]."""
        return self.phase_steps * self.seconds_per_step

    @property
    def phase(self) -> float:
        """Time of a learner phase [s]."""
        return self.collection + self.phase_updates * max(
            self.seconds_per_update, self.host_per_update or 0.0
        )

    @property
    def device(self) -> float:
        """Time of a learner phase that is its device's [s]."""
        return 0.0 if self.host_per_update is None else self.phase - self.collection

    @property
    def host(self) -> float:
        """What the device takes of rank 0's core."""
        return (
            (self.host_per_update or 0.0) * self.phase_updates / self.device if self.device else 0.0
        )


@dataclass(frozen=True)
class Schedule:
    """How an algorithm uses the learner: not at all (lag None), or every `interval` generations, merged `lag` later."""

    lag: int | None = None
    interval: int = 5


def simulate(
    n: int, cluster: Cluster, costs: Costs, schedule: Schedule, cycles: int = 3, seed: int = 0
) -> np.ndarray:
    """Simulate generations of n members; return the seconds per generation, mean of each cycle of `interval`, [cycles].

    One more cycle comes first and is not returned: with a lag nothing is merged in it.
    """
    random, generations = (
        np.random.default_rng(seed),
        range(1, (cycles + 1) * schedule.interval + 1),
    )
    ends = list(ticks((drawn(k, n, costs, schedule, random) for k in generations), cluster))
    return np.diff(ends, prepend=0.0).reshape(cycles + 1, -1)[1:].mean(axis=1)


def drawn(
    k: int, n: int, costs: Costs, schedule: Schedule, random: np.random.Generator
) -> Generation:
    """Return generation k of n members, n / 2 slots."""
    learns = schedule.lag is not None and k % schedule.interval == 0
    at_once = learns and schedule.lag == 0
    return Generation(
        members=random.choice(costs.durations, n) + costs.noise * costs.d,
        expected=np.ones(n),
        record=costs.record if k > 1 else 0.0,
        serial=costs.plan,
        phase=costs.phase if at_once else 0.0,
        merges=bool(schedule.lag)
        and k > schedule.interval
        and k % schedule.interval == (schedule.lag or 0) % schedule.interval,
        update=costs.update * (n // 2) * costs.d,
        blocks=pieces(costs.d, n // 2),
        begun=costs.phase - costs.device if learns and not at_once else 0.0,
        device=costs.device if learns and not at_once else 0.0,
        host=costs.host,
        parameters_bytes=4.0 * costs.d,
    )


def updates_per_second(es_seconds: float, costs: Costs, interval: int) -> tuple[float, float]:
    """Return the gradient updates/s from which on a phase is no longer the floor under g generations of ES.

    First counting the updates alone; then with the time that the phase plays (inf: playing alone is the floor).
    """
    room = interval * es_seconds
    left = room - costs.collection
    return costs.phase_updates / room, costs.phase_updates / left if left > 0 else math.inf


def draw(
    curves: dict[int, dict[str, np.ndarray]],
    points: dict[str, list[tuple[int, float]]],
    title: str,
    path: Path,
) -> None:
    """Write the picture: seconds per generation against ranks, a panel for each population size.

    curves: {n: {"ranks": [points], name: seconds [points]}}, simulated; points: {name: [(ranks, seconds)]}, measured, and
    drawn where n is the smallest. Needs matplotlib.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    look = looks(
        {
            name: algorithm_of(name)
            for lines in curves.values()
            for name in lines
            if algorithm_of(name)
        }
    )
    figure, panels = plt.subplots(
        1, len(curves), figsize=(1 + 4.2 * len(curves), 4.4), squeeze=False, layout="constrained"
    )
    for axes, (n, lines) in zip(panels[0], curves.items(), strict=True):
        for name in (name for name in lines if name != "ranks"):
            colour, style, width = look.get(name, Look("0.5", ":"))
            axes.loglog(
                lines["ranks"],
                lines[name],
                style,
                color=colour,
                lw=width,
                label=f"{name}, simulated",
            )
            if n == min(curves) and name in points:
                axes.loglog(
                    *zip(*points[name], strict=True),
                    "o",
                    ms=5,
                    mfc="none",
                    color=colour,
                    label=f"{name}, measured",
                )
        axes.set(title=f"n = {n:,}", xlabel="ranks", ylabel="seconds per generation")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].legend(fontsize="x-small", frameon=False)
    figure.suptitle(title, fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
