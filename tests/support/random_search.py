"""Random search: of points around the best so far, the best becomes it if its return is higher.

Source: Rastrigin 1963, in its simplest form.
"""

from dataclasses import dataclass, field

import numpy as np

from esac_mpi.algorithms.declaration import Declaration
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.envs import Env
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.counters import Progress
from esac_mpi.play.marks import policy
from esac_mpi.play.params import THETA_ES, Params, Row, make_policy
from esac_mpi.play.population import perturb
from esac_mpi.play.rollout import Board, play

DECLARES = Declaration(work="members", policies={"search": "the best"}, discrete=True)


@dataclass
class State(Progress):
    """All that changes, equal on every rank or shared by the node."""

    theta: np.ndarray = field(metadata=policy("search"))  # float32 [d] the best point so far
    episodic_return: float = -np.inf  # of that point


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation."""
    return State(world.share(params.layout.initial(params.config.seed, THETA_ES)))


def board(params: Params) -> Board:
    """Return the shape of the board: the return and the steps of each point's episode."""
    return Board(params.config.random_search.points, 2)


def generation(
    params: Params, state: State, world: World, env: Env, learner: None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    k = state.generation + 1
    policy = make_policy(params, env)
    radius = params.config.random_search.radius
    slices = dict(noise.blocks(params.layout.d))

    def work(i: int) -> np.ndarray:
        perturb(params, policy, k, i, state.theta, 1, radius)
        episode = play(env, policy, noise.integer(params.config.seed, Purpose.EPISODE, k, i))
        return np.array([episode.episodic_return, episode.episodic_length])

    results, busy = world.map(work, *board(params)[:2])  # valid until the next one
    fitness, length = results.T.copy()  # [points]
    winner = int(np.argmax(np.where(np.isfinite(fitness), fitness, -np.inf)))
    better = bool(fitness[winner] > state.episodic_return)

    def move(block: int) -> np.ndarray:
        part = slices[block]
        if better:
            eps = params.epsilon.block(k, winner, block, part)
            state.theta[part] = evolution.mutated(state.theta[part], eps, 1, radius)
        return np.array([evolution.checksum(state.theta[part])])

    world.over_blocks(move, len(slices), 1, checksum=True)  # nodes compare it
    state.generation = k
    if better:
        state.episodic_return = float(fitness[winner])
    state.counters.env_steps_population += int(length.sum())
    state.counters.unstable_episodes += int(np.isnan(fitness).sum())
    state.counters.nominal_steps += params.horizon
    row = {"fitness": fitness, "length": length.astype(np.int64), "moved": better}
    return row, {"busy_seconds": busy}
