"""Evolution strategies: lines 5-11 of ESAC's Algorithm 1 alone.

Source: Salimans et al. 2017, Evolution Strategies as a Scalable Alternative to Reinforcement Learning (OpenAI-ES): mirrored
sampling, centred ranks, Adam. The gradient is 1/(n sigma) sum_i F_i eps_i, as in the text; their code leaves 1/sigma out,
which matters for SGD and weight decay alone. What their text, blog or code has beside this is a field of `config.Evolution`:
other shapings of F_i, weight decay, noise on actions, truncated episodes, SGD, normalised observations.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, nobody, none
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.config import ES, Evolution, slots
from esac_mpi.envs import Env
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play import population
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.params import THETA_ES, Params, Row
from esac_mpi.play.population import Trials, evaluate_population
from esac_mpi.play.rollout import Board, ThetaNotFinite
from esac_mpi.play.warm_start_fields import ADAM, OBSERVATIONS, TUNING

CENTRE_EVERY = 5  # when theta_es itself is played, for the one-fifth rule [generations]
CENTRE_EPISODES = 5  # of it then [episodes]

DECLARES = Declaration(
    learning=None,
    discrete=True,
    evolution=lambda config: config.es,
    work="members",
    policies={"theta_es": "theta_es"},
    apart=False,
    fitness="fitness",
    operators=none,
    output=None,
    head_scale=1.0,
    offspring=nobody,
)


@dataclass
class State:
    """All that changes, equal on every rank or shared by the node."""

    theta_es: np.ndarray = field(metadata={"shared": True})  # float32 [d]
    adam_m: np.ndarray = field(metadata={"shared": True, "part": ADAM})  # float32 [d]
    adam_v: np.ndarray = field(metadata={"shared": True, "part": ADAM})  # float32 [d]
    observation_sums: np.ndarray = field(  # float64 [3, observation]: count, sum, sum of squares
        metadata={"later": True, "part": OBSERVATIONS}
    )
    partial_sums: np.ndarray = (
        field(  # float32 [chunks of slots, 1, d], of line 11; none where there is one chunk
            metadata={"shared": True, "scratch": True}
        )
    )
    sigma: float = field(metadata={"later": True, "part": TUNING})  # of the next generation
    mean_length: float = 0.0  # running mean of the population's episodes [steps]
    adam_from: int = field(
        default=0, metadata={"part": ADAM, "generation": True}
    )  # generation after which the moments began
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
        return Normaliser.of(self.observation_sums)


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation."""
    theta = params.initial(THETA_ES)
    zeros = np.zeros_like(theta)
    sums = np.zeros((3, params.layout.sizes[0]))
    es = params.config.es
    if centre_episodes(es, CENTRE_EVERY):
        with_centre = population.board(params, es, CENTRE_EPISODES)
        world.reserve(with_centre.rows, with_centre.columns)
    partial_sums = population.partial_sums(params, es, world, 1)
    vectors = world.share(theta), world.share(zeros), world.share(zeros)
    return State(*vectors, sums, partial_sums, es.sigma)


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its members' results."""
    return population.board(params, params.config.es)


def generation(
    params: Params, state: State, world: World, env: Env, learner: None = None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    es, k, start = params.config.es, state.generation + 1, world.clock()
    cap, sigmas = population.length_cap(es, state.mean_length), np.full(slots(es), state.sigma)
    centre = Trials((state.theta_es,), centre_episodes(es, k))
    found = evaluate_population(
        params,
        es,
        k,
        sigmas,
        lambda slot: state.theta_es,
        world,
        env,
        cap,
        state.normaliser,
        trials=centre,
    )  # lines 5-8
    sigma = state.sigma
    if centre.count:
        new = (
            evolution.adapted(sigma, es.sigma, found.returns, found.trials[0])
            if world.leads
            else None
        )
        sigma = world.from_root(new)
    shaped = evolution.shaped(es.fitness_shaping, found.fitness, found.sign_return)  # line 9
    weights = evolution.slot_weights(shaped, es.sampling != "onesided")
    evaluated = world.clock()

    def add(block: int, part: slice, slots: range) -> np.ndarray:
        total = np.zeros((1, part.stop - part.start), np.float32)
        for slot in slots:
            total[0] += weights[slot] * params.epsilon.block(k, slot, block, part)
        return total

    def update(block: int) -> np.ndarray:  # line 11
        part = slices[block]
        theta = state.theta_es[part].copy()
        gradient = over_slots(block, part)[0]
        gradient /= np.float32(es.population_size * state.sigma)
        change = step(
            es, theta, gradient, state.adam_m[part], state.adam_v[part], k - state.adam_from
        )
        new = state.theta_es[part] = theta + change
        return np.array(
            [evolution.checksum(new), *(evolution.squares(x) for x in (theta, change, new))]
        )

    slices = [part for _, part in noise.blocks(params.layout.d)]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        over_slots = population.sum_chunks(state.partial_sums, weights.size, add, world)
        theta_squares, change_squares, new_squares = world.over_blocks(
            update, len(slices), 4, checksum=True
        )
    check_finite(k, new_squares)
    state.generation = k
    if es.observation_normalisation:
        state.observation_sums += found.observation_sums
    state.mean_length = population.mean_length(es, state.mean_length, found)
    population.count(state.counters, found, params.horizon)
    row = {
        "fitness": found.returns,
        "length": found.length,
        "length_cap": found.cap,
        "sigma": state.sigma,
        "theta_norm": np.sqrt(theta_squares),
        "update_norm": np.sqrt(change_squares),
    }
    updated = world.clock()
    seconds: Row = {"seconds_evaluate": evaluated - start, "seconds_update": updated - evaluated}
    state.sigma = sigma
    if es.sigma_rule == "one_fifth":
        none = np.full(CENTRE_EPISODES, np.nan)
        row["trial_theta_es"] = found.trials[0] if centre.count else none
        seconds["trial_seconds"] = found.trial_seconds if centre.count else none
    return row, {**found.timing, **seconds}


def centre_episodes(es: ES, k: int) -> int:
    """Return how many episodes of theta_es itself are played beside generation k's population."""
    return CENTRE_EPISODES if es.sigma_rule == "one_fifth" and k % CENTRE_EVERY == 0 else 0


def step(
    es: Evolution, theta: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, k: int
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
