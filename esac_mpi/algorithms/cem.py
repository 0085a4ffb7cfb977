"""CEM, the cross-entropy method: a normal distribution of actors, drawn to its best samples.

Sources: Pourchot and Sigaud 2019, CEM-RL: Combining Evolutionary and Gradient-Based Methods for
Policy Search, of which this is the half without gradients (cem_rl.py adds them); Lee et al. 2020
(AES-RL), Eqs. (1) and (2). The covariance is diagonal. No individual's parameters travel: any rank
makes any of them from mean, variance and the address of its epsilon.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from esac_mpi.algorithms.declaration import Declaration
from esac_mpi.algorithms.laps import Laps
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
    refit,
    replace_one,
    sample,
    slot_and_sign,
)
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Policy
from esac_mpi.play import experience
from esac_mpi.play.counters import Progress
from esac_mpi.play.experience import Crew, Experience, Played
from esac_mpi.play.marks import ANEW, DAMP, VARIANCE, mark, policy
from esac_mpi.play.params import THETA_ES, Generation, Params, Row, make_actor
from esac_mpi.play.rollout import Board, note_origin, refuse_no_return, refuse_not_finite
from esac_mpi.play.transitions import width

DECLARES = Declaration(
    discrete=True,
    work="episodes",
    policies={"mean": "the mean of the distribution"},
    output="tanh",
)


@dataclass
class State(Progress):
    """All that changes, equal on every rank or shared by the node."""

    mean: np.ndarray = field(metadata=policy("mean"))  # float32 [d]
    variance: np.ndarray = field(metadata=mark(shared=True, part=VARIANCE))  # float32 [d]
    damp: float = field(metadata=mark(part=DAMP))  # epsilon of Eq. (2), the last generation's
    # Of the last generation, those that nothing trained; m = 0 without importance mixing.
    individuals: np.ndarray = field(metadata=mark(shared=True, part=ANEW))  # float32 [m, d]
    individual_returns: np.ndarray = field(metadata=mark(part=ANEW))  # float64 [m] theirs
    # int64 [m] steps of all episodes of each
    individual_lengths: np.ndarray = field(metadata=mark(part=ANEW, later=True))
    # int64 [c] which of them stay in the next generation, the first that nothing trains there
    kept: np.ndarray = field(metadata=mark(part=ANEW))
    # int64 [m - c] which candidates come after them
    candidates: np.ndarray = field(metadata=mark(part=ANEW))

    def compare_no_more(self, another_task: bool = False) -> None:
        """Let nobody stay whose fitness is that of another task."""
        if another_task:
            self.kept, self.candidates = self.kept[:0], np.arange(len(self.individuals))


Now = Generation[State, Any]  # CEM-RL's has a learner


def options_of(params: Params) -> CEM:
    """Look up the table of the algorithm that runs: CEM-RL's is one of CEM, too."""
    own = params.config.own
    assert isinstance(own, CEM)
    return own


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation."""
    return State(**initial(params, world))


def initial(params: Params, world: Memory) -> dict[str, Any]:
    """Make a state's distribution at the start; under importance mixing nobody stays."""
    cem, mean = options_of(params), params.initial(THETA_ES)
    m = cem.population_size - individuals(cem)[1] if cem.importance_mixing else 0
    return {
        "mean": world.share(mean),
        "variance": world.share(np.full_like(mean, cem.variance_init)),
        "damp": cem.damp,
        "individuals": world.shared((m, params.layout.d)),
        "individual_returns": np.zeros(m),
        "individual_lengths": np.zeros(m, np.int64),
        "kept": np.zeros(0, np.int64),
        "candidates": np.arange(m),
    }


def board(params: Params) -> Board:
    """Return the shape of a generation's board: its individuals' results."""
    return Crew(params.config.cem.population_size).board


def generation(
    params: Params, state: State, world: World, env: Env, learner: None = None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    now = Now(params, state, world, env, learner, state.generation + 1)
    cem, laps, actor = params.config.cem, Laps(world.clock), make_actor(params)
    crew, playing = Crew(cem.population_size), partial(play_drawn, now, actor)
    found = experience.gather(world, crew, playing, expected_times(cem, state))
    laps("evaluate")
    row = update(now, (found.returns, found.lengths), {})
    count(state, found)
    laps("update")
    row |= {"fitness": found.returns, "length": found.lengths}
    return row, {**found.timing, **laps.seconds}


def is_kept(cem: CEM, state: State, number: int) -> bool:
    """Tell whether an individual of the next generation is one that importance mixing kept."""
    return 0 <= number - individuals(cem)[1] < len(state.kept)


def expected_times(cem: CEM, state: State) -> np.ndarray:
    """Estimate times of the next individuals for scheduling, 0 for a kept one, float64 [n]."""
    return np.array([float(not is_kept(cem, state, i)) for i in range(cem.population_size)])


def write_individual(now: Now, number: int, out: np.ndarray) -> np.ndarray:
    """Write an individual, float32 [d], into `out`; return it."""
    for block, part in noise.blocks(now.params.layout.d):
        out[part] = draw(now, number, block, part)
    return out


def draw(now: Now, number: int, block: int, part: slice) -> np.ndarray:
    """Draw a block of an individual, float32 [size]."""
    cem, state = options_of(now.params), now.state
    place, sign = number - individuals(cem)[1], 1
    if is_kept(cem, state, number):
        return state.individuals[state.kept[place], part]
    if not cem.importance_mixing:
        slot, sign = slot_and_sign(number, cem.population_size, cem.sampling == "mirrored")
    elif place < 0:
        slot = number
    else:
        slot = address_of(cem, int(state.candidates[place - len(state.kept)]))
    epsilon = now.params.epsilon.block(now.k, slot, block, part)
    return sample(Gaussian(state.mean[part], state.variance[part]), epsilon, sign)


def address_of(cem: CEM, number: int) -> int:
    """Return the number of a candidate's noise, after those of individuals that gradients train."""
    return individuals(cem)[1] + number


def play_drawn(now: Now, actor: Policy, number: int) -> Played:
    """Play an individual's episodes as it was drawn; who stays has its return, and plays none."""
    cem, state, env = options_of(now.params), now.state, now.env
    if is_kept(cem, state, number):
        had = float(state.individual_returns[state.kept[number - individuals(cem)[1]]])
        none = np.zeros((0, width(env.observation_size, env.action_size)), np.float32)
        return Played(none, had, 0, 0)
    write_individual(now, number, actor.theta)
    return play(now, actor.refresh(), number)


def play(now: Now, actor: Policy, number: int) -> Played:
    """Play the episodes of an individual."""
    seed, k = now.params.config.seed, now.k
    episodes = range(options_of(now.params).fitness_episodes)
    seeds = [noise.integer(seed, Purpose.EPISODE, k, number, i) for i in episodes]
    with note_origin(f"in generation {k}, individual {number} (seed {seed})"):
        return experience.play(now.env, actor, seeds)


def update(now: Now, gave: tuple[np.ndarray, np.ndarray], trained: dict[int, np.ndarray]) -> Row:
    """Move the distribution to the elites, Eqs. (1) and (2); return a row's columns about it.

    gave: returns and lengths of the individuals, each [n]; who stays has played nothing here.
    trained: individuals that are no longer what was drawn, by number, float32 [d].
    """
    state, k, cem = now.state, now.k, options_of(now.params)
    returns, lengths, first = gave[0], gave[1].copy(), individuals(cem)[1]
    # of the episodes that earned a kept one's return
    lengths[first : first + len(state.kept)] = state.individual_lengths[state.kept]
    fitness = evolution.shifted(returns, lengths / cem.fitness_episodes, cem.shift)
    refuse_no_return(k, fitness, "individual", "variance_init")
    elites = evolution.select_winners(fitness, individuals(cem)[0])
    damp = damped(state.damp, cem.damp_tau, cem.damp_limit)
    squares, change, spread, *ratios = move(now, elites, damp, trained)
    refuse_not_finite(k, "mean or variance", "variance_init", squares, spread)
    mixed = len(state.individuals)
    row: Row = {"kept": len(state.kept)} if mixed else {}
    if mixed:
        state.individual_returns = returns[-mixed:].copy()
        state.individual_lengths = lengths[-mixed:]
        select(now, np.reshape(ratios, (2, mixed)))
    state.damp = damp
    state.generation = k
    return {
        **row,
        "elites": np.pad(elites, (0, individuals(cem)[0] - elites.size), constant_values=-1),
        "damp": damp,
        "mean_variance": spread / now.params.layout.d,
        "theta_norm": float(np.sqrt(squares)),
        "update_norm": float(np.sqrt(change)),
    }


def move(now: Now, elites: np.ndarray, damp: float, trained: dict[int, np.ndarray]) -> np.ndarray:
    """Move mean and variance, by block on each node; return sums over the blocks, float64.

    They are of the mean's square, its step's square, the variance, and under importance mixing the
    log ratios of the last individuals that nothing trained, then of as many candidates.
    """
    params, state, k, cem = now.params, now.state, now.k, options_of(now.params)
    weights = rank_weights(elites.size, cem.elite_weights)
    parts = [part for _, part in noise.blocks(params.layout.d)]
    mixed = len(state.individuals)

    def update(block: int) -> np.ndarray:
        part = parts[block]
        old = Gaussian(state.mean[part].copy(), state.variance[part].copy())

        def elite(number: int) -> np.ndarray:
            if number in trained:
                return trained[number][part]
            return draw(now, number, block, part)

        last = np.zeros((mixed, old.mean.size), np.float32)
        for i in range(mixed):
            last[i] = draw(now, cem.population_size - mixed + i, block, part)
        new = refit(old, map(elite, elites.tolist()), weights, damp, cem.cov_extra_div)
        epsilon = (
            params.epsilon.block(k + 1, address_of(cem, i), block, part) for i in range(mixed)
        )
        coming = (sample(new, one) for one in epsilon)
        ratios = [log_ratio(one, new, old) for one in (*last, *coming)]
        state.mean[part], state.variance[part] = new
        state.individuals[:, part] = last
        squares = [evolution.squares(x) for x in (new.mean, new.mean - old.mean)]
        spread = new.variance.sum(dtype=np.float64)
        return np.array([evolution.checksum(new.mean), *squares, spread, *ratios])

    # what is not finite ends the run
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return now.world.over_blocks(update, len(parts), 4 + 2 * mixed, checksum=True)


def select(now: Now, ratios: np.ndarray) -> None:
    """Select who stays and who joins, on one rank, as logarithms differ between CPUs.

    ratios: `log_ratio` of those that nothing trained and of as many candidates, [2, m].
    """
    chosen = None
    if now.world.leads:
        random = noise.generator(now.params.config.seed, Purpose.SELECTION, now.k + 1)
        chosen = replace_one(mix(ratios.shape[1], ratios[0], ratios[1], random), random)
    agreed: Mixing = now.world.from_root(chosen)
    now.state.kept, now.state.candidates = agreed


def count(state: State, found: Experience) -> None:
    """Count a population's steps, which are its nominal ones, too: the public code's count."""
    steps = int(found.lengths.sum())
    state.counters.env_steps_population += steps
    state.counters.nominal_steps += steps
    state.counters.unstable_episodes += found.unstable
