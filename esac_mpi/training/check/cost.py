"""The line about what the run will cost: pieces of its work are measured, and followed through the program's own schedule."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from esac_mpi import config, envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.contracts import Memory
from esac_mpi.host.log import duration
from esac_mpi.operators.noise import Purpose, blocks, integer, pieces
from esac_mpi.play import population
from esac_mpi.play.params import Params, make_actor, make_layout, make_policy
from esac_mpi.play.rollout import explore, play
from esac_mpi.training import set_up
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line
from esac_mpi.training.forecast import advice, operators, outlook, phases, work
from esac_mpi.training.forecast.learners import threads_that_gain

PLAYING, EPISODES = (
    1.0,
    3,
)  # whole episodes are played for at least this time [s] and as many at least, on each rank
LONG = 10.0  # no further one is begun after this time [s]
UPDATING = 2.0  # updates of the learner are made for this time [s]
WHOLE = 0.98  # share of the horizon from which on episodes count as lasting to it


def look(
    chosen: config.Config,
    env: envs.Env | None,
    ranks: list[Rank],
    world: World,
    scratch: Memory,
    seconds_left: float,
    left: config.Budget,
) -> list[Line]:
    """Measure the pieces and return the line, on rank 0. All ranks call this. What is made here is thrown away.

    scratch: gives memory that no other rank sees. seconds_left: what this job has [s]. left: of the run's budget.
    """
    if env is None or any(rank.task for rank in ranks):
        return []
    try:
        work.known(chosen)
    except work.Unforeseen as error:
        return [Line("forecast", str(error))]
    nothing = timed(lambda: world.map(lambda i: np.zeros(2), 2 * world.size, 2), 50)
    pieces = measured(chosen, env, ranks, world, scratch, nothing)
    if pieces is None:
        return []
    if isinstance(pieces, str):
        return [Line("forecast", f"none: {pieces}")]
    return [
        line(chosen, pieces, world.size, math.ceil(world.size / world.nodes), seconds_left, left)
    ]


def measured(
    chosen: config.Config,
    env: envs.Env,
    ranks: list[Rank],
    world: World,
    scratch: Memory,
    nothing: float,
) -> Pieces | str | None:
    """Return the pieces, on rank 0: episodes, and what ranks do beside, of all ranks at once; then the learner's work on rank 0.

    The others wait meanwhile as while a phase goes on; where phases run beside their work, those of its node play. A text says
    why something cannot be measured.
    """
    layout = make_layout(chosen, env)
    params = Params(chosen, layout, env.horizon, set_up.make_epsilon(chosen, layout, scratch))
    world.gather(None)  # all begin together
    played = world.gather(episodes(params, env, world.rank))
    others = world.gather(beside_playing(params))
    done, found = world.shared((1,)), None
    if world.rank == 0:
        try:
            found = put_together(params, env, ranks, np.concatenate(played), others)
        finally:
            done[0] = 1
    while runs_beside(chosen) and world.node == 0 and not done[0]:
        episodes(params, env, world.rank, 0.0)
    world.gather(None)
    return replace(found, exchange=nothing) if isinstance(found, Pieces) else found


def runs_beside(chosen: config.Config) -> bool:
    """Return whether the learner works while other ranks do."""
    learning = ALGORITHMS[chosen.algorithm].DECLARES.learning
    return learning is not None and (
        learning.beside(chosen) or isinstance(chosen.own, config.ERL | config.CEMRL | config.AESRL)
    )


def beside_playing(params: Params) -> dict[str, float] | str:
    """Return the times of what this rank does beside playing, as fields of Pieces, or why they cannot be measured."""
    try:
        return operators.seconds(params.config, params.layout)
    except (learners.NotInstalled, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


def put_together(
    params: Params,
    env: envs.Env,
    ranks: list[Rank],
    played: np.ndarray,
    others: list[dict[str, float] | str],
) -> Pieces | str:
    """Return the pieces but that of an exchange, given time and steps of episodes [m, 2], and what each rank does beside them."""
    if unable := [one for one in others if isinstance(one, str)]:
        return unable[0]
    operating = [one for one in others if not isinstance(one, str)]
    spare = threads_that_gain(
        params.config, ranks[0].cores, sum(rank.node == ranks[0].node for rank in ranks)
    )
    try:
        playing, updating, threads, cpu = learner_seconds(params, env, spare)
    except (
        learners.NoDevice,
        learners.NotInstalled,
        learners.LearnerNotFinite,
        MemoryError,
    ) as error:
        return f"{type(error).__name__}: {error}"
    making, slot = noise_seconds(params, env)
    times = {"making": making, "slot": slot, "playing": playing, "updating": updating}
    times |= {name: float(np.mean([one[name] for one in operating])) for name in operating[0]}
    declared = ALGORITHMS[params.config.algorithm].DECLARES.evolution
    count = pieces(params.layout.d, config.slots(declared(params.config)) if declared else 1)
    sums = 3 * env.observation_size
    return Pieces(
        played[:, 0],
        played[:, 1],
        env.horizon,
        blocks=count,
        sums=sums,
        threads=threads,
        cpu=cpu,
        **times,
    )


def episodes(params: Params, env: envs.Env, rank: int, seconds: float | None = None) -> np.ndarray:
    """Play whole episodes with the initial policy, for PLAYING or at least so long; return time and steps, float64 [m, 2].

    Where ranks' work is episodes, their transitions are recorded, which takes its time.
    """
    chosen = params.config
    found: list[tuple[float, int]] = []
    declared, theta = ALGORITHMS[chosen.algorithm].DECLARES, params.initial(0)
    policy, actor = (
        make_policy(params, env, output=declared.output).set(theta),
        make_actor(params).set(theta),
    )
    start = now = time.perf_counter()
    least, count = (PLAYING, EPISODES) if seconds is None else (seconds, 1)
    while (now < start + least or len(found) < count) and (not found or now < start + LONG):
        seed = integer(chosen.seed, Purpose.EPISODE, 0, rank, len(found))
        episode = (
            explore(env, actor, seed)[1] if declared.work != "members" else play(env, policy, seed)
        )
        before, now = now, time.perf_counter()
        found.append((now - before, max(episode.episodic_length, 1)))
    return np.array(found)


def noise_seconds(params: Params, env: envs.Env) -> tuple[float, float]:
    """Return the time to make a member's parameters, and that of a slot's part in an update [s]; 0 without a distribution."""
    own = params.config.own
    if not isinstance(own, config.Evolution | config.CEM):
        return 0.0, 0.0
    policy, theta = make_policy(params, env), params.initial(0)
    total = np.zeros_like(theta)

    def add() -> None:
        for block, part in blocks(params.layout.d):
            total[part] += np.float32(0.5) * params.epsilon.block(0, 0, block, part)

    return timed(lambda: population.perturb(params, policy, 0, 0, theta, 1, 0.01), 5), timed(add, 5)


def learner_seconds(
    params: Params, env: envs.Env, spare: int
) -> tuple[float, float, dict[int, float], bool]:
    """Return the time of a learner's step and of its update [s], and of an update with more threads, {threads: [s]}.

    spare: threads that it could have. At last: whether it is on a CPU. Zeros without a learner.
    """
    chosen, ready = params.config, phases.prepare(params, env)
    if ready is None:
        return 0.0, 0.0, {}, True
    made, phase = ready
    cpu = str(made.device) == "cpu"
    playing, updating = phases.measure(made, phase, UPDATING)
    if not cpu or spare <= chosen.learner.threads:
        return playing, updating, {}, cpu
    import torch

    torch.set_num_threads(spare)
    try:
        return playing, updating, {spare: phases.measure(made, phase, UPDATING / 2)[1]}, cpu
    finally:
        torch.set_num_threads(chosen.learner.threads)


def timed(action: Callable[[], Any], repeats: int) -> float:
    """Return the median time of so many calls [s]."""
    seconds = np.zeros(repeats)
    for i in range(repeats):
        start = time.perf_counter()
        action()
        seconds[i] = time.perf_counter() - start
    return float(np.median(seconds))


def line(
    chosen: config.Config,
    pieces: Pieces,
    ranks: int,
    per_node: int,
    seconds_left: float,
    left: config.Budget | None = None,
) -> Line:
    """Return the line: what the run takes to the end of its budget, and what would help most.

    Where episodes end early it is a range: as those of the initial policy, and with all to the horizon. left: see `look`.
    """
    begun = left not in (None, chosen.budget)
    chosen = replace(chosen, budget=left or chosen.budget)
    on = outlook.cluster(ranks, per_node, pieces, ranks)
    later = pieces.at_horizon() if pieces.length < WHOLE * pieces.horizon else pieces
    own = outlook.outlook(chosen, later, on)
    first = own if later is pieces else outlook.outlook(chosen, pieces, on)

    def span(name: str, form: Callable[[float], str]) -> str:
        low, high = map(form, sorted((getattr(first, name), getattr(own, name))))
        return low if low == high else f"{low} to {high}"

    budget = "what is left of the budget" if begun else "the whole budget"
    found = f"{span('generation', '{:.3g}'.format)} s a generation, {span('seconds', duration)} for {budget}"
    found += f", {span('core_hours', '{:.3g}'.format)} core-hours; ranks idle {span('idle', '{:.0%}'.format)} of the time"
    if (longest := max(first.seconds, own.seconds)) > seconds_left > 0:
        found += f"; that is {math.ceil(longest / seconds_left)} jobs of the time left"
    return Line("forecast", found, advice.advice(chosen, later, on, own, begun))
