"""Evolution strategies: lines 5-11 of ESAC's Algorithm 1 alone.

Source: Salimans et al. 2017, Evolution Strategies as a Scalable Alternative to Reinforcement
Learning (OpenAI-ES): mirrored sampling, centred ranks, Adam. The gradient is
1/(n sigma) sum_i F_i eps_i, as in the text; their code leaves 1/sigma out, which matters for SGD
and weight decay alone. What their text, blog or code has beside this is a field of
`config.Evolution`: other shapings of F_i, weight decay, noise on actions, truncated episodes, SGD,
normalised observations. By default, and not in theirs, the members of a pair begin in the same
state, fitness leaves out the bonus for survival, policies have a linear path, and noise on the
weights of observations that are not standardised is scaled.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from esac_mpi.algorithms.declaration import Declaration
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.config import ES, Evolution, slots
from esac_mpi.envs import Env
from esac_mpi.operators import evolution, noise
from esac_mpi.play import population
from esac_mpi.play.params import Generation, Params, Row
from esac_mpi.play.population import Evolving, Population, Trials, evaluate_population
from esac_mpi.play.rollout import Board, refuse_not_finite

CENTRE_EVERY = 5  # when theta_es itself is played, for the one-fifth rule [generations]
CENTRE_EPISODES = 5  # of it then [episodes]

DECLARES = Declaration(
    discrete=True,
    evolution=lambda config: config.es,
    work="members",
    policies={"theta_es": "theta_es"},
)


@dataclass
class State(Evolving):
    """All that changes, equal on every rank or shared by the node."""


Now: TypeAlias = Generation[State, None]


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation."""
    es = params.config.es
    if centre_episodes(es, CENTRE_EVERY):
        world.reserve(*population.board(params, es, CENTRE_EPISODES)[:2])
    return State(**population.initial(params, es, world, 1))


def board(params: Params) -> Board:
    """Return the shape of a generation's board: its members' results."""
    return population.board(params, params.config.es)


def generation(
    params: Params, state: State, world: World, env: Env, learner: None = None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    es, k = params.config.es, state.generation + 1
    scale = population.noise_scale(params, es, state.noise_sums, k)
    now: Now = Generation(params, state, world, env, learner, k, scale)
    laps = Laps(world.clock)
    found = evaluate(now)  # lines 5-8
    sigma = adapt_sigma(now, found)
    shaped = evolution.shaped(es.fitness_shaping, found.fitness, found.sign_return)  # line 9
    laps("evaluate")
    weights = evolution.slot_weights(shaped, es.sampling != "onesided")
    theta_norm, update_norm = ascend(now, weights)  # line 11
    if es.observation_normalisation:
        state.observation_sums += found.observation_sums
    population.count(now, es, found)
    row = {
        "fitness": found.returns,
        "length": found.length,
        "length_cap": found.cap,
        "sigma": state.sigma,
        "theta_norm": theta_norm,
        "update_norm": update_norm,
    }
    laps("update")
    state.sigma = sigma
    timing = {**found.timing, **laps.seconds}
    if es.sigma_rule == "one_fifth":
        none = np.full(CENTRE_EPISODES, np.nan)
        row["trial_theta_es"] = found.trials[0] if found.trials.size else none
        timing["trial_seconds"] = found.trial_seconds if found.trials.size else none
    return row, timing


def evaluate(now: Now) -> Population:
    """Evaluate the population, and for the one-fifth rule now and then theta_es itself."""
    es, state = now.params.config.es, now.state
    centre = Trials((state.theta_es,), centre_episodes(es, now.k))
    return evaluate_population(now, es, np.full(slots(es), state.sigma), trials=centre)


def adapt_sigma(now: Now, found: Population) -> float:
    """Compute the next sigma by the one-fifth rule, on one rank, as exponentials differ by CPU."""
    es, sigma, world = now.params.config.es, now.state.sigma, now.world
    if not found.trials.size:
        return sigma
    new = None
    if world.leads:
        new = evolution.adapt_sigma(sigma, es.sigma, found.returns, found.trials[0])
    return world.from_root(new)


def ascend(now: Now, weights: np.ndarray) -> tuple[float, float]:
    """Step theta_es up the gradient, by block on each node; return its norm before and the step's.

    weights: of each slot's noise, float32 [slots].
    """
    params, state, k, world = now.params, now.state, now.k, now.world
    es, slices = params.config.es, [part for _, part in noise.blocks(params.layout.d)]

    def add(block: int, part: slice, slots: range) -> np.ndarray:
        total = np.zeros((1, part.stop - part.start), np.float32)
        for slot in slots:
            total[0] += weights[slot] * now.epsilon(slot, block, part)
        return total

    def update(block: int) -> np.ndarray:
        part = slices[block]
        theta = state.theta_es[part].copy()
        gradient = over_slots(block, part)[0]
        gradient /= np.float32(es.population_size * state.sigma)
        change = step(now, es, part, gradient)
        new = state.theta_es[part] = theta + change
        squares = (evolution.squares(x) for x in (theta, change, new))
        return np.array([evolution.checksum(new), *squares])

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        over_slots = population.sum_chunks(state.partial_sums, weights.size, add, world)
        before, change, after = world.over_blocks(update, len(slices), 4, checksum=True)
    check_finite(k, after)
    return np.sqrt(before), np.sqrt(change)


def centre_episodes(es: ES, k: int) -> int:
    """Count the episodes of theta_es itself that are played beside generation k's population."""
    return CENTRE_EPISODES if es.sigma_rule == "one_fifth" and k % CENTRE_EVERY == 0 else 0


def step(
    now: Generation[Evolving, object], es: Evolution, part: slice, gradient: np.ndarray
) -> np.ndarray:
    """Step theta_es[part] up the gradient less weight decay; Adam's moments change. float32."""
    state = now.state
    ascent = gradient - np.float32(es.weight_decay) * state.theta_es[part]
    if es.optimiser == "sgd":  # Algorithm 1, line 11, as printed
        return np.float32(es.lr_es) * ascent
    m, v, k = state.adam_m[part], state.adam_v[part], now.k - state.adam_from
    change = evolution.adam_step(ascent, m, v, k, es.lr_es)
    return change if now.scale is None else change * now.scale[part]


def check_finite(k: int, squares: float) -> None:
    """Raise ThetaNotFinite, on all ranks, unless theta_es's sum of squares is finite."""
    refuse_not_finite(k, "theta_es", "lr_es, weight_decay or sigma", squares)
