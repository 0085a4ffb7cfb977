"""Who waits: CEM-RL's generations against AES-RL's arrivals on two ranks; on more, simulated.

Measured are runs of the program on one and on two ranks, in turn, and the share of the ranks' time
that none of their recorded activities has. Simulated (comm/clock/tasks.py) are tasks made of the
speeds that these runs recorded, with episodes as long as theirs, and made-up ones with a long tail:
Pareto, most of 20 to 100 steps, some of the task's limit. What other work on the machine does, the
measured figures have too.
"""

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
from tools.bench.clock import CHEETAH, HOPPER, compared
from tools.bench.measurement import Figure
from tools.bench.program import duration, recorded, span

# update_cost and critic_cost of this network, as they are on one core
COST = {CHEETAH: (3.5, 2.2), HOPPER: (1.2, 2.2)}
FIRST = 2  # generations before what counts: nothing learns yet
# steps before any gradient; Hopper falls after some 20
START = {CHEETAH: FIRST * 2000, HOPPER: 200}
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


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure runs of all kinds in turn; then simulate."""
    horizon, hidden = (30, (8, 8)) if quick else (200, (32, 32))
    for task in (CHEETAH, HOPPER):
        generations = FIRST + (2 if quick else GENERATIONS[task])
        common = (
            "--task.id", task, "--task.horizon", horizon,
            "--policy.hidden", *hidden, "--budget.generations", generations,
            "--evaluation.every", generations + 1,
            "--evaluation.episodes", 1, "--checkpoint.every_generations", 0,
        )  # fmt: skip
        kinds = variants(task, horizon)
        made: dict[str, list[list[RunFiles]]] = {name: [] for name in kinds}
        for _ in range(rounds or (1 if quick else 2)):
            for name, own in kinds.items():
                made[name].append([recorded(r, *common, *own) for r in (1, 2)])
        first = made["AES-RL, 2 workers"]
        for name, pairs in made.items():
            case = f"{name} {task}"
            shares = [np.mean(idle_share(two)[FIRST:]) for _, two in pairs]
            yield Figure(f"{case} ranks=2", "waiting share", "ratio", shares)
            yield from compared(case, pairs, FIRST)
            work = np.array(
                [[duration(computed(one, Machine(r)), FIRST) for r in (1, 2)] for one, _ in pairs]
            )
            yield Figure(
                case, "waiting share from 1 rank", "ratio", 1 - work[:, 0] / (2 * work[:, 1]), True
            )
            ratio = [
                per_step(mine[1]) / per_step(aes[1]) for mine, aes in zip(pairs, first, strict=True)
            ]
            yield Figure(case, "time of a step / AES-RL's, 2 ranks", "ratio", ratio)
        for place, name in enumerate(("update_cost", "critic_cost")):
            yield Figure(
                f"AES-RL {task}", f"{name}, as it was", "", [costs(one)[place] for one, _ in first]
            )
        speeds = speeds_of(first[0][0], horizon)
        yield from simulated(task, speeds, quick)
    tail = np.clip(20 * (1 + np.random.default_rng(0).pareto(1.1, 10_000)), 20, horizon)
    yield from simulated("a long tail", replace(speeds, lengths=tail.astype(int)), quick)


def variants(task: str, horizon: int) -> dict[str, tuple[object, ...]]:
    """List the runs: by name the options."""
    start, cost = min(START[task], 10 * FIRST * horizon), COST[task]
    aes = (
        "--algorithm", "aes_rl", "--aes_rl.workers", 2,
        "--aes_rl.start_steps", start, "--aes_rl.batch_size", 64,
        "--aes_rl.critic_chunk", max(20, horizon // 4),
        "--aes_rl.update_cost", cost[0], "--aes_rl.critic_cost", cost[1],
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
    steps = run.columns["metrics/nominal_steps"]
    return span(run, FIRST) / float(steps[-1] - steps[FIRST - 1])


def speeds_of(run: RunFiles, horizon: int) -> Speeds:
    """Return the speeds that a run's tasks had."""
    aes = run.config.aes_rl
    names = "worker", "busy", "updating", "steps", "updates"
    worker, busy, updating, steps, updates = (run.columns[f"timing/task_{name}"] for name in names)
    mine, critic = worker < aes.workers, worker == aes.workers
    step = (busy - updating)[mine].sum() / steps[mine].sum()
    update = updating[mine].sum() / updates[mine].sum()
    taught = busy[critic].sum() / updates[critic].sum()
    lengths = run.columns["metrics/length"].ravel()
    return Speeds(step, update, taught, aes.critic_chunk, horizon, lengths)


def simulated(case: str, speeds: Speeds, quick: bool) -> Iterator[Figure]:
    """Yield who waits on more ranks, in virtual order by several costs, and by arrival."""
    update, critic = speeds.update / speeds.step, speeds.critic / speeds.update
    kinds = {
        "true costs": ("virtual", update, critic),
        "half of update_cost": ("virtual", update / 2, critic),
        "twice update_cost": ("virtual", 2 * update, critic),
        "critic_cost = 1": ("virtual", update, 1.0),
        "order = arrival": ("arrival", update, critic),
    }  # fmt: skip
    for ranks, workers in SIZES[: 2 if quick else None]:
        for name, (order, *cost) in kinds.items():
            made = [
                made_up(speeds, workers, order, cost, seed) for seed in range(1 if quick else 3)
            ]
            shares = [waiting(tasks, ranks) for tasks in made]
            about = f"{case} ranks={ranks} workers={workers}"
            yield Figure(about, f"waiting share, {name}", "ratio", shares, True)


def made_up(
    speeds: Speeds, workers: int, order: str, cost: list[float], seed: int, each: int = 40
) -> Recorded:
    """Return tasks, half of them trained; cost: of an update, and the critic's over that."""
    random, chunk = np.random.default_rng(seed), speeds.chunk
    options = AESRL(
        workers=workers, update_cost=cost[0], critic_cost=cost[1],
        critic_chunk=chunk, start_steps=0, batch_size=1,
        order="arrival" if order == "arrival" else "virtual",
    )  # fmt: skip
    arrivals = []
    for number in range(each * workers):
        length, *mean = random.choice(speeds.lengths, 1 + MEAN).tolist()
        updates = int(random.random() < 0.5) * int(WINDOW * speeds.lengths.mean())
        steps = length + sum(mean)
        lasted = float(np.ceil(cost[0] * updates) + steps)
        own = piece(steps * speeds.step, updates * speeds.update, updates, lasted, cost[0])
        arrivals.append(Arrival(number % workers, length, own))
    lasted = float(np.ceil(options.of_critic * chunk))
    return Recorded(
        options, arrivals, [piece(0.0, chunk * speeds.critic, chunk, lasted, options.of_critic)]
    )


def waiting(found: Recorded, ranks: int) -> float:
    """Return the share of ranks' time that none has, when three quarters were told."""
    clock = queue(found, Cluster(ranks))
    lasted = clock.go(Section(3 * len(found.arrivals) // 4))
    return float(1 - clock.busy.sum() / (ranks * lasted))
