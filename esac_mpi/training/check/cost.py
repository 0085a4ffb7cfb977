"""The line about what the run will cost: measured pieces of work, through its schedule."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from esac_mpi import config, envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.world import World
from esac_mpi.host.log import duration
from esac_mpi.operators.noise import blocks
from esac_mpi.play import population
from esac_mpi.play.params import Params, make_layout, make_policy
from esac_mpi.training import set_up
from esac_mpi.training.check.report import Line
from esac_mpi.training.ended import run_together
from esac_mpi.training.forecast import measured, outlook
from esac_mpi.training.memory import Counter

PLAYING = 1.0  # whole episodes are played for at least this time, on each rank [s]
EPISODES = 3  # and as many at least
UPDATING = 2.0  # updates of the learner are made for this time [s]
WHOLE = 0.98  # share of the horizon from which on episodes count as lasting to it
UNMEASURED = learners.NoDevice, learners.LearnerNotFinite, MemoryError


def look(
    chosen: config.Config, env: envs.Env, world: World, seconds_left: float, left: config.Budget
) -> tuple[list[Line], float]:
    """Measure the pieces and say what the run costs, on rank 0. All ranks call this.

    seconds_left: what this job has [s]. left: of the run's budget. Returns the time of an update,
    too, 0 where none was made [s].
    """
    if why := outlook.unforeseen(chosen):
        return [Line("forecast", why)], 0.0
    empty = np.zeros(2)
    exchange = measured.median_seconds(lambda: world.map(lambda i: empty, 2 * world.size, 2), 50)
    layout = make_layout(chosen, env)
    params = Params(chosen, layout, env.horizon, set_up.make_epsilon(chosen, layout, Counter(1)))

    def play_whole() -> np.ndarray:
        with envs.refuse_errors(env.id):
            return measured.episodes(params, env, PLAYING, EPISODES, world.rank)

    world.gather(None)  # all begin together
    played = world.gather(run_together(world, play_whole))
    others = world.gather(beside_playing(params))
    done = world.shared((1,))
    lines, updating = list[Line](), 0.0
    if world.rank == 0:
        try:
            pieces = put_together(params, env, np.concatenate(played), others, exchange)
            per_node = math.ceil(world.size / world.nodes)
            lines = [line(chosen, pieces, world.size, per_node, seconds_left, left)]
            updating = pieces.updating
        except UNMEASURED as error:
            lines = [Line("forecast", f"none: {type(error).__name__}: {error}")]
        finally:
            done[0] = 1
    # the others wait as while a phase goes on: beside their work those of its node play
    while runs_beside(chosen) and world.node == 0 and not done[0]:
        measured.episodes(params, env, 0.0, rank=world.rank)
    world.gather(None)
    return lines, updating


def runs_beside(chosen: config.Config) -> bool:
    """Tell whether the learner works while other ranks do."""
    declares = ALGORITHMS[chosen.algorithm].DECLARES
    if declares.learning is None:
        return False
    shares = declares.offspring(chosen) > 0 or declares.operators(chosen) != ""
    return declares.learning.beside(chosen) or shares


def beside_playing(params: Params) -> dict[str, float] | Exception:
    """Measure what this rank does beside playing, as fields of Pieces; or say why not."""
    try:
        return measured.seconds(params.config, params.layout)
    except UNMEASURED as error:
        return error


def put_together(
    params: Params,
    env: envs.Env,
    played: np.ndarray,
    others: list[dict[str, float] | Exception],
    exchange: float,
) -> Pieces:
    """Measure the learner; put it with episodes' time and steps [m, 2] and ranks' other work.

    Raises one of UNMEASURED.
    """
    beside = list[dict[str, float]]()
    for one in others:
        if isinstance(one, Exception):
            raise one
        beside.append(one)
    ready = measured.prepare(params, env)
    playing, updating = measured.measure(ready, UPDATING)
    making, slot = noise_seconds(params, env)
    return Pieces(
        played[:, 0],
        played[:, 1],
        env.horizon,
        making=making,
        slot=slot,
        blocks=set_up.update_pieces(params.config, params.layout),
        sums=3 * env.observation_size,
        playing=playing,
        updating=updating,
        cpu=ready is None or str(ready[0].device) == "cpu",
        exchange=exchange,
        **{name: float(np.mean([one[name] for one in beside])) for name in beside[0]},
    )


def noise_seconds(params: Params, env: envs.Env) -> tuple[float, float]:
    """Measure the making of a member's parameters, and a slot's part in an update [s]."""
    policy, theta = make_policy(params, env), params.initial(0)
    total = np.zeros_like(theta)

    def perturb() -> None:
        population.perturb(params, policy, 0, 0, theta, 1, 0.01)

    def add() -> None:
        for block, part in blocks(params.layout.d):
            total[part] += np.float32(0.5) * params.epsilon.block(0, 0, block, part)

    return measured.median_seconds(perturb, 5), measured.median_seconds(add, 5)


def line(
    chosen: config.Config,
    pieces: Pieces,
    ranks: int,
    per_node: int,
    seconds_left: float,
    left: config.Budget | None = None,
) -> Line:
    """Say what the run takes to the end of its budget, and what would help most.

    Where episodes end early it is a range: as those of the initial policy, and with all to the
    horizon. left: see `look`.
    """
    begun = left not in (None, chosen.budget)
    chosen = replace(chosen, budget=left or chosen.budget)
    on = outlook.cluster(ranks, per_node, pieces)
    later = pieces.at_horizon() if pieces.length < WHOLE * pieces.horizon else pieces
    own = outlook.outlook(chosen, later, on)
    first = own if later is pieces else outlook.outlook(chosen, pieces, on)

    def span(name: str, form: Callable[[float], str]) -> str:
        low, high = map(form, sorted((getattr(first, name), getattr(own, name))))
        return low if low == high else f"{low} to {high}"

    budget = "what is left of the budget" if begun else "the whole budget"
    found = f"{span('generation', '{:.3g}'.format)} s a generation"
    found += f", {span('seconds', duration)} for {budget}"
    found += f", {span('core_hours', '{:.3g}'.format)} core-hours"
    found += f"; ranks idle {span('idle', '{:.0%}'.format)} of the time"
    if (longest := max(first.seconds, own.seconds)) > seconds_left >= 1:
        found += f"; that is {math.ceil(longest / seconds_left)} jobs of the time left"
    return Line("forecast", found, outlook.advice(chosen, later, on, own, begun))
