"""Evolution strategies: lines 5-11 of ESAC's Algorithm 1 alone.

Source: Salimans et al. 2017, Evolution Strategies as a Scalable Alternative to Reinforcement Learning (OpenAI-ES): mirrored
sampling, centred ranks, Adam. The gradient is 1/(n sigma) sum_i F_i eps_i, as in the text; their code leaves 1/sigma out,
which matters for SGD and weight decay alone. What their text, blog or code has beside this is a field of `config.Evolution`:
other shapings of F_i, weight decay, noise on actions, truncated episodes, SGD; and in `config.ES` normalised observations.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from esac_mpi import config as configuration
from esac_mpi import evolution, noise
from esac_mpi.counters import Best, Counters
from esac_mpi.envs import Env
from esac_mpi.mutation import Mutation
from esac_mpi.noise import Purpose
from esac_mpi.policy import Layout, Normaliser, Policy
from esac_mpi.rollout import Board, NoFiniteReturn, ThetaNotFinite, action_noise, play
from esac_mpi.transitions import Recorder, packed_size, width

Row = dict[str, Any]
THETA_ES, THETA_SAC = 0, 1  # which network an initial vector is drawn for
LENGTH_RATE = 0.1  # weight of a generation in the running mean of episode lengths


@dataclass(frozen=True)
class Params:
    """What never changes in a run."""

    config: configuration.Config
    layout: Layout
    horizon: int  # of an episode [steps]
    mutation: Mutation  # how epsilon is made
    learner_env: Env | None = None  # where a phase plays that runs beside the evaluation or carries on after it; on rank 0


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node."""

    theta_es: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    adam_m: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    adam_v: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    observation_sums: np.ndarray  # float64 [3, observation]: count, sum, sum of squares
    mean_length: float = 0.0  # running mean of the population's episodes [steps]
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"theta_es": self.theta_es}

    @property
    def normaliser(self) -> Normaliser | None:
        """The running standardisation of observations, or None where it is off or has seen nothing."""
        count, total, squares = self.observation_sums
        if not count.any():
            return None
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 1e-2))
        return Normaliser(mean.astype(np.float32), std.astype(np.float32))


@dataclass(frozen=True)
class Population:
    """What the evaluation of a population gave."""

    fitness: np.ndarray  # float64 [n] episodic returns, nan where unstable
    sign_return: np.ndarray  # float64 [n] sums of the rewards' signs; zeros where nothing asks for them
    length: np.ndarray  # int64 [n] [steps]
    observation_sums: np.ndarray  # float64 [3, observation]
    unstable: int  # episodes whose return is not finite
    cap: int  # at which episodes were truncated [steps]; 0 = none
    recorded: np.ndarray  # float64 [n, ...] packed (transitions.unpacked); on rank 0's node, until the next population
    timing: Row  # busy_seconds [ranks], member_seconds [n], seconds_noise and seconds_wait


def init(params: Params, world: Any) -> State:
    """Return the state before the first generation."""
    theta = params.layout.initial(params.config.seed, THETA_ES)
    zeros = np.zeros_like(theta)
    sums = np.zeros((3, params.layout.sizes[0]))
    return State(world.share(theta), world.share(zeros), world.share(zeros), sums)


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its members' results."""
    return results(params, params.config.es)


def generation(params: Params, state: State, world: Any, env: Env, learner: None = None) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    es, k, start = params.config.es, state.generation + 1, world.clock()
    cap = length_cap(es, state.mean_length)
    population = evaluate(
        params, es, k, lambda slot: es.sigma, lambda slot: state.theta_es, world, env, cap, state.normaliser
    )  # lines 5-8
    shaped = evolution.shaped(es.fitness_shaping, population.fitness, population.sign_return)  # line 9
    weights = evolution.slot_weights(shaped, es.sampling != "onesided")
    evaluated = world.clock()

    def update(block: int) -> np.ndarray:  # line 11
        part = slices[block]
        theta, gradient = state.theta_es[part].copy(), np.zeros(part.stop - part.start, np.float32)
        for slot in range(weights.size):
            gradient += weights[slot] * params.mutation.epsilon(k, slot, block, part)
        gradient /= np.float32(es.population_size * es.sigma)
        change = step(es, theta, gradient, state.adam_m[part], state.adam_v[part], k)
        new = state.theta_es[part] = theta + change
        return np.array([checksum(new), *(evolution.squares(x) for x in (theta, change, new))])

    slices = [part for _, part in noise.blocks(params.layout.d)]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        world.checksum, theta_squares, change_squares, new_squares = world.over_blocks(update, len(slices), 4)
    check_finite(k, new_squares)
    state.generation = k
    if es.observation_normalisation:
        state.observation_sums += population.observation_sums
    state.mean_length = mean_length(es, state.mean_length, population)
    count(state.counters, population, params.horizon)
    row = {
        "fitness": population.fitness,
        "length": population.length,
        "length_cap": population.cap,
        "sigma": es.sigma,
        "theta_norm": np.sqrt(theta_squares),
        "update_norm": np.sqrt(change_squares),
    }
    seconds = {"seconds_evaluate": evaluated - start, "seconds_update": world.clock() - evaluated}
    return row, {**population.timing, **seconds}


def evaluate(
    params: Params,
    es: configuration.Evolution,
    k: int,
    sigma: Callable[[int], float],
    parent: Callable[[int], np.ndarray],
    world: Any,
    env: Env,
    cap: int = 0,
    normaliser: Normaliser | None = None,
    expected: np.ndarray | None = None,
) -> Population:
    """Evaluate parent(slot) + sign * sigma(slot) * eps for every member of generation k. Algorithm 1, lines 5-8.

    cap: truncate episodes there [steps], 0 = no. expected: how long the members may take [n], for scheduling alone.
    """
    policy = make_policy(params, env, normaliser)
    normalise, signs, records = travelling(es)
    size = params.layout.sizes[0] if normalise else 0
    capacity = es.fitness_episodes * params.horizon
    rows, columns, bulk = results(params, es)

    def work(i: int) -> np.ndarray:
        slot, sign = member(es, i)
        start = world.clock()
        rate = sigma(slot)
        for block, part in noise.blocks(params.layout.d):
            policy.theta[part] = evolution.mutated(parent(slot)[part], params.mutation.epsilon(k, slot, block, part), sign, rate)
        policy.refresh()
        made = world.clock()
        sums, total, sign_total, length, unstable = np.zeros((3, size)), 0.0, 0.0, 0, 0
        recorder = Recorder(env, capacity) if records else None

        def watch(observation: np.ndarray) -> None:
            sums[0] += 1.0
            sums[1] += observation
            sums[2] += np.square(observation, dtype=np.float64)

        try:
            for number in range(es.fitness_episodes):
                seed, disturb = episode_seed(params, es, k, i, number), disturbance(params, es, k, i, number, policy)
                episode = play(recorder or env, policy, seed, watch if normalise else None, cap, disturb)
                total += episode.episodic_return
                sign_total += episode.sign_return
                length += episode.episodic_length
                unstable += not np.isfinite(episode.episodic_return)
        except Exception as error:
            error.add_note(f"in generation {k}, member {i} (seed {params.config.seed})")
            raise
        played = [total / es.fitness_episodes, length, unstable, made - start, world.clock() - made]
        shown = [[sign_total / es.fitness_episodes]] if signs else []
        return np.concatenate([played, *shown, sums.ravel(), *([recorder.packed()] if recorder else [])])

    waited = world.waited
    everything, busy = world.map(work, rows, columns, expected, bulk)
    table, recorded = everything[:, : columns - bulk].copy(), everything[:, columns - bulk :]
    if not np.isfinite(table[:, 0]).any():
        raise NoFiniteReturn(
            f"generation {k}: the return of no member is finite: look at the task, or begin another run with a lower sigma"
        )
    sums = np.zeros((3, params.layout.sizes[0]))
    for row in table[:, 5 + signs :].reshape(-1, 3, size) if normalise else ():
        sums += np.where(np.isfinite(row).all(), row, 0.0)  # in member order
    timing = {
        "busy_seconds": busy,
        "member_seconds": table[:, 4],
        "seconds_noise": table[:, 3].sum(),
        "seconds_wait": world.waited - waited,
    }
    sign_return = table[:, 5] if signs else np.zeros(len(table))
    length, unstable = table[:, 1].astype(np.int64), int(table[:, 2].sum())
    return Population(table[:, 0], sign_return, length, sums, unstable, cap, recorded, timing)


def travelling(es: configuration.Evolution) -> tuple[bool, bool, bool]:
    """Return what travels beside a member's return: sums of its observations, signs of its rewards, its transitions."""
    normalise = isinstance(es, configuration.ES) and es.observation_normalisation
    records = isinstance(es, configuration.ESAC) and es.offspring_transitions
    return normalise, es.fitness_shaping in ("sign", "sign_ranks"), records


def results(params: Params, es: configuration.Evolution) -> Board:
    """Return the shape of what the evaluation of a population gives: five numbers of each member, and what else travels."""
    normalise, signs, records = travelling(es)
    observation, action = params.layout.sizes[0], params.layout.sizes[-1]
    stored = packed_size(es.fitness_episodes * params.horizon, width(observation, action)) if records else 0
    return Board(configuration.members(es), 5 + signs + 3 * observation * normalise + stored, stored)


def length_cap(es: configuration.Evolution, mean: float) -> int:
    """Return where episodes are truncated, given their running mean length; 0 = nowhere [steps]."""
    return math.ceil(es.length_cap * mean)


def mean_length(es: configuration.Evolution, mean: float, population: Population) -> float:
    """Return the running mean length of an episode after a population [steps]."""
    new = float(population.length.mean()) / es.fitness_episodes
    return mean + LENGTH_RATE * (new - mean) if mean else new


def episode_seed(params: Params, es: configuration.Evolution, k: int, i: int, number: int = 0) -> int:
    """Return the seed of an episode of member i of generation k."""
    return noise.integer(params.config.seed, Purpose.EPISODE, k, player(es, i), number)


def disturbance(
    params: Params, es: configuration.Evolution, k: int, i: int, number: int, policy: Policy
) -> Callable[[np.ndarray], None] | None:
    """Return what puts noise on the actions of an episode of member i of generation k, or None where there is none."""
    if not es.action_noise:
        return None
    return action_noise(policy, es.action_noise, noise.generator(params.config.seed, Purpose.ACTION, k, player(es, i), number))


def player(es: configuration.Evolution, i: int) -> int:
    """Return the address of member i's episodes: its slot, or itself."""
    return member(es, i)[0] if es.start_states == "slot" else i


def member(es: configuration.Evolution, i: int) -> tuple[int, int]:
    """Return (slot, sign) of member i: 2j and 2j+1 are the pair of slot j; one-sided, a member is a slot."""
    return (i, 1) if es.sampling == "onesided" else (i // 2, 1 - 2 * (i % 2))


def step(
    es: configuration.Evolution, theta: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, k: int
) -> np.ndarray:
    """Return the change of theta along the gradient less weight decay; m and v are updated. Blocks, float32 [size]."""
    ascent = gradient - np.float32(es.weight_decay) * theta
    if es.optimiser == "sgd":
        return evolution.sgd_step(ascent, es.lr_es)
    return evolution.adam_step(ascent, m, v, k, es.lr_es)


def check_finite(k: int, squares: float) -> None:
    """Raise ThetaNotFinite, on all ranks, unless theta_es after generation k is finite, which the sum of its squares tells."""
    if not math.isfinite(squares):
        raise ThetaNotFinite(
            f"generation {k}: theta_es is no longer finite, the last checkpoint stands: begin another run with a lower lr_es, "
            "weight_decay or sigma"
        )


def make_policy(params: Params, env: Env, normaliser: Normaliser | None = None) -> Policy:
    """Return a policy of the run's layout and the task's bounds."""
    network = params.config.policy
    output = "clip" if params.config.algorithm == "ppo" else network.output  # PPO's mean is not squashed, its actions are cut off
    return Policy(params.layout, network.activation, output, env.low, env.high, normaliser)


def checksum(theta: np.ndarray) -> float:
    """Return a checksum of a block."""
    return float(zlib.crc32(theta.tobytes()))


def count(counters: Counters, population: Population, horizon: int) -> None:
    """Count a population's steps; nominally, the papers' way, a generation is one horizon."""
    counters.env_steps_population += int(population.length.sum())
    counters.unstable_episodes += population.unstable
    counters.nominal_steps += horizon
