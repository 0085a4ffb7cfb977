"""A population: members and their addresses, their evaluation, and what it gave, by name."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, noise
from esac_mpi.config import Evolution
from esac_mpi.contracts import World
from esac_mpi.counters import Counters
from esac_mpi.envs import Env
from esac_mpi.noise import Purpose
from esac_mpi.params import Params, Row, make_policy
from esac_mpi.policy import Normaliser, Policy
from esac_mpi.rollout import Board, NoFiniteReturn, action_noise, play
from esac_mpi.transitions import Recorder, packed_size, width

LENGTH_RATE = 0.1  # weight of a generation in the running mean of episode lengths


@dataclass(frozen=True)
class Population:
    """What the evaluation of a population gave."""

    fitness: np.ndarray  # float64 [n] episodic returns, nan where unstable
    sign_return: np.ndarray  # float64 [n] sums of the rewards' signs; zeros where nothing asks for them
    length: np.ndarray  # int64 [n] [steps]
    observation_sums: np.ndarray  # float64 [3, observation]: count, sum, sum of squares; zeros where nothing asks for them
    unstable: int  # episodes whose return is not finite
    cap: int  # at which episodes were truncated [steps]; 0 = none
    recorded: np.ndarray  # float64 [n, ...] packed (transitions.unpacked); on rank 0's node, until the next population
    timing: Row  # busy_seconds [ranks], member_seconds and member_expected [n], seconds_noise and seconds_wait


class Columns(NamedTuple):
    """Where a member's results stand in its row of the board."""

    fitness: int
    length: int
    unstable: int
    seconds_noise: int  # to make its parameters [s]
    seconds: int  # of its episodes [s]
    sign_return: slice  # one number, where the shaping asks for it
    observation_sums: slice  # 3 [observation], where observations are normalised
    recorded: slice  # packed transitions, where a learner wants them: the bulk


def columns(params: Params, table: Evolution) -> Columns:
    """Return where the results of a member of this table's population stand."""
    observation, action = params.layout.sizes[0], params.layout.sizes[-1]
    signs = table.fitness_shaping in ("sign", "sign_ranks")
    sums = 3 * observation * getattr(table, "observation_normalisation", False)
    stored = 0
    if getattr(table, "offspring_transitions", False):
        stored = packed_size(table.fitness_episodes * params.horizon, width(observation, action))
    edges = np.cumsum([5, signs, sums, stored]).tolist()
    return Columns(0, 1, 2, 3, 4, *(slice(*pair) for pair in pairwise(edges)))


def board(params: Params, table: Evolution) -> Board:
    """Return the shape of what the evaluation of a population gives: a row for each member."""
    recorded = columns(params, table).recorded
    return Board(configuration.members(table), recorded.stop, recorded.stop - recorded.start)


def evaluate_population(
    params: Params,
    table: Evolution,
    k: int,
    sigmas: np.ndarray,
    parent: Callable[[int], np.ndarray],
    world: World,
    env: Env,
    cap: int = 0,
    normaliser: Normaliser | None = None,
    expected: np.ndarray | None = None,
) -> Population:
    """Evaluate parent(slot) + sign * sigmas[slot] * eps for every member of generation k. Algorithm 1, lines 5-8.

    cap: truncate episodes there [steps], 0 = no. expected: how long the members may take [n], for scheduling alone.
    """
    policy, at, shape = make_policy(params, env, normaliser), columns(params, table), board(params, table)

    def work(i: int) -> np.ndarray:
        slot, sign = member(table, i)
        start = world.clock()
        perturb(params, policy, k, slot, parent(slot), sign, sigmas[slot])
        made = world.clock()
        try:
            row = play_member(params, table, k, i, env, policy, cap)
        except Exception as error:
            error.add_note(f"in generation {k}, member {i} (seed {params.config.seed})")
            raise
        row[at.seconds_noise], row[at.seconds] = made - start, world.clock() - made
        return row

    waited = world.waited
    expected = np.ones(shape.rows) if expected is None else expected
    everything, busy = world.map(work, shape.rows, shape.columns, expected, shape.bulk)
    results = everything[:, : at.recorded.start].copy()
    if not np.isfinite(results[:, at.fitness]).any():
        raise NoFiniteReturn(
            f"generation {k}: the return of no member is finite: look at the task, or begin another run with a lower sigma"
        )
    timing = {
        "busy_seconds": busy,
        "member_seconds": results[:, at.seconds],
        "member_expected": expected,
        "seconds_noise": results[:, at.seconds_noise].sum(),
        "seconds_wait": world.waited - waited,
    }
    return Population(
        fitness=results[:, at.fitness],
        sign_return=results[:, at.sign_return].sum(axis=1),
        length=results[:, at.length].astype(np.int64),
        observation_sums=summed(results[:, at.observation_sums], params.layout.sizes[0]),
        unstable=int(results[:, at.unstable].sum()),
        cap=cap,
        recorded=everything[:, at.recorded],
        timing=timing,
    )


def perturb(params: Params, policy: Policy, k: int, slot: int, parent: np.ndarray, sign: int, sigma: float) -> None:
    """Give a policy the parameters of a member: parent [d] + sign * sigma * eps. Algorithm 1, lines 6-7."""
    for block, part in noise.blocks(params.layout.d):
        policy.theta[part] = evolution.mutated(parent[part], params.epsilon.block(k, slot, block, part), sign, sigma)
    policy.refresh()


def play_member(params: Params, table: Evolution, k: int, i: int, env: Env, policy: Policy, cap: int) -> np.ndarray:
    """Play the episodes of member i of generation k; return its row of the board without its times. Algorithm 1, line 8."""
    at, episodes = columns(params, table), table.fitness_episodes
    row = np.zeros(at.recorded.stop)
    recorder = Recorder(env, episodes * params.horizon) if at.recorded.start < at.recorded.stop else None
    sums = row[at.observation_sums].reshape(3, -1)  # a view

    def watch(observation: np.ndarray) -> None:
        sums[0] += 1.0
        sums[1] += observation
        sums[2] += np.square(observation, dtype=np.float64)

    for number in range(episodes):
        seed, disturb = episode_seed(params, table, k, i, number), disturbance(params, table, k, i, number, policy)
        episode = play(recorder or env, policy, seed, watch if sums.size else None, cap, disturb)
        row[at.fitness] += episode.episodic_return
        row[at.sign_return] += episode.sign_return
        row[at.length] += episode.episodic_length
        row[at.unstable] += not np.isfinite(episode.episodic_return)
    row[at.fitness] /= episodes
    row[at.sign_return] /= episodes
    if recorder:
        row[at.recorded] = recorder.packed()
    return row


def summed(sums: np.ndarray, observation: int) -> np.ndarray:
    """Return the sum of the members' sums [n, 3 observation] that are finite, in member order, float64 [3, observation]."""
    total = np.zeros((3, observation))
    for row in sums if sums.size else ():
        total += np.where(np.isfinite(row).all(), row.reshape(3, observation), 0.0)
    return total


def length_cap(table: Evolution, mean: float) -> int:
    """Return where episodes are truncated, given their running mean length; 0 = nowhere [steps]."""
    return math.ceil(table.length_cap * mean)


def mean_length(table: Evolution, mean: float, population: Population) -> float:
    """Return the running mean length of an episode after a population [steps]."""
    new = float(population.length.mean()) / table.fitness_episodes
    return mean + LENGTH_RATE * (new - mean) if mean else new


def episode_seed(params: Params, table: Evolution, k: int, i: int, number: int = 0) -> int:
    """Return the seed of an episode of member i of generation k."""
    return noise.integer(params.config.seed, Purpose.EPISODE, k, player(table, i), number)


def disturbance(
    params: Params, table: Evolution, k: int, i: int, number: int, policy: Policy
) -> Callable[[np.ndarray], None] | None:
    """Return what puts noise on the actions of an episode of member i of generation k, or None where there is none."""
    if not table.action_noise:
        return None
    random = noise.generator(params.config.seed, Purpose.ACTION, k, player(table, i), number)
    return action_noise(policy, table.action_noise, random)


def player(table: Evolution, i: int) -> int:
    """Return the address of member i's episodes: its slot, or itself."""
    return member(table, i)[0] if table.start_states == "slot" else i


def member(table: Evolution, i: int) -> tuple[int, int]:
    """Return (slot, sign) of member i: 2j and 2j+1 are the pair of slot j; one-sided, a member is a slot."""
    return (i, 1) if table.sampling == "onesided" else (i // 2, 1 - 2 * (i % 2))


def count(counters: Counters, population: Population, horizon: int) -> None:
    """Count a population's steps; nominally, the papers' way, a generation is one horizon."""
    counters.env_steps_population += int(population.length.sum())
    counters.unstable_episodes += population.unstable
    counters.nominal_steps += horizon
