"""Selection, births and couples against tables written by hand."""

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.operators import selection
from esac_mpi.operators.selection import Candidates, Selection


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def select(fitness, elites, random) -> tuple[tuple[list[int], ...], str]:
    """Return who is chosen, and the fate of each slot: elite, selected or discarded."""
    chosen = selection.select(np.array(fitness), elites, random)
    fates = (selection.fate(chosen, slot).name[0] for slot in range(len(fitness)))
    return tuple(part.tolist() for part in chosen), "".join(fates)


SELECTION = Selection(
    elites=slots(1), selected=slots(1, 3, 5), copies=slots(4), free=slots(0, 6, 2)
)  # of seven
FITNESS = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])  # theirs


def test_the_order_is_best_first_and_ties_by_slot():
    fitness = np.array([3.0, np.nan, 7.0, 7.0, np.inf, -np.inf, -9.0])
    assert selection.order(fitness).tolist() == [2, 3, 0, 6, 1, 4, 5]
    assert selection.order(np.array([])).tolist() == []


def test_a_selection_by_hand():
    # best to worst: slots 1 5 3 0 4 2; ranks 0 1 5 1 2 win: slots 1 5 2 5 3
    random = Drawn([[0, 3, 5], [1, 4, 4], [5, 5, 5], [1, 1, 2], [2, 3, 4]], [4, 0])
    chosen, fates = select([5.0, 9.0, 1.0, 7.0, 3.0, 8.0], 1, random)
    assert (chosen, fates) == (([1], [1, 2, 3, 5], [4], [0]), "DESSDS")
    assert random.calls[0] == (6,)
    np.testing.assert_array_equal(random.calls[1][0], [0, 4])  # neither elite nor selected


@pytest.mark.parametrize(
    ("elites", "winners", "expected", "fates"),
    [
        (1, (0, 0, 0), ([0], [0], [3], [2, 1]), "EDDD"),  # one wins all
        # all are selected: a copy takes the first selected slot, whose network is discarded
        (1, (1, 2, 3), ([0], [2, 3], [1], []), "EDSS"),
        (1, (1, 2, 0), ([0], [0, 1, 2], [3], []), "ESSD"),  # the copy takes the only free slot
        (2, (0, 1), ([0, 1], [0, 1], [3, 2], []), "EEDD"),  # elites only
        (2, (2, 2), ([0, 1], [], [3, 2], []), "EEDD"),  # one free slot, one selected
        (2, (2, 3), ([0, 1], [], [2, 3], []), "EEDD"),
        (2, (0, 3), ([0, 1], [3], [2, 0], []), "EEDS"),  # an elite's own slot is taken
    ],
)
def test_selections_of_four_at_the_edges(elites, winners, expected, fates):
    free = sorted(set(range(elites, 4)) - set(winners), reverse=True)
    random = Drawn([[9, rank, rank] for rank in winners], slots(*free))
    assert select([4.0, 3.0, 2.0, 1.0], elites, random) == (expected, fates)  # rank = slot


@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_every_slot_has_one_lot_in_any_selection(k):
    random = np.random.default_rng(0)
    for elites in [elites for elites in range(1, k // 2 + 1) for _ in range(50)]:
        chosen = selection.select(random.normal(size=k), elites, random)
        best, selected, copies, free = (part.tolist() for part in chosen)
        assert len(best) == len(copies) == len(set(copies)) == elites
        assert sorted({*best, *selected, *copies, *free}) == list(range(k))
        assert not {*copies} & {*selected}
        assert not {*free} & {*best, *selected, *copies}
        assert selected or not free  # a child has a selected parent to take


def test_a_tournament_of_three_selects_as_often_as_reckoned():
    k, runs = 10, 3000
    randoms = map(np.random.default_rng, range(runs))
    counts = [len(selection.select(-np.arange(k), 1, random).selected) for random in randoms]
    rank = np.arange(k)
    wins = ((k - rank) / k) ** 3 - ((k - rank - 1) / k) ** 3  # that the best of three is this rank
    expected = np.sum(1 - (1 - wins) ** 9)
    assert abs(np.mean(counts) - expected) < 4 * np.std(counts) / np.sqrt(runs)
    assert expected == pytest.approx(4.9, abs=0.05)  # reckoned by others from the public code


def table(births: selection.Births) -> dict[str, list[int]]:
    return {name: array.astype(int).tolist() for name, array in births._asdict().items()}


def test_births_with_n_point_crossover_by_hand():
    # elites, selected, who is mutated
    random = Drawn([1, 1], [3, 5], [0.4, 0.5, 0.1, 0.2, 0.0, 0.9, 0.3])
    assert table(selection.births_n_point(SELECTION, 7, 0.5, random)) == {
        "kind": [2, 0, 2, 0, 1, 0, 2],
        "first": [1, 1, 1, 3, 1, 5, 1],
        "second": [3, -1, 5, -1, -1, -1, 3],
        "pair": [0, -1, 1, -1, -1, -1, 0],
        "which": [0, 0, 0, 0, 0, 0, 1],
        "mutated": [1, 0, 1, 1, 0, 0, 1],  # below 0.5, but the copy in slot 4
    }
    assert [(call[0].tolist(), call[1]) for call in random.calls[:2]] == [([1], 2), ([1, 3, 5], 2)]
    assert random.spent
    never = selection.births_n_point(SELECTION, 7, 0.0, np.random.default_rng(0))
    assert not never.mutated.any()


def test_births_with_distilled_children_by_hand():
    parents = np.array([[1, 3], [5, 1]])
    births = selection.births_distilled(SELECTION, parents, 7, 0.9, Drawn(np.full(7, 0.5)))
    assert table(births) == {
        "kind": [2, 0, 2, 0, 1, 0, 2],
        "first": [1, 1, 1, 3, 1, 5, 5],
        "second": [3, -1, 3, -1, -1, -1, 1],  # the third child begins with the best couple again
        "pair": [0, -1, 2, -1, -1, -1, 1],
        "which": [0, 0, 0, 0, 0, 0, 0],
        "mutated": [1, 1, 1, 1, 0, 1, 1],
    }


def test_free_slots_take_the_one_network_there_is():
    alone = Selection(slots(2), slots(2), slots(0), slots(3, 1))
    nobody, random = np.zeros((0, 2), np.int64), Drawn([0.5, 0.5, 0.5, 0.95])
    births = selection.births_distilled(alone, nobody, 4, 0.9, random)
    assert table(births) == {
        "kind": [1, 1, 0, 1],
        "first": [2, 2, 2, 2],
        "second": [-1, -1, -1, -1],
        "pair": [-1, -1, -1, -1],
        "which": [0, 0, 0, 0],
        "mutated": [0, 1, 1, 0],
    }


def test_nobody_free_means_no_child():
    full, random = Selection(slots(0), slots(2), slots(1), slots()), np.random.default_rng(0)
    for births in (
        selection.births_n_point(full, 3, 1.0, random),
        selection.births_distilled(full, np.array([[0, 2]]), 3, 1.0, random),
    ):
        assert births.kind.tolist() == [0, 1, 0]
        assert births.first.tolist() == [0, 0, 2]
        assert births.mutated.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("stale", "origins", "scores"),
    [
        (False, [1, 3, 5], [10, 30, 50]),
        (True, [1, 1, 3, 5], [40, 10, 30, 50]),  # of whom the copy replaced
    ],
)
def test_candidates_carry_their_fitness(stale, origins, scores):
    found = selection.candidates(SELECTION, FITNESS, stale=stale)
    assert [part.tolist() for part in found] == [origins, scores]


@pytest.mark.parametrize(
    ("origins", "couples"),
    [
        ((4, 1, 2), [[0, 1], [0, 2], [1, 2]]),
        ((1, 1, 3), [[0, 2], [1, 2]]),
        ((1,), []),
        ((1, 1), []),
    ],
)
def test_couples_are_any_two_that_are_not_the_same_network(origins, couples):
    found = selection.couples(Candidates(slots(*origins), np.zeros(len(origins))))
    assert found.shape == (len(couples), 2)
    assert found.tolist() == couples


def test_one_candidate_has_no_couple_and_no_score():
    alone = Candidates(slots(1), np.array([5.0]))
    couples = selection.couples(alone)
    greedy = selection.greedy_scores(couples, alone.scores)
    distance = selection.distance_scores(couples, np.zeros((1, 1)))
    scores = selection.mixed_scores(greedy, distance, 0.5)
    assert selection.parents(alone, couples, scores).shape == (0, 2)


COUPLES = np.array([[0, 1], [0, 2], [1, 2]])


def test_scores_of_couples_by_hand():
    assert selection.greedy_scores(COUPLES, np.array([5.0, -2.0, 4.0])).tolist() == [3, 9, 2]
    disagreements = np.array([[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [20.0, 30.0, 0.0]])
    assert selection.distance_scores(COUPLES, disagreements).tolist() == [11, 22, 33]


def test_disagreement_is_the_mean_squared_distance():
    own = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    other = np.array([[0.0, 0.0], [0.0, -0.5]], np.float32)
    assert selection.disagreement(own, other) == (1.0 + 1.25) / 2
    assert selection.disagreement(own[:0], other[:0]) == 0.0


@pytest.mark.parametrize(
    ("greedy", "distance", "share", "expected"),
    [
        ([3.0, 9.0, 2.0], [11.0, 33.0, 22.0], 0.25, [1 / 28, 1.0, 3 / 8]),  # 1/7 1 0, 0 1 1/2
        ([3.0, 9.0, 2.0], [7.0, 7.0, 7.0], 0.5, [1 / 14, 1 / 2, 0.0]),
        ([-1.0, -1.0, -1.0], [7.0, 7.0, 7.0], 0.5, [0.0, 0.0, 0.0]),
        ([4.0, np.nan, 2.0], [0.0, 0.0, 0.0], 1.0, [1.0, 0.0, 0.0]),  # not finite is the least
    ],
)
def test_mixed_scores_are_a_combination_of_both_scaled(greedy, distance, share, expected):
    found = selection.mixed_scores(np.array(greedy), np.array(distance), share)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("fitness", "scores", "parents"),
    [
        ([5.0, -2.0, 6.0], [3.0, 11.0, 4.0], [[4, 7], [4, 2], [7, 2]]),
        ([5.0, 5.0, 5.0], [10.0, 10.0, 10.0], [[7, 2], [7, 4], [2, 4]]),  # ties in their order
        *(([bad, -2.0, 6.0], None, [[4, 2], [2, 7], [4, 7]]) for bad in (np.nan, np.inf, -np.inf)),
    ],
)
def test_parents_are_the_best_couples_the_fitter_first(fitness, scores, parents):
    """Who has no finite fitness comes last, by the greedy scores of that."""
    candidates = Candidates(slots(7, 2, 4), np.array(fitness))
    scores = selection.greedy_scores(COUPLES, candidates.scores) if scores is None else scores
    assert selection.parents(candidates, COUPLES, np.array(scores)).tolist() == parents
