"""Lines 11 and 26 of ESAC's Algorithm 1, block by block on each node: the step of theta_es, the pull, the children."""

from dataclasses import dataclass

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import es as strategy
from esac_mpi.algorithms.esac_state import CENTRE, State, sigma_of_noise
from esac_mpi.comm.contracts import World
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import population
from esac_mpi.play.params import Params, Row


@dataclass(frozen=True)
class Gradient:
    """The sum of line 11, over slots: sum_slot weights * eps + offsets * (parent - theta_es), over members * sigma."""

    weights: np.ndarray  # float32 [slots]
    offsets: np.ndarray  # float32 [slots]
    members: int  # that enter: all; those around theta_es; not those whose epsilon was not used


@dataclass(frozen=True)
class Terms:
    """What the slots of a generation add to sums over them."""

    sigmas: np.ndarray  # float64 [slots]
    gradient: Gradient
    won: dict[int, list[tuple[int, int]]]  # slot -> [(place among the winners, sign)]
    winners: int


def update(
    params: Params,
    state: State,
    k: int,
    sigmas: np.ndarray,
    gradient: Gradient,
    winners: np.ndarray,
    adopted: bool,
    world: World,
) -> Row:
    """Step theta_es (line 11), pull it towards the winners, make their children (line 26): block by block, on each node.

    adopted: theta_sac in place of step and pull, so that theta_es is the policy that won. A child that has no winner is zeros;
    new_population gives its slot theta_es.
    """
    esac, slices = params.config.esac, [part for _, part in noise.blocks(params.layout.d)]
    rows = params.layout.rows()
    born = min(len(winners), len(state.children))

    won: dict[int, list[tuple[int, int]]] = {}  # slot -> [(place among the winners, sign)]
    for place, (slot, sign) in enumerate(population.member(esac, int(i)) for i in winners):
        won.setdefault(slot, []).append((place, sign))
    terms, chunked = Terms(sigmas, gradient, won, len(winners)), len(state.partial_sums) > 0
    room = 0 if chunked else max(part.stop - part.start for part in slices)
    own = np.empty((born, room), np.float32)
    taken = [] if chunked else [taken_rows(params, k, child) for child in range(born)]

    def rebuilt(part: slice) -> np.ndarray:  # winners that have a child, [children, block size]
        return state.rebuilt[:, part] if chunked else own[:, : part.stop - part.start]

    def add(block: int, part: slice, slots: range) -> np.ndarray:
        return over_slots(params, state, k, (block, part, slots), terms, rebuilt(part)[:born])

    resets = adopted and (esac.adoption, esac.adoption_moments, esac.optimiser) == (
        "tested",
        "reset",
        "adam",
    )

    def work(block: int) -> np.ndarray:
        part = slices[block]
        theta = state.theta_es[part].copy()
        total, mean_winner = sums_of(block, part)
        total /= np.float32(gradient.members * state.sigma)
        step = strategy.step(
            esac, theta, total, state.adam_m[part], state.adam_v[part], k - state.adam_from
        )
        if resets:
            state.adam_m[part] = state.adam_v[part] = 0
        new = state.theta_sac[part].copy() if adopted else theta + step  # line 11
        if esac.winner_pull and winners.size and not adopted:
            new = evolution.pull(new, mean_winner, esac.winner_pull)
        for child, choice in enumerate(taken):  # line 26
            exchanged = exchanged_parameters(params, k, child, block, part, choice, rows)
            state.children[child, part] = evolution.crossover(rebuilt(part)[child], new, exchanged)
        state.children[born:, part] = 0
        state.theta_es[part] = new
        return movement(theta, step, new, state.theta_sac[part])

    def cross(
        child: int,
    ) -> np.ndarray:  # line 26, where the children are too many for every rank to choose for each
        choice = taken_rows(params, k, child)
        for block, part in noise.blocks(params.layout.d) if child < born else ():
            exchanged = exchanged_parameters(params, k, child, block, part, choice, rows)
            winner = state.rebuilt[child, part]
            state.children[child, part] = evolution.crossover(
                winner, state.theta_es[part], exchanged
            )
        return np.zeros(1)

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        sums_of = population.sum_chunks(state.partial_sums, sigmas.size, add, world)
        sums = world.over_blocks(work, len(slices), 7, checksum=True)
        if chunked:
            world.over_blocks(cross, len(state.children), 1)
    strategy.check_finite(k, sums[-1])
    if resets:
        state.adam_from = k
    return moved(sums)


def over_slots(
    params: Params,
    state: State,
    k: int,
    piece: tuple[int, slice, range],
    terms: Terms,
    rebuilt: np.ndarray,
) -> np.ndarray:
    """Return line 11's sum and the winners' mean over some slots, of a block: float32 [2, block size].

    piece: block, its slice, slots. rebuilt: float32 [children, block size], gets those winners of the slots that have a child.
    Each slot's noise is made once for all three; sums are in the order of the slots.
    """
    block, part, slots = piece
    sums = np.zeros((2, part.stop - part.start), np.float32)
    total, mean_winner = sums
    for slot in slots:
        eps = params.epsilon.block(k, slot, block, part)
        total += terms.gradient.weights[slot] * eps
        if terms.gradient.offsets[slot]:
            total += terms.gradient.offsets[slot] * (
                state.parent(slot)[part] - state.theta_es[part]
            )
        for place, sign in terms.won.get(slot, ()):
            winner = evolution.mutated(state.parent(slot)[part], eps, sign, terms.sigmas[slot])
            mean_winner += winner / np.float32(terms.winners)
            if place < len(rebuilt):
                rebuilt[place] = winner
    return sums


def movement(
    theta: np.ndarray, step: np.ndarray, new: np.ndarray, theta_sac: np.ndarray
) -> np.ndarray:
    """Return a block's part of a row's columns about the movement of theta_es, its checksum first, float64 [7]."""
    towards_sac, change = theta_sac - theta, new - theta
    sums = [evolution.squares(x) for x in (theta, step, change, towards_sac, new)]
    return np.array([evolution.checksum(new), evolution.inner(change, towards_sac), *sums])


def moved(sums: np.ndarray) -> Row:
    """Return a row's columns about the movement of theta_es, from the sums over its blocks without the checksum."""
    inner, *squares, _ = sums
    theta, step, change, towards_sac = np.sqrt(squares)
    return {
        "theta_norm": theta,
        "es_step_norm": step,
        "update_norm": change,
        "distance_to_sac": towards_sac,
        "cosine_to_sac": inner / (change * towards_sac) if change * towards_sac > 0 else np.nan,
    }


def gradient_terms(
    params: Params, state: State, k: int, sigmas: np.ndarray, shaped: np.ndarray, world: World
) -> Gradient:
    """Return what each slot adds to line 11, from the shaped returns of the members [n]."""
    esac, pairs, sigma = (
        params.config.esac,
        params.config.esac.sampling != "onesided",
        sigma_of_noise(params.config.esac, state),
    )
    uses = sigmas > 0
    displaced = (state.parents != CENTRE) & (esac.gradient != "noise")
    if esac.gradient == "displacement_clipped":
        squares = displacements(params, state, k, sigmas, displaced, world)
        shaped = shaped * evolution.clipped_to_noise(squares, params.layout.d)
    enters = state.parents == CENTRE if esac.gradient_members == "centre" else uses | displaced
    weights = np.where(enters & uses, evolution.slot_weights(shaped, pairs), np.float32(0))
    offsets = np.where(
        enters & displaced, evolution.slot_offsets(shaped, pairs) / np.float32(sigma), np.float32(0)
    )
    return Gradient(weights, offsets, esac.population_size * int(enters.sum()) // enters.size)


def displacements(
    params: Params, state: State, k: int, sigmas: np.ndarray, displaced: np.ndarray, world: World
) -> np.ndarray:
    """Return |(theta_i - theta_es) / sigma|^2 of the members of the `displaced` slots, 0 of the others, float64 [n]."""
    esac, slices = params.config.esac, [part for _, part in noise.blocks(params.layout.d)]
    sigma = sigma_of_noise(esac, state)
    members = [(i, *population.member(esac, i)) for i in range(configuration.members(esac))]

    def work(block: int) -> np.ndarray:
        part, squares = slices[block], np.zeros(len(members))
        for i, slot, sign in members:
            if displaced[slot]:
                eps = params.epsilon.block(k, slot, block, part)
                offspring = evolution.mutated(state.parent(slot)[part], eps, sign, sigmas[slot])
                squares[i] = evolution.squares(offspring - state.theta_es[part]) / sigma**2
        return squares

    return world.over_blocks(work, len(slices), len(members))


def taken_rows(params: Params, k: int, child: int) -> np.ndarray:
    """Return which rows of theta the child takes from its winner, bool [rows]."""
    random = noise.generator(params.config.seed, Purpose.CROSSOVER, k, child)
    return evolution.exchanged_rows(random, (tensor.shape for tensor in params.layout.tensors))


def exchanged_parameters(
    params: Params,
    k: int,
    child: int,
    block: int,
    part: slice,
    choice: np.ndarray,
    rows: np.ndarray,
) -> np.ndarray:
    """Return which parameters of a block the child takes from its winner, bool [block size].

    choice: which rows, bool [rows]; or each parameter by chance. rows: their boundaries, [rows + 1].
    """
    if params.config.esac.crossover == "element":
        random = noise.generator(params.config.seed, Purpose.CROSSOVER, k, child, 1 + block)
        return random.random(part.stop - part.start) < 0.5
    return expanded(choice, rows, part)


def expanded(taken: np.ndarray, rows: np.ndarray, part: slice) -> np.ndarray:
    """Expand a choice of rows [rows] with boundaries [rows + 1] to the parameters of a block, bool [block size]."""
    first, last = np.searchsorted(rows, part.start, "right") - 1, np.searchsorted(rows, part.stop)
    edges = rows[first : last + 1].clip(part.start, part.stop)
    return np.repeat(taken[first:last], np.diff(edges))
