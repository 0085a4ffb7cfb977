"""CEM, the cross-entropy method: a normal distribution of actors, drawn to the best of those that it gave.

Sources: Pourchot and Sigaud 2019, CEM-RL: Combining Evolutionary and Gradient-Based Methods for Policy Search, of which this is
the half without gradients (cem_rl.py adds them); Lee et al. 2020 (AES-RL), Eqs. (1) and (2). The covariance is diagonal. No
individual's parameters travel: any rank makes any of them from mean, variance and the address of its epsilon.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from esac_mpi import evolution, experience, noise
from esac_mpi.algorithms.declaration import Declaration, nobody, none
from esac_mpi.config import CEM, individuals
from esac_mpi.contracts import Memory, World
from esac_mpi.counters import Best, Counters
from esac_mpi.distribution import Gaussian, damped, rank_weights, sampled, slot_and_sign, told
from esac_mpi.envs import Env
from esac_mpi.experience import Experience, Played
from esac_mpi.noise import Purpose
from esac_mpi.params import THETA_ES, Params, Row, make_actor
from esac_mpi.policy import Policy
from esac_mpi.rollout import Board, NoFiniteReturn, ThetaNotFinite

DECLARES = Declaration(
    learning=None,
    discrete=True,
    evolution=None,
    work="episodes",
    policies={"mean": "the mean of the distribution"},
    fitness="fitness",
    operators=none,
    output="tanh",
    offspring=nobody,
)


class Distribution(Protocol):
    """What a state has of the distribution."""

    mean: np.ndarray  # float32 [d]
    variance: np.ndarray  # float32 [d]
    damp: float  # epsilon of Eq. (2), as the last generation had it
    generation: int
    counters: Counters


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node."""

    mean: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    variance: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    damp: float  # epsilon of Eq. (2)
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)
    normaliser = None  # observations are plain

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {"mean": self.mean}


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation."""
    mean, cem = params.layout.initial(params.config.seed, THETA_ES), params.config.cem
    return State(world.share(mean), world.share(np.full_like(mean, cem.variance_init)), cem.damp)


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its individuals' results."""
    return experience.board(params.config.cem.population_size, 0, 0, 0, False)


def generation(params: Params, state: State, world: World, env: Env, learner: None = None) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    cem, k, start = params.config.cem, state.generation + 1, world.clock()
    actor, shape = make_actor(params), board(params)

    def playing(i: int) -> tuple[Played, np.ndarray]:
        individual(params, cem, Gaussian(state.mean, state.variance), k, i, actor.theta)
        return play(params, cem, env, actor.refresh(), k, i), np.zeros(0)

    found = experience.gather(world, shape, 0, 0, 0, playing, np.ones(shape.rows))
    refuse_none_finite(found.returns, k)
    evaluated = world.clock()
    row = tell(params, cem, state, world, k, found.returns, {})
    count(state, found)
    seconds = {"seconds_evaluate": evaluated - start, "seconds_update": world.clock() - evaluated}
    return {"fitness": found.returns, "length": found.lengths, **row}, {**found.timing, **seconds}


def individual(params: Params, cem: CEM, gaussian: Gaussian, k: int, number: int, out: np.ndarray) -> np.ndarray:
    """Write an individual of generation k, float32 [d], into `out`; return it."""
    for block, part in noise.blocks(params.layout.d):
        out[part] = drawn(params, cem, Gaussian(gaussian.mean[part], gaussian.variance[part]), k, number, block, part)
    return out


def drawn(params: Params, cem: CEM, gaussian: Gaussian, k: int, number: int, block: int, part: slice) -> np.ndarray:
    """Return a block of an individual of generation k, float32 [size]; gaussian: that of the block."""
    slot, sign = slot_and_sign(number, cem.population_size, cem.sampling == "mirrored")
    return sampled(gaussian, params.epsilon.block(k, slot, block, part), sign)


def play(params: Params, cem: CEM, env: Env, actor: Policy, k: int, number: int) -> Played:
    """Play the episodes of an individual of generation k."""
    seeds = [noise.integer(params.config.seed, Purpose.EPISODE, k, number, i) for i in range(cem.fitness_episodes)]
    try:
        return experience.play(env, actor, seeds)
    except Exception as error:
        error.add_note(f"in generation {k}, individual {number} (seed {params.config.seed})")
        raise


def refuse_none_finite(fitness: np.ndarray, k: int) -> None:
    """Raise NoFiniteReturn if no individual of generation k has a finite return."""
    if not np.isfinite(fitness).any():
        raise NoFiniteReturn(f"generation {k}: the return of no individual is finite: look at the task, or lower variance_init")


def tell(
    params: Params, cem: CEM, state: Distribution, world: World, k: int, fitness: np.ndarray, trained: dict[int, np.ndarray]
) -> Row:
    """Move the distribution to the elites of generation k, Eqs. (1) and (2); return a row's columns about it.

    trained: individuals that are no longer what was drawn, by number, float32 [d].
    """
    elites = evolution.select_winners(fitness, individuals(cem)[0])
    weights, parts = rank_weights(elites.size, cem.elite_weights), [part for _, part in noise.blocks(params.layout.d)]
    damp = damped(state.damp, cem.damp_tau, cem.damp_limit)

    def update(block: int) -> np.ndarray:
        part = parts[block]
        old = Gaussian(state.mean[part].copy(), state.variance[part].copy())

        def elite(number: int) -> np.ndarray:
            return trained[number][part] if number in trained else drawn(params, cem, old, k, number, block, part)

        new = told(old, map(elite, elites.tolist()), weights, damp, cem.cov_extra_div)
        state.mean[part], state.variance[part] = new
        change, spread = new.mean - old.mean, new.variance.sum(dtype=np.float64)
        return np.array([evolution.checksum(new.mean), evolution.squares(new.mean), evolution.squares(change), spread])

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        squares, change, spread = world.over_blocks(update, len(parts), 4, checksum=True)
    if not np.isfinite([squares, spread]).all():
        raise ThetaNotFinite(f"generation {k}: mean or variance is not finite, the last checkpoint stands: lower variance_init")
    state.damp = damp
    state.generation = k
    return {
        "elites": np.pad(elites, (0, individuals(cem)[0] - elites.size), constant_values=-1),
        "damp": damp,
        "mean_variance": spread / params.layout.d,
        "theta_norm": float(np.sqrt(squares)),
        "update_norm": float(np.sqrt(change)),
    }


def count(state: Distribution, found: Experience) -> None:
    """Count a population's steps, which are its nominal ones, too: the public code's count."""
    steps = int(found.lengths.sum())
    state.counters.env_steps_population += steps
    state.counters.nominal_steps += steps
    state.counters.unstable_episodes += found.unstable
