"""Who waits: CEM-RL's generations, serial and parallel, against AES-RL's arrivals on two ranks; and AES-RL on more, simulated.

Measured are runs of the program on one and on two ranks, in turn, and the share of the ranks' time that none of their recorded
activities has. Simulated (comm/clock/tasks.py) are tasks made of the speeds that these runs recorded, with episodes as
long as theirs, and made-up ones with a long tail: Pareto, most of 20 to 100 steps, some of the task's limit. What other work
on the machine does, the measured figures have too.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.analysis.clock.recorded_tasks import Recorded, queue
from esac_mpi.analysis.times import costs, idle_share
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.task_order import Arrival, piece
from esac_mpi.comm.clock.tasks import Section
from esac_mpi.config import AESRL
from esac_mpi.record import RunFiles
from tools.bench.measurement import Measurement
from tools.bench.program import recorded

CHEETAH, HOPPER = "HalfCheetah-v5", "Hopper-v5"
COST = {
    CHEETAH: (3.5, 2.2),
    HOPPER: (1.2, 2.2),
}  # update_cost and critic_cost of this network, as they are on one core
FIRST = 2  # generations before what counts: nothing learns yet
START = {
    CHEETAH: FIRST * 2000,
    HOPPER: 200,
}  # steps before any gradient; Hopper falls after some 20
GENERATIONS = {CHEETAH: 5, HOPPER: 20}  # that count
SIZES = (2, 2), (2, 3), (3, 2), (6, 5), (10, 9), (65, 64)  # ranks, workers
WINDOW, MEAN = 10, 5  # of AES-RL's defaults


@dataclass(frozen=True)
class Speeds:
    """What a run recorded, by which tasks are made up."""

    step: float  # [s]
    update: float  # of an individual [s]
    critic: float  # of the critic [s]
    chunk: int  # of its updates
    horizon: int
    lengths: np.ndarray  # of episodes [steps]


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure runs of all kinds in turn; then simulate."""
    rounds, horizon, hidden = options.rounds or 2, 200, (32, 32)
    if options.quick:
        rounds, horizon, hidden = 1, 30, (8, 8)
    for task in (CHEETAH, HOPPER):
        kinds, generations = (
            variants(task, horizon),
            FIRST + (2 if options.quick else GENERATIONS[task]),
        )
        common = (
            "--task.id", task, "--task.horizon", horizon, "--policy.hidden", *hidden, "--budget.generations", generations,
            "--evaluation.every", generations + 1, "--evaluation.episodes", 1, "--checkpoint.every_generations", 0,
        )  # fmt: skip
        rows = [
            {name: [recorded(r, *common, *own) for r in (1, 2)] for name, own in kinds.items()}
            for _ in range(rounds)
        ]
        for name in kinds:
            yield from waited(f"{name} {task}", [row[name] for row in rows])
        pairs = [row[next(iter(kinds))] for row in rows]
        yield Measurement.of(
            "aes",
            f"AES-RL {task}",
            "update_cost, as it was",
            "steps",
            [costs(one)[0] for one, _ in pairs],
        )
        yield Measurement.of(
            "aes",
            f"AES-RL {task}",
            "critic_cost, as it was",
            "ratio",
            [costs(one)[1] for one, _ in pairs],
        )
        for name in kinds:
            ratio = [per_step(row[name][1]) / per_step(row[next(iter(kinds))][1]) for row in rows]
            yield Measurement.of(
                "aes", f"{name} {task}", "time of a step / AES-RL's, 2 ranks", "ratio", ratio
            )
        speeds = speeds_of(pairs[0][0], horizon)
        yield from simulated(task, speeds, options.quick)
    yield from simulated("a long tail", replace(speeds, lengths=long_tail(horizon)), options.quick)


def variants(task: str, horizon: int) -> dict[str, tuple[object, ...]]:
    """Return what is run: by name the options; AES-RL first."""
    start, cost = min(START[task], 10 * FIRST * horizon), COST[task]
    aes = (
        "--algorithm", "aes_rl", "--aes_rl.workers", 2, "--aes_rl.start_steps", start, "--aes_rl.batch_size", 64,
        "--aes_rl.critic_chunk", max(20, horizon // 4), "--aes_rl.update_cost", cost[0], "--aes_rl.critic_cost", cost[1],
    )  # fmt: skip
    cem = ("--algorithm", "cem_rl", "--cem_rl.start_steps", start, "--cem_rl.batch_size", 64)
    return {
        "AES-RL, 2 workers": aes,
        "AES-RL, 3 workers": (*aes, "--aes_rl.workers", 3),
        "CEM-RL": cem,
        "P-CEM-RL": (*cem, "--cem_rl.critic", "parallel"),
    }


def per_step(run: RunFiles) -> float:
    """Return the time of a step of the individuals in the generations that count [s]."""
    wall, steps = run.columns["timing/wall_seconds"], run.columns["metrics/nominal_steps"]
    return float((wall[-1] - wall[FIRST - 1]) / (steps[-1] - steps[FIRST - 1]))


def waited(case: str, pairs: list[list[RunFiles]]) -> Iterator[Measurement]:
    """Yield the share of two ranks' time that is waited, and what the clock of the run on one says of that on two."""
    shares = [float(np.mean(idle_share(two)[FIRST:])) for _, two in pairs]
    yield Measurement.of("aes", f"{case} ranks=2", "waiting share", "ratio", shares)
    for place, ranks in enumerate((1, 2)):
        measured = np.array([span(pair[place].columns["timing/wall_seconds"]) for pair in pairs])
        own = np.array([span(computed(pair[place], Machine(ranks))) for pair in pairs])
        other = np.array([span(computed(pair[1 - place], Machine(ranks))) for pair in pairs])
        yield Measurement.of("aes", f"{case} ranks={ranks}", "generations", "s", measured)
        yield Measurement.of(
            "aes",
            f"{case} ranks={ranks}",
            "computed from itself / measured",
            "ratio",
            own / measured,
            True,
        )
        yield Measurement.of(
            "aes",
            f"{case} ranks={ranks}",
            f"computed from {3 - ranks} / measured",
            "ratio",
            other / measured,
            True,
        )
    work = np.array([[span(computed(one, Machine(r))) for r in (1, 2)] for one, _ in pairs])
    yield Measurement.of(
        "aes",
        f"{case} ranks=2",
        "waiting share from 1 rank",
        "ratio",
        1 - work[:, 0] / (2 * work[:, 1]),
        True,
    )


def span(ends: np.ndarray) -> float:
    """Return the time of the generations that count, given when each ended [s]."""
    return float(ends[-1] - ends[FIRST - 1])


def speeds_of(run: RunFiles, horizon: int) -> Speeds:
    """Return the speeds that a run's tasks had."""
    aes = run.config.aes_rl
    worker, busy, updating, steps, updates = (
        run.columns[f"timing/task_{name}"]
        for name in ("worker", "busy", "updating", "steps", "updates")
    )
    mine, critic = worker < aes.workers, worker == aes.workers
    step = (busy - updating)[mine].sum() / steps[mine].sum()
    update, taught = (
        updating[mine].sum() / updates[mine].sum(),
        busy[critic].sum() / updates[critic].sum(),
    )
    return Speeds(
        step, update, taught, aes.critic_chunk, horizon, run.columns["metrics/length"].ravel()
    )


def long_tail(horizon: int) -> np.ndarray:
    """Return made-up lengths of episodes [10,000]."""
    return np.clip(20 * (1 + np.random.default_rng(0).pareto(1.1, 10_000)), 20, horizon).astype(int)


def simulated(case: str, speeds: Speeds, quick: bool) -> Iterator[Measurement]:
    """Yield who waits on more ranks, by the virtual order with costs that are true, half or twice as much, and by arrival."""
    true = speeds.update / speeds.step, speeds.critic / speeds.update
    for ranks, workers in SIZES[: 2 if quick else None]:
        for name, order, cost in (
            ("true costs", "virtual", true), ("half of update_cost", "virtual", (true[0] / 2, true[1])),
            ("twice update_cost", "virtual", (2 * true[0], true[1])), ("critic_cost = 1", "virtual", (true[0], 1.0)),
            ("order = arrival", "arrival", true),
        ):  # fmt: skip
            shares = [
                waiting(made_up(speeds, workers, order, cost, seed), ranks)
                for seed in range(1 if quick else 3)
            ]
            about = f"{case} ranks={ranks} workers={workers}"
            yield Measurement.of(
                "aes", about, f"waiting share, {name}", "ratio", shares, simulation=True
            )


def made_up(
    speeds: Speeds, workers: int, order: str, cost: tuple[float, float], seed: int, each: int = 40
) -> Recorded:
    """Return so many tasks of each worker, half of which are trained."""
    random = np.random.default_rng(seed)
    options = AESRL(
        workers=workers,
        update_cost=cost[0],
        critic_cost=cost[1],
        critic_chunk=speeds.chunk,
        start_steps=0,
        batch_size=1,
        order="arrival" if order == "arrival" else "virtual",
    )
    arrivals = []
    for number in range(each * workers):
        length, *mean = random.choice(speeds.lengths, 1 + MEAN).tolist()
        updates = int(random.random() < 0.5) * int(WINDOW * speeds.lengths.mean())
        steps = length + sum(mean)
        lasted = float(np.ceil(cost[0] * updates) + steps)
        own = piece(steps * speeds.step, updates * speeds.update, updates, lasted, cost[0])
        arrivals.append(Arrival(number % workers, length, own))
    turn = piece(
        0.0,
        speeds.chunk * speeds.critic,
        speeds.chunk,
        float(np.ceil(options.of_critic * speeds.chunk)),
        options.of_critic,
    )
    return Recorded(options, arrivals, [turn])


def waiting(found: Recorded, ranks: int) -> float:
    """Return the share of the ranks' time that none of these tasks has, when three quarters of them were told."""
    clock = queue(found, Cluster(ranks))
    lasted = clock.go(Section(3 * len(found.arrivals) // 4))
    return float(1 - clock.busy.sum() / (ranks * lasted))
