"""Selection, births and couples against tables written by hand."""

import numpy as np
import pytest
from drawn import Drawn

from esac_mpi.config import genetic
from esac_mpi.operators import selection
from esac_mpi.operators.selection import Candidates, Fate, Selection


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def as_lists(chosen: Selection) -> tuple[list[int], ...]:
    return tuple(part.tolist() for part in chosen)


def draws(*winners: int) -> list[list[int]]:
    """Return tournaments of three that are won by these ranks."""
    return [[9, rank, rank] for rank in winners]


SELECTION = Selection(
    elites=slots(1), selected=slots(1, 3, 5), copies=slots(4), free=slots(0, 6, 2)
)  # of seven


def test_the_order_is_best_first_ties_by_slot_and_what_is_not_finite_last():
    assert selection.order(np.array([3.0, np.nan, 7.0, 7.0, np.inf, -np.inf, -9.0])).tolist() == [
        2,
        3,
        0,
        6,
        1,
        4,
        5,
    ]
    assert selection.order(np.array([])).tolist() == []


@pytest.mark.parametrize(
    ("k", "fraction", "count"),
    [(10, 0.1, 1), (10, 0.3, 3), (10, 0.05, 1), (10, 0.0, 1), (5, 0.5, 2)],
)
def test_there_is_at_least_one_elite(k, fraction, count):
    assert genetic.elites(k, fraction) == count


def test_a_selection_by_hand():
    fitness = np.array([5.0, 9.0, 1.0, 7.0, 3.0, 8.0])  # best to worst: slots 1 5 3 0 4 2
    # ranks 0 1 5 1 2: slots 1 5 2 5 3
    random = Drawn([[0, 3, 5], [1, 4, 4], [5, 5, 5], [1, 1, 2], [2, 3, 4]], [4, 0])
    chosen = selection.select(fitness, 1, random)
    assert as_lists(chosen) == ([1], [1, 2, 3, 5], [4], [0])
    assert random.calls[0] == (6,)
    # shuffled: neither elite nor selected
    np.testing.assert_array_equal(random.calls[1][0], [0, 4])
    assert [selection.fate(chosen, slot).name[0] for slot in range(6)] == list("DESSDS")


@pytest.mark.parametrize(
    ("elites", "winners", "expected"),
    [
        (1, (0, 0, 0), ([0], [0], [3], [2, 1])),  # one wins all
        (
            1,
            (1, 2, 3),
            ([0], [2, 3], [1], []),
        ),  # all are selected: a copy takes the first selected slot
        (1, (1, 2, 0), ([0], [0, 1, 2], [3], [])),  # the copy takes the only free slot
        (2, (0, 1), ([0, 1], [0, 1], [3, 2], [])),  # elites only
        (2, (2, 2), ([0, 1], [], [3, 2], [])),  # one free slot, one selected
        (2, (2, 3), ([0, 1], [], [2, 3], [])),
        (2, (0, 3), ([0, 1], [3], [2, 0], [])),  # an elite's own slot is taken
    ],
)
def test_selections_of_four_at_the_edges(elites, winners, expected):
    fitness = np.array([4.0, 3.0, 2.0, 1.0])  # rank = slot
    free = sorted(set(range(elites, 4)) - set(winners), reverse=True)
    assert (
        as_lists(selection.select(fitness, elites, Drawn(draws(*winners), slots(*free))))
        == expected
    )


def test_a_network_whose_slot_takes_a_copy_is_discarded_unless_it_is_an_elite():
    chosen = selection.select(np.array([4.0, 3.0, 2.0, 1.0]), 1, Drawn(draws(1, 2, 3), slots()))
    assert [selection.fate(chosen, slot) for slot in range(4)] == [
        Fate.ELITE,
        Fate.DISCARDED,
        Fate.SELECTED,
        Fate.SELECTED,
    ]
    chosen = selection.select(np.array([4.0, 3.0, 2.0, 1.0]), 2, Drawn(draws(0, 3), slots(2)))
    assert [selection.fate(chosen, slot) for slot in range(4)] == [
        Fate.ELITE,
        Fate.ELITE,
        Fate.DISCARDED,
        Fate.SELECTED,
    ]


def test_more_elites_than_half_of_a_population_are_refused():
    with pytest.raises(ValueError, match="a population of 3 has no room for copies of 2 elites"):
        selection.select(np.zeros(3), 2, np.random.default_rng(0))


def test_every_slot_has_one_lot_in_any_selection():
    random = np.random.default_rng(0)
    for k in (2, 3, 5, 10):
        for elites in range(1, k // 2 + 1):
            for _ in range(50):
                best, selected, copies, free = selection.select(
                    random.normal(size=k), elites, random
                )
                assert len(best) == len(copies) == len(set(copies.tolist())) == elites
                assert sorted({*best, *selected, *copies, *free}) == list(range(k))
                assert not {*copies} & {*selected}
                assert not {*free} & {*best, *selected, *copies}
                assert len(selected) or not len(free)  # a child has a selected parent to take


def test_a_tournament_of_three_selects_as_often_as_reckoned():
    k, runs = 10, 3000
    counts = [
        len(selection.select(-np.arange(k), 1, np.random.default_rng(seed)).selected)
        for seed in range(runs)
    ]
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


def test_free_slots_take_the_one_network_there_is_and_are_mutated():
    alone = Selection(slots(2), slots(2), slots(0), slots(3, 1))
    births = selection.births_distilled(
        alone, np.zeros((0, 2), np.int64), 4, 0.9, Drawn([0.5, 0.5, 0.5, 0.95])
    )
    assert table(births) == {
        "kind": [1, 1, 0, 1],
        "first": [2, 2, 2, 2],
        "second": [-1, -1, -1, -1],
        "pair": [-1, -1, -1, -1],
        "which": [0, 0, 0, 0],
        "mutated": [0, 1, 1, 0],
    }


def test_nobody_free_means_no_child():
    full = Selection(slots(0), slots(2), slots(1), slots())
    for births in (
        selection.births_n_point(full, 3, 1.0, np.random.default_rng(0)),
        selection.births_distilled(full, np.array([[0, 2]]), 3, 1.0, np.random.default_rng(0)),
    ):
        assert table(births)["kind"] == [0, 1, 0]
        assert table(births)["first"] == [0, 0, 2]
        assert table(births)["mutated"] == [1, 0, 1]


def test_births_without_mutation():
    births = selection.births_n_point(SELECTION, 7, 0.0, np.random.default_rng(0))
    assert not births.mutated.any()


def test_an_elite_and_a_selected_slot_are_parents_as_often_as_others():
    many = Selection(slots(0, 1), slots(0, 2, 3), slots(4, 5), slots(*range(6, 3006)))
    births = selection.births_n_point(many, 3006, 1.0, np.random.default_rng(0))
    first, second = births.first[6::2], births.second[6::2]  # of 1500 pairs
    for parents, candidates in ((first, [0, 1]), (second, [0, 2, 3])):
        counts = np.bincount(parents, minlength=4)[candidates]
        assert counts.sum() == 1500
        share = 1 / len(candidates)
        assert np.abs(counts - 1500 * share).max() < 4 * np.sqrt(1500 * share * (1 - share))


def test_candidates_carry_their_fitness():
    fitness = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    origins, scores = selection.candidates(SELECTION, fitness, stale=False)
    assert (origins.tolist(), scores.tolist()) == ([1, 3, 5], [10, 30, 50])


def test_stale_candidates_carry_the_fitness_of_those_that_copies_replaced():
    fitness = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    origins, scores = selection.candidates(SELECTION, fitness, stale=True)
    assert (origins.tolist(), scores.tolist()) == ([1, 1, 3, 5], [40, 10, 30, 50])


def test_couples_are_any_two_that_are_not_the_same_network():
    assert selection.couples(Candidates(slots(4, 1, 2), np.zeros(3))).tolist() == [
        [0, 1],
        [0, 2],
        [1, 2],
    ]
    assert selection.couples(Candidates(slots(1, 1, 3), np.zeros(3))).tolist() == [[0, 2], [1, 2]]
    assert selection.couples(Candidates(slots(1), np.zeros(1))).shape == (0, 2)
    assert selection.couples(Candidates(slots(1, 1), np.zeros(2))).shape == (0, 2)


def test_one_candidate_has_no_couple_and_no_score():
    alone = Candidates(slots(1), np.array([5.0]))
    couples = selection.couples(alone)
    greedy = selection.greedy_scores(couples, alone.scores)
    distance = selection.distance_scores(couples, np.zeros((1, 1)))
    assert selection.parents(
        alone, couples, selection.mixed_scores(greedy, distance, 0.5)
    ).shape == (0, 2)


COUPLES = np.array([[0, 1], [0, 2], [1, 2]])


def test_scores_of_couples_by_hand():
    assert selection.greedy_scores(COUPLES, np.array([5.0, -2.0, 4.0])).tolist() == [3, 9, 2]
    disagreements = np.array([[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [20.0, 30.0, 0.0]])
    assert selection.distance_scores(COUPLES, disagreements).tolist() == [11, 22, 33]


def test_disagreement_is_the_mean_over_states_of_the_squared_distance():
    own = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    other = np.array([[0.0, 0.0], [0.0, -0.5]], np.float32)
    assert selection.disagreement(own, other) == (1.0 + 1.25) / 2
    assert selection.disagreement(own[:0], other[:0]) == 0.0


def test_mixed_scores_are_a_convex_combination_of_both_scaled_to_one():
    greedy = np.array([3.0, 9.0, 2.0])
    distance = np.array([11.0, 33.0, 22.0])  # scaled 1/7 1 0 and 0 1 1/2
    np.testing.assert_allclose(
        selection.mixed_scores(greedy, distance, 0.25), [1 / 28, 1.0, 3 / 8], rtol=1e-15
    )
    np.testing.assert_allclose(
        selection.mixed_scores(greedy, np.full(3, 7.0), 0.5), [1 / 14, 1 / 2, 0.0], rtol=1e-15
    )
    assert not selection.mixed_scores(np.full(3, -1.0), np.full(3, 7.0), 0.5).any()
    # what is not finite is the least
    np.testing.assert_allclose(
        selection.mixed_scores(np.array([4.0, np.nan, 2.0]), np.zeros(3), 1.0), [1.0, 0.0, 0.0]
    )


def test_parents_are_the_couples_best_first_with_the_fitter_first():
    candidates = Candidates(slots(7, 2, 4), np.array([5.0, -2.0, 6.0]))
    assert selection.parents(candidates, COUPLES, np.array([3.0, 11.0, 4.0])).tolist() == [
        [4, 7],
        [4, 2],
        [7, 2],
    ]


def test_ties_of_scores_and_of_fitness_are_in_the_order_of_the_candidates():
    candidates = Candidates(slots(7, 2, 4), np.full(3, 5.0))
    assert selection.parents(candidates, COUPLES, np.full(3, 10.0)).tolist() == [
        [7, 2],
        [7, 4],
        [2, 4],
    ]


def test_a_candidate_whose_fitness_is_not_finite_comes_last():
    for bad in (np.nan, np.inf, -np.inf):
        candidates = Candidates(slots(7, 2, 4), np.array([bad, -2.0, 6.0]))
        scores = selection.greedy_scores(COUPLES, candidates.scores)
        assert selection.parents(candidates, COUPLES, scores).tolist() == [[4, 2], [2, 7], [4, 7]]
