"""CEM, the cross-entropy method: a normal distribution of actors, drawn to the best of those that it gave.

Sources: Pourchot and Sigaud 2019, CEM-RL: Combining Evolutionary and Gradient-Based Methods for Policy Search, of which this is
the half without gradients (cem_rl.py adds them); Lee et al. 2020 (AES-RL), Eqs. (1) and (2). The covariance is diagonal. No
individual's parameters travel: any rank makes any of them from mean, variance and the address of its epsilon.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, nobody, none
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.config import CEM, individuals
from esac_mpi.envs import Env
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.distribution import (
    Gaussian,
    Mixing,
    damped,
    log_ratio,
    mix,
    rank_weights,
    renewed,
    sampled,
    slot_and_sign,
    told,
)
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Policy
from esac_mpi.play import experience
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.experience import Experience, Played
from esac_mpi.play.params import THETA_ES, Params, Row, make_actor
from esac_mpi.play.rollout import Board, NoFiniteReturn, ThetaNotFinite
from esac_mpi.play.transitions import width
from esac_mpi.play.warm_start_fields import ANEW, DAMP, VARIANCE

DECLARES = Declaration(
    learning=None,
    discrete=True,
    evolution=None,
    work="episodes",
    policies={"mean": "the mean of the distribution"},
    apart=False,
    fitness="fitness",
    operators=none,
    output="tanh",
    head_scale=1.0,
    offspring=nobody,
)


class Distribution(Protocol):
    """What a state has of the distribution."""

    mean: np.ndarray  # float32 [d]
    variance: np.ndarray  # float32 [d]
    damp: float  # epsilon of Eq. (2), as the last generation had it
    individuals: np.ndarray  # float32 [m, d] of the last generation, those that nothing trained; m = 0 without importance mixing
    individual_returns: np.ndarray  # float64 [m] theirs
    individual_lengths: np.ndarray  # int64 [m] steps of all episodes of each
    kept: (
        np.ndarray
    )  # int64 [c] which of them stay in the next generation, the first that nothing trains there
    candidates: np.ndarray  # int64 [m - c] which candidates come after them
    generation: int
    counters: Counters


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node."""

    mean: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    variance: np.ndarray = field(metadata={"shared": True, "part": VARIANCE})  # float32 [d]
    damp: float = field(metadata={"part": DAMP})  # epsilon of Eq. (2)
    individuals: np.ndarray = (
        field(  # float32 [m, d] the last ones; m = 0 without importance mixing
            metadata={"shared": True, "part": ANEW}
        )
    )
    individual_returns: np.ndarray = field(metadata={"part": ANEW})  # float64 [m]
    individual_lengths: np.ndarray = field(  # int64 [m] [steps]
        metadata={"part": ANEW, "later": True}
    )
    kept: np.ndarray = field(metadata={"part": ANEW})  # int64 [c] which of them stay
    candidates: np.ndarray = field(
        metadata={"part": ANEW}
    )  # int64 [m - c] slots of those that are drawn
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
    mean, cem = params.initial(THETA_ES), params.config.cem
    return State(
        world.share(mean),
        world.share(np.full_like(mean, cem.variance_init)),
        cem.damp,
        **unmixed(params, cem, world),
    )


def unmixed(params: Params, cem: CEM, world: Memory) -> dict[str, Any]:
    """Return what a state has of importance mixing at the start: nobody stays."""
    m = cem.importance_mixing * (cem.population_size - individuals(cem)[1])
    about = {
        "individual_returns": np.zeros(m),
        "individual_lengths": np.zeros(m, np.int64),
        "kept": np.zeros(0, np.int64),
        "candidates": np.arange(m),
    }
    return {"individuals": world.shared((m, params.layout.d)), **about}


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its individuals' results."""
    return experience.board(params.config.cem.population_size, 0, 0, 0, False)


def generation(
    params: Params, state: State, world: World, env: Env, learner: None = None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    cem, k, start = params.config.cem, state.generation + 1, world.clock()
    actor, shape = make_actor(params), board(params)

    def playing(i: int) -> tuple[Played, np.ndarray]:
        return play_drawn(params, cem, state, env, actor, k, i), np.zeros(0)

    found = experience.gather(world, shape, 0, 0, 0, playing, plays(cem, state))
    evaluated = world.clock()
    row = tell(params, cem, state, world, k, (found.returns, found.lengths), {})
    count(state, found)
    seconds = {"seconds_evaluate": evaluated - start, "seconds_update": world.clock() - evaluated}
    return {"fitness": found.returns, "length": found.lengths, **row}, {**found.timing, **seconds}


def stays(cem: CEM, state: Distribution, number: int) -> bool:
    """Return whether an individual of the next generation is one of the last, that importance mixing kept."""
    return 0 <= number - individuals(cem)[1] < len(state.kept)


def plays(cem: CEM, state: Distribution) -> np.ndarray:
    """Return how long individuals of the next generation may take, for scheduling alone, 0 where one stays, float64 [n]."""
    return np.array([float(not stays(cem, state, number)) for number in range(cem.population_size)])


def individual(
    params: Params, cem: CEM, state: Distribution, k: int, number: int, out: np.ndarray
) -> np.ndarray:
    """Write an individual of generation k, float32 [d], into `out`; return it."""
    for block, part in noise.blocks(params.layout.d):
        out[part] = drawn(params, cem, state, k, number, block, part)
    return out


def drawn(
    params: Params, cem: CEM, state: Distribution, k: int, number: int, block: int, part: slice
) -> np.ndarray:
    """Return a block of an individual of generation k, which is the next, float32 [size]."""
    place = number - individuals(cem)[1]
    if stays(cem, state, number):
        return state.individuals[state.kept[place], part]
    if not cem.importance_mixing:
        slot, sign = slot_and_sign(number, cem.population_size, cem.sampling == "mirrored")
    else:
        slot, sign = (
            number if place < 0 else candidate(cem, int(state.candidates[place - len(state.kept)])),
            1,
        )
    return sampled(
        Gaussian(state.mean[part], state.variance[part]),
        params.epsilon.block(k, slot, block, part),
        sign,
    )


def candidate(cem: CEM, number: int) -> int:
    """Return the slot of the epsilon of a candidate of importance mixing: they come after those that gradients train."""
    return individuals(cem)[1] + number


def play_drawn(
    params: Params, cem: CEM, state: Distribution, env: Env, actor: Policy, k: int, number: int
) -> Played:
    """Play the episodes of an individual of generation k as it was drawn; who stays has its return, and plays none."""
    if stays(cem, state, number):
        had = float(state.individual_returns[state.kept[number - individuals(cem)[1]]])
        none = np.zeros((0, width(env.observation_size, env.action_size)), np.float32)
        return Played(none, had, 0, 0)
    individual(params, cem, state, k, number, actor.theta)
    return play(params, cem, env, actor.refresh(), k, number)


def play(params: Params, cem: CEM, env: Env, actor: Policy, k: int, number: int) -> Played:
    """Play the episodes of an individual of generation k."""
    seeds = [
        noise.integer(params.config.seed, Purpose.EPISODE, k, number, i)
        for i in range(cem.fitness_episodes)
    ]
    try:
        return experience.play(env, actor, seeds)
    except Exception as error:
        error.add_note(f"in generation {k}, individual {number} (seed {params.config.seed})")
        raise


def refuse_none_finite(fitness: np.ndarray, k: int) -> None:
    """Raise NoFiniteReturn if the fitness of no individual of generation k is finite."""
    if not np.isfinite(fitness).any():
        raise NoFiniteReturn(
            f"generation {k}: the return of no individual is finite: look at the task, or lower variance_init"
        )


def tell(
    params: Params, cem: CEM, state: Distribution, world: World, k: int,
    gave: tuple[np.ndarray, np.ndarray], trained: dict[int, np.ndarray],
) -> Row:  # fmt: skip
    """Move the distribution to the elites of generation k, Eqs. (1) and (2); return a row's columns about it.

    gave: returns and lengths of the individuals, each [n]; who stays has played nothing here.
    trained: individuals that are no longer what was drawn, by number, float32 [d].
    """
    (returns, lengths), first = gave, individuals(cem)[1]
    lengths = lengths.copy()
    lengths[first : first + len(state.kept)] = state.individual_lengths[state.kept]
    fitness = evolution.shifted(returns, lengths / cem.fitness_episodes, cem.shift)
    refuse_none_finite(fitness, k)
    elites = evolution.select_winners(fitness, individuals(cem)[0])
    weights, parts = (
        rank_weights(elites.size, cem.elite_weights),
        [part for _, part in noise.blocks(params.layout.d)],
    )
    damp, mixed = damped(state.damp, cem.damp_tau, cem.damp_limit), len(state.individuals)

    def update(block: int) -> np.ndarray:
        part = parts[block]
        old = Gaussian(state.mean[part].copy(), state.variance[part].copy())

        def told_of(number: int) -> np.ndarray:
            return (
                trained[number][part]
                if number in trained
                else drawn(params, cem, state, k, number, block, part)
            )

        last = np.zeros((mixed, old.mean.size), np.float32)
        for i in range(mixed):
            last[i] = drawn(params, cem, state, k, fitness.size - mixed + i, block, part)
        new = told(old, map(told_of, elites.tolist()), weights, damp, cem.cov_extra_div)
        epsilon = (
            params.epsilon.block(k + 1, candidate(cem, i), block, part) for i in range(mixed)
        )
        ratios = [
            log_ratio(one, new, old) for one in (*last, *(sampled(new, one) for one in epsilon))
        ]
        state.mean[part], state.variance[part] = new
        state.individuals[:, part] = last
        change, spread = new.mean - old.mean, new.variance.sum(dtype=np.float64)
        return np.array(
            [
                evolution.checksum(new.mean),
                evolution.squares(new.mean),
                evolution.squares(change),
                spread,
                *ratios,
            ]
        )

    with np.errstate(
        over="ignore", invalid="ignore", divide="ignore"
    ):  # what is not finite ends the run
        squares, change, spread, *ratios = world.over_blocks(
            update, len(parts), 4 + 2 * mixed, checksum=True
        )
    if not np.isfinite([squares, spread]).all():
        raise ThetaNotFinite(
            f"generation {k}: mean or variance is not finite, the last checkpoint stands: lower variance_init"
        )
    row = {"kept": len(state.kept)} if mixed else {}
    if mixed:
        state.individual_returns = returns[-mixed:].copy()
        state.individual_lengths = lengths[-mixed:]
        stay(params, state, world, k, np.reshape(ratios, (2, mixed)))
    state.damp = damp
    state.generation = k
    return {
        **row,
        "elites": np.pad(elites, (0, individuals(cem)[0] - elites.size), constant_values=-1),
        "damp": damp,
        "mean_variance": spread / params.layout.d,
        "theta_norm": float(np.sqrt(squares)),
        "update_norm": float(np.sqrt(change)),
    }


def stay(params: Params, state: Distribution, world: World, k: int, ratios: np.ndarray) -> None:
    """Say who stays of generation k, and who joins them: one rank's decision, as logarithms differ between CPUs.

    ratios: `log_ratio` of those that nothing trained and of as many candidates, [2, m].
    """
    random = noise.generator(params.config.seed, Purpose.SELECTION, k + 1)
    chosen = (
        renewed(mix(ratios.shape[1], ratios[0], ratios[1], random), random) if world.leads else None
    )
    agreed: Mixing = world.from_root(chosen)
    state.kept, state.candidates = agreed


def count(state: Distribution, found: Experience) -> None:
    """Count a population's steps, which are its nominal ones, too: the public code's count."""
    steps = int(found.lengths.sum())
    state.counters.env_steps_population += steps
    state.counters.nominal_steps += steps
    state.counters.unstable_episodes += found.unstable
