"""Recorded tasks of a run without a barrier, and when its generations would end on other ranks.

Whose result is told when is the same on any number of ranks (in virtual order), so that rows have
all of that; how long a task took is recorded beside. A task that was told before a stop, whose
times no row has, is taken to have lasted like the mean of the others, and one that was not told
before the run's end like its worker's last. In the order of arrival the told order is the
machine's: there tasks are taken in the order in which the run gave them out, whoever is free.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from esac_mpi.analysis.measures import core_share, generation_seconds, read_busy, seconds
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.task_order import Arrival, Giving, piece
from esac_mpi.comm.clock.tasks import Piece, Queue, Section
from esac_mpi.config import AESRL
from esac_mpi.record import RunFiles


def has_tasks(run: RunFiles) -> bool:
    """Tell whether a run is made of tasks without a barrier."""
    return "metrics/virtual_end" in run.columns


def individuals_and_turns(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the timed tasks of individuals and critic, bool [generations, tasks]."""
    worker, critic = run.columns["timing/task_worker"], run.config.aes_rl.workers
    return worker < critic, worker == critic  # nan is neither


def collect_tasks(run: RunFiles) -> tuple[list[Arrival], list[Piece]]:
    """Collect a run's individuals and the critic's turns, in the order in which they were told."""
    options = run.config.aes_rl
    spent, updating, updates = (
        run.columns[f"timing/task_{n}"] for n in ("busy", "updating", "updates")
    )
    share = core_share(run)[:, None]
    spent, updating = spent * share, updating * share
    individual, turn = individuals_and_turns(run)
    trained = individual & (updates > 0)
    usual = [
        float(np.mean(x)) if x.size else 0.0
        for x in ((spent - updating)[individual], updating[trained], updates[trained])
    ]
    lengths, ends = run.columns["metrics/length"], run.columns["metrics/virtual_end"]
    ended: Counter[int] = Counter()  # worker -> virtual end of its last task
    arrivals = []
    for k in range(run.generation):
        mine = np.flatnonzero(individual[k])
        missing = lengths.shape[1] - len(mine)
        learned = run.columns["metrics/learned"][k]
        for i, who in enumerate(run.columns["metrics/worker"][k].astype(int).tolist()):
            lasted = float(ends[k, i] - ended[who])
            ended[who] = int(ends[k, i])
            played, updated, count = usual[0], learned[i] * usual[1], learned[i] * usual[2]
            if i >= missing:
                own = k, mine[i - missing]
                updated, count = float(updating[own]), float(updates[own])
                played = float(spent[own]) - updated
            made = piece(played, updated, count, lasted, options.update_cost)
            arrivals.append(Arrival(who, int(lengths[k, i]), made))
    virtual = float(math.ceil(options.of_critic * options.critic_chunk))
    turns = [Piece((virtual, 0.0), (seconds, 0.0)) for seconds in spent[turn].tolist()]
    return arrivals, turns


class Drawn:
    """A run's individuals again: each worker's in its order, or all in the order given out."""

    def __init__(self, options: AESRL, arrivals: list[Arrival]) -> None:
        self._arrivals = arrivals
        self._in_order = options.order == "virtual"  # in which results wait for each other
        self._sent: Counter[int] = Counter()  # worker -> tasks that it was given
        self._queues: dict[int, list[Arrival]] = {w: [] for w in range(options.workers)}
        for one in arrivals:
            self._queues[one.worker].append(one)
        self._in_turn = in_start_order(arrivals)
        # virtual end of the last told task of all workers [steps]
        told = [sum(sum(one.piece.virtual) for one in queue) for queue in self._queues.values()]
        self._last = max([0.0, *told])

    def __call__(self, worker: int, now: int, taught: bool) -> Arrival:
        """Return the individual of a worker at a virtual time [steps], its learning as recorded."""
        queue = self._queues[worker] if self._in_order else self._in_turn
        place = self._sent[worker] if self._in_order else self._sent.total()
        self._sent[worker] += 1
        if place < len(queue):
            return queue[place]
        last = queue[-1] if queue else self._arrivals[-1]  # told after the run's end
        return replace(last, piece=lengthen(last.piece, self._last + 1 - now))


def in_start_order(arrivals: list[Arrival]) -> list[Arrival]:
    """Sort individuals by their start: each worker's next starts when its last is reported."""
    last: dict[int, int] = {}  # worker -> its newest task
    given = []  # the told one that each followed
    for i, one in enumerate(arrivals):
        given.append((last.get(one.worker, -1), one.worker))
        last[one.worker] = i
    return [arrivals[i] for i in sorted(range(len(given)), key=given.__getitem__)]


def lengthen(piece: Piece, least: float) -> Piece:
    """Lengthen a task to at least `least` virtual steps."""
    updates, steps = piece.virtual
    more = max(0.0, least - updates - steps)
    second = piece.seconds[1] * (1 + more / steps) if steps else piece.seconds[1]
    return Piece((updates, steps + more), (piece.seconds[0], second))


def sections(run: RunFiles) -> Iterator[Section]:
    """Yield each generation's work beside its tasks."""
    ranks, total, *_ = read_busy(run)
    part = {name: seconds(run, name) for name in ("record", "lead", "evaluation")}
    rest = np.where(ranks == 1, generation_seconds(run) - total - sum(part.values()), 0.0).clip(0)
    told = np.isfinite(run.columns["timing/task_busy"]).sum(axis=1)
    lead = part["lead"] / np.maximum(told, 1)
    count = run.columns["metrics/length"].shape[1]
    for k, share in enumerate(core_share(run).tolist()):
        evaluation = run.columns["timing/evaluation_seconds"][k] * share
        yield Section(
            count,
            part["record"][k] * share,
            lead[k] * share,
            rest[k] * share,
            evaluation[np.isfinite(evaluation)],
        )


def queue(run: RunFiles) -> Callable[[Cluster], Queue]:
    """Make a function from a cluster to its clock of a run's tasks."""
    options, (arrivals, turns) = run.config.aes_rl, collect_tasks(run)
    turn = (lambda n: turns[min(n, len(turns) - 1)]) if turns else None

    def on(cluster: Cluster) -> Queue:
        giving = Giving(options, Drawn(options, arrivals), turn)
        return Queue(cluster, giving, options.workers, options.order == "arrival")

    return on
