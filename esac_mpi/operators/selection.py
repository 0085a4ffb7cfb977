"""Who lives on, who is replaced, and by whose children: ERL's selection and PDERL's parents.

Sources: ERL (Khadka and Tumer 2018), PDERL (Bodnar et al. 2020) and their public code. Slots and
candidates are indices, without vectors; a value that is not finite ranks last. Where we differ from
the public code:

- It makes the number of selected slots even by one that stands twice, and that of free slots
  likewise, so that one child is written over by another. Here nothing stands twice, and the second
  child of a last, odd pair is thrown away.
- A selected slot that must take an elite's copy, because no free one is left, counts as discarded:
  there it counts as selected.
- It pairs a copy of an elite with that elite, and a slot that stands twice with itself. Here a pair
  that is distilled has two networks; an n-point crossover may draw an elite twice, as there.
- It looks an elite's fitness up at the slot of its copy, where that of the network stands that was
  replaced (`stale`).
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from esac_mpi.config.genetic import TOURNAMENT
from esac_mpi.operators.evolution import or_least, worst_for_not_finite


class Selection(NamedTuple):
    """What a generation's selection says of the slots. All int64."""

    # [elites] best first; they stay, but where another's copy comes; mutated like others
    elites: np.ndarray
    selected: np.ndarray  # winners of tournaments, distinct, ascending; elites may be among them
    copies: np.ndarray  # [elites] the slot that takes a copy of each elite, which is not mutated
    free: np.ndarray  # where children go, in random order


class Fate(IntEnum):
    """What a selection makes of a network. Values are recorded: never renumber."""

    ELITE = 0
    SELECTED = 1
    DISCARDED = 2


class Kind(IntEnum):
    """Where the network of a slot comes from."""

    KEPT = 0  # itself
    COPY = 1  # its first parent
    CHILD = 2  # both its parents


class Births(NamedTuple):
    """What becomes of each slot, in terms of the population that was selected from. All [k]."""

    kind: np.ndarray  # Kind
    first: np.ndarray  # slot of the first parent: its own where KEPT
    second: np.ndarray  # slot of the second parent of a CHILD, else -1
    pair: np.ndarray  # number of the crossover that a CHILD comes from, else -1
    which: np.ndarray  # of an n-point crossover's two children: 0 or 1
    mutated: np.ndarray  # bool


class Candidates(NamedTuple):
    """Who may be a parent of distilled children."""

    origins: np.ndarray  # int64 [m] slots
    scores: np.ndarray  # float64 [m] what counts as their fitness


def order(fitness: np.ndarray) -> np.ndarray:
    """Return the slots of `fitness` [k] from best to worst, int64 [k]; ties by slot."""
    return np.argsort(-or_least(fitness), kind="stable")


def select(fitness: np.ndarray, elites: int, random: np.random.Generator) -> Selection:
    """Select by `fitness` [k]: the best are elites, winners of k - elites tournaments are selected.

    A tournament draws slots with replacement. An elite's copy goes to a free slot, and where none
    is left to a selected one, which is selected no more: at most half of k can be elites.
    """
    k, ranking = len(fitness), order(fitness)
    best = ranking[:elites]
    selected = np.unique(ranking[random.integers(k, size=(k - elites, TOURNAMENT)).min(axis=1)])
    free = random.permutation(np.setdiff1d(np.arange(k), np.union1d(best, selected)))
    taken = max(elites - len(free), 0)
    copies = np.concatenate([free[:elites], selected[:taken]])
    return Selection(best, selected[taken:], copies, free[elites:])


def fate(selection: Selection, slot: int) -> Fate:
    """Tell what becomes of a slot's network. PDERL's Table 2 counts this of the learner's actor."""
    if slot in selection.elites:
        return Fate.ELITE
    return Fate.SELECTED if slot in selection.selected else Fate.DISCARDED


def births_n_point(
    selection: Selection, k: int, probability: float, random: np.random.Generator
) -> Births:
    """Plan a generation of k by n-point crossover; all but copies mutate with `probability`.

    Two free slots after one another have a random elite and a random selected slot as parents.
    """
    free = len(selection.free)
    pairs = (free + 1) // 2
    first = random.choice(selection.elites, pairs)
    second = random.choice(selection.selected, pairs)
    pair, which = np.divmod(np.arange(free), 2)
    children = first[pair], second[pair], pair, which
    return _births(selection, k, children, probability, random)


def births_distilled(
    selection: Selection,
    parents: np.ndarray,
    k: int,
    probability: float,
    random: np.random.Generator,
) -> Births:
    """Plan a generation of k by distilled children; all but copies mutate with `probability`.

    The free slots in their order take the couples of `parents` [p, 2] in theirs, and begin again
    when there are no more. With no couple, where one network alone was selected, they take that
    network.
    """
    child = np.arange(len(selection.free))
    if len(parents):
        first, second = parents[child % len(parents)].T
        return _births(selection, k, (first, second, child, 0), probability, random)
    births = _births(selection, k, (selection.elites[0], -1, -1, 0), probability, random)
    births.kind[selection.free] = Kind.COPY
    return births


def _births(
    selection: Selection,
    k: int,
    children: tuple[np.ndarray | int, ...],
    probability: float,
    random: np.random.Generator,
) -> Births:
    """Plan births: free slots take children, elites are copied, all others stay; then who mutates.

    children: first and second parent, pair and which, of each free slot or of all.
    """
    kind = np.full(k, Kind.KEPT)
    first = np.arange(k)
    second, pair = np.full((2, k), -1)
    which = np.zeros(k, np.int64)
    free, copies = selection.free, selection.copies
    kind[free] = Kind.CHILD
    first[free], second[free], pair[free], which[free] = children
    kind[copies] = Kind.COPY
    first[copies] = selection.elites
    mutated = random.random(k) < probability
    mutated[copies] = False
    return Births(kind, first, second, pair, which, mutated)


def candidates(selection: Selection, fitness: np.ndarray, stale: bool) -> Candidates:
    """Return who may be a parent: elites, then selected slots, each once and with its fitness.

    stale: as in the public code, elites count with the fitness of those that their copies replaced;
    one that is selected too stands twice, the second time with its own.
    """
    elites, selected, copies, _ = selection
    if stale:
        return Candidates(
            np.concatenate([elites, selected]), fitness[np.concatenate([copies, selected])]
        )
    origins = np.concatenate([elites, np.setdiff1d(selected, elites)])
    return Candidates(origins, fitness[origins])


def couples(candidates: Candidates) -> np.ndarray:
    """Pair candidates, any two that are not the same network, by index, int64 [p, 2]."""
    pairs = np.stack(np.triu_indices(len(candidates.origins), 1), axis=1)
    return pairs[np.not_equal(*candidates.origins[pairs].T)]


def greedy_scores(couples: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Add up both fitnesses of each couple, float64 [p], from those of the candidates [m]."""
    return scores[couples].sum(axis=1)


def disagreement(own: np.ndarray, other: np.ndarray) -> float:
    """Average the squared distance of two policies' actions [n, action]; 0 over no states."""
    squares = np.square(np.subtract(own, other, dtype=np.float64)).sum(axis=1)
    return float(squares.mean()) if len(squares) else 0.0


def distance_scores(couples: np.ndarray, disagreements: np.ndarray) -> np.ndarray:
    """Return the distance of each couple's behaviours, float64 [p].

    disagreements: float64 [m, m], of candidate x with candidate y over the states of x's memory.
    """
    x, y = couples.T
    return disagreements[x, y] + disagreements[y, x]


def mixed_scores(greedy: np.ndarray, distance: np.ndarray, weight: float) -> np.ndarray:
    """Combine both scores [p], each scaled to [0, 1]; `weight` is the greedy one's."""
    return weight * _scaled(greedy) + (1 - weight) * _scaled(distance)


def parents(candidates: Candidates, couples: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Order the couples' slots by `scores` [p], best first, int64 [p, 2]; ties stay in order.

    In a couple the fitter stands first, and at a tie the candidate that stands first.
    """
    fitness = or_least(candidates.scores)[couples]
    fitter_first = np.where(fitness[:, :1] < fitness[:, 1:], couples[:, ::-1], couples)
    return candidates.origins[fitter_first[order(scores)]]


def _scaled(scores: np.ndarray) -> np.ndarray:
    """Scale scores [p] to [0, 1], not finite ones as the least; zeros where all are equal."""
    finite = worst_for_not_finite(scores)
    span = np.ptp(finite) if len(finite) else 0.0
    return (finite - finite.min()) / span if span else np.zeros(len(scores))
