"""Lines 11 and 26 of ESAC's Algorithm 1, by block on each node: step, pull, children."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from esac_mpi import config as configuration
from esac_mpi.algorithms import es as strategy
from esac_mpi.algorithms.esac_state import CENTRE, Now, State, sigma_of_noise, slot_sigmas
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import population
from esac_mpi.play.params import Row


@dataclass(frozen=True)
class Gradient:
    """Line 11: sum_slot weights * eps + offsets * (parent - theta_es), over members * sigma."""

    weights: np.ndarray  # float32 [slots]
    offsets: np.ndarray  # float32 [slots]
    members: int  # that enter: all; those around theta_es; not those whose epsilon was not used


# slice of a block -> room for the winners that have a child, there, float32 [born, block size]
Rebuilt = Callable[[slice], np.ndarray]
# (block, its slice, slots) -> line 11's sum and the winners' mean over these, float32 [2, size]
Adding = Callable[[int, slice, range], np.ndarray]
# (block, its slice) -> which parameters a child takes from its winner, bool [block size]
Exchange = Callable[[int, slice], np.ndarray]


def update(now: Now, shaped: np.ndarray, winners: np.ndarray, transfers: bool) -> Row:
    """Step theta_es (line 11), pull it to winners, make children (line 26), by block on each node.

    shaped: returns of the members [n]. transfers: theta_sac in place of step and pull, so that
    theta_es is the policy that won. A child that has no winner is zeros; new_population gives its
    slot theta_es.
    """
    params, state, k, world = now.params, now.state, now.k, now.world
    esac, slices = params.config.esac, [part for _, part in noise.blocks(params.layout.d)]
    born = min(len(winners), len(state.children))
    gradient, rebuilt = gradient_terms(now, shaped), room_for_rebuilt(state, born)
    chunked = len(state.partial_sums) > 0
    exchanges = [] if chunked else [exchange(now, child) for child in range(born)]
    add = make_adder(now, gradient, winners, rebuilt)
    tested = esac.transfer == "tested" and esac.transfer_moments == "reset"
    resets = transfers and tested and esac.optimiser == "adam"

    def work(block: int) -> np.ndarray:
        part = slices[block]
        theta = state.theta_es[part].copy()
        total, mean_winner = sums_of(block, part)
        total /= np.float32(gradient.members * state.sigma)  # line 11: n sigma
        step = strategy.step(now, esac, part, total)
        if resets:
            state.adam_m[part] = state.adam_v[part] = 0
        new = state.theta_sac[part].copy() if transfers else theta + step  # line 11
        if esac.winner_pull and winners.size and not transfers:  # ours: the head of esac.py
            new = evolution.pull(new, mean_winner, esac.winner_pull)
        for child, taken in enumerate(exchanges):  # line 26
            winner = rebuilt(part)[child]
            state.children[child, part] = np.where(taken(block, part), winner, new)
        state.children[born:, part] = 0
        state.theta_es[part] = new
        return movement(theta, step, new, state.theta_sac[part])

    # line 26, where the children are too many for every rank to choose for each
    def cross(child: int) -> np.ndarray:
        taken = exchange(now, child)
        for block, part in noise.blocks(params.layout.d) if child < born else ():
            winner, theta = state.rebuilt[child, part], state.theta_es[part]
            state.children[child, part] = np.where(taken(block, part), winner, theta)
        return np.zeros(1)

    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
        sums_of = population.sum_chunks(state.partial_sums, len(state.parents), add, world)
        sums = world.over_blocks(work, len(slices), 7, checksum=True)
        if chunked:
            world.over_blocks(cross, len(state.children), 1)
    strategy.check_finite(k, sums[-1])
    if resets:
        state.adam_from = k
    return movement_columns(sums)


def room_for_rebuilt(state: State, born: int) -> Rebuilt:
    """Find room for rebuilt winners: the node's, if its ranks share the slots, or a block's own."""
    if len(state.partial_sums):
        return lambda part: state.rebuilt[:born, part]
    widest = max(part.stop - part.start for _, part in noise.blocks(state.theta_es.size))
    own = np.empty((born, widest), np.float32)
    return lambda part: own[:, : part.stop - part.start]


def make_adder(now: Now, gradient: Gradient, winners: np.ndarray, room: Rebuilt) -> Adding:
    """Make the function that adds up slots: each slot's noise once, sums in slot order."""
    params, state = now.params, now.state
    esac, sigmas = params.config.esac, slot_sigmas(params.config.esac, state)
    won: dict[int, list[tuple[int, int]]] = {}  # slot -> [(place among the winners, sign)]
    for place, (slot, sign) in enumerate(population.member(esac, int(i)) for i in winners):
        won.setdefault(slot, []).append((place, sign))

    def add(block: int, part: slice, slots: range) -> np.ndarray:
        sums = np.zeros((2, part.stop - part.start), np.float32)
        (total, mean_winner), rebuilt = sums, room(part)
        for slot in slots:
            eps = now.epsilon(slot, block, part)
            parent = state.parent(slot)[part]
            total += gradient.weights[slot] * eps
            if gradient.offsets[slot]:
                total += gradient.offsets[slot] * (parent - state.theta_es[part])
            for place, sign in won.get(slot, ()):
                winner = evolution.mutated(parent, eps, sign, sigmas[slot])
                mean_winner += winner / np.float32(len(winners))
                if place < len(rebuilt):
                    rebuilt[place] = winner
        return sums

    return add


def movement(
    theta: np.ndarray, step: np.ndarray, new: np.ndarray, theta_sac: np.ndarray
) -> np.ndarray:
    """Measure a block's movement of theta_es for a row's columns, checksum first, float64 [7]."""
    towards_sac, change = theta_sac - theta, new - theta
    sums = [evolution.squares(x) for x in (theta, step, change, towards_sac, new)]
    return np.array([evolution.checksum(new), evolution.inner(change, towards_sac), *sums])


def movement_columns(sums: np.ndarray) -> Row:
    """Compute a row's columns on theta_es's movement from sums over blocks, checksum left out."""
    inner, *squares, _ = sums
    theta, step, change, towards_sac = np.sqrt(squares)
    return {
        "theta_norm": theta,
        "es_step_norm": step,
        "update_norm": change,
        "distance_to_sac": towards_sac,
        "cosine_to_sac": inner / (change * towards_sac) if change * towards_sac > 0 else np.nan,
    }


def gradient_terms(now: Now, shaped: np.ndarray) -> Gradient:
    """Weigh each slot for line 11, from the shaped returns of the members [n]."""
    state, esac = now.state, now.params.config.esac
    sigma, pairs = sigma_of_noise(esac, state), esac.sampling != "onesided"
    uses = slot_sigmas(esac, state) > 0
    displaced = (state.parents != CENTRE) & (esac.gradient != "noise")
    if esac.gradient == "displacement_clipped":
        squares = displacements(now, displaced)
        shaped = shaped * evolution.clip_to_noise(squares, now.params.layout.d)
    enters = state.parents == CENTRE if esac.gradient_members == "centre" else uses | displaced
    weights = np.where(enters & uses, evolution.slot_weights(shaped, pairs), np.float32(0))
    offsets = np.where(
        enters & displaced, evolution.slot_offsets(shaped, pairs) / np.float32(sigma), np.float32(0)
    )
    return Gradient(weights, offsets, esac.population_size * int(enters.sum()) // enters.size)


def displacements(now: Now, displaced: np.ndarray) -> np.ndarray:
    """Measure |(theta_i - theta_es) / sigma|^2 by member, 0 if not `displaced`, float64 [n]."""
    params, state, esac = now.params, now.state, now.params.config.esac
    slices, sigmas = [part for _, part in noise.blocks(params.layout.d)], slot_sigmas(esac, state)
    sigma = sigma_of_noise(esac, state)
    members = [(i, *population.member(esac, i)) for i in range(configuration.members(esac))]

    def work(block: int) -> np.ndarray:
        part, squares = slices[block], np.zeros(len(members))
        for i, slot, sign in members:
            if displaced[slot]:
                eps = now.epsilon(slot, block, part)
                offspring = evolution.mutated(state.parent(slot)[part], eps, sign, sigmas[slot])
                squares[i] = evolution.squares(offspring - state.theta_es[part]) / sigma**2
        return squares

    return now.world.over_blocks(work, len(slices), len(members))


def exchange(now: Now, child: int) -> Exchange:
    """Choose what the child takes from its winner: rows of theta, or each parameter by chance."""
    params, seed, k = now.params, now.params.config.seed, now.k
    if params.config.esac.crossover == "element":

        def by_element(block: int, part: slice) -> np.ndarray:
            random = noise.generator(seed, Purpose.CROSSOVER, k, child, 1 + block)
            return random.random(part.stop - part.start) < 0.5

        return by_element
    random = noise.generator(seed, Purpose.CROSSOVER, k, child)
    taken = evolution.exchanged_rows(random, (tensor.shape for tensor in params.layout.tensors))
    rows = params.layout.rows()

    def by_row(block: int, part: slice) -> np.ndarray:
        first = np.searchsorted(rows, part.start, "right") - 1
        last = np.searchsorted(rows, part.stop)
        edges = rows[first : last + 1].clip(part.start, part.stop)
        return np.repeat(taken[first:last], np.diff(edges))

    return by_row
