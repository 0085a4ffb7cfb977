"""Populations whose sums the ranks of a node share: chunks of slots, exact sums in any order."""

from fractions import Fraction

import numpy as np
import pytest
from conftest import CYCLIC_ES
from words import words

from esac_mpi.config import Evolution
from esac_mpi.operators import accumulator, noise
from esac_mpi.play import population
from esac_mpi.record import Run

LARGE = 1040  # members: two chunks of slots, and more than accumulator.ROWS


@pytest.mark.parametrize(
    ("d", "slots", "count"),
    [
        (5_000, 511, 1),
        (5_000, 512, 2),
        (5_000, 100_000, 32),
        (300_000, 100_000, 1),
        (100_000, 5_000, 4),
    ],
)
def test_slots_are_cut_by_sizes_alone(d, slots, count):
    chunks = noise.chunks(d, slots)
    assert len(chunks) == count
    assert [slot for chunk in chunks for slot in chunk] == list(range(slots))
    assert noise.pieces(d, slots) == count * len(list(noise.blocks(d)))


def test_sums_of_chunks_are_added_in_their_order(world):
    d, slots = 20_000, 700
    values = np.random.default_rng(0).standard_normal((slots, d)).astype(np.float32)

    def add(block, part, chunk):
        total = np.zeros((1, part.stop - part.start), np.float32)
        for slot in chunk:
            total[0] += values[slot, part]
        return total

    over_slots = population.sum_chunks(np.zeros((2, 1, d), np.float32), slots, add, world)
    expected = sum(values[1:350], values[0].copy()) + sum(values[351:], values[350].copy())
    for block, part in noise.blocks(d):
        np.testing.assert_array_equal(over_slots(block, part)[0], expected[part])


def test_only_large_populations_add_exactly():
    for n, normalises, scales, exactly in (
        (50, True, True, False),
        (1024, True, False, False),
        (1026, True, False, True),
        (1026, False, True, True),
        (2000, False, False, False),
    ):
        counts = {"observation_normalisation": normalises, "scaled_noise": scales}
        assert population.sums_exactly(Evolution(population_size=n, **counts)) == exactly


@pytest.mark.parametrize(
    ("line", "numbers"),  # of the other node's: five a member, and five
    [
        ("10 --es.scaled_noise false --policy.hidden 8 8", 5 * 5),
        # no term in the parameters
        ("10 --es.scaled_noise false --policy.hidden 200 200", 5 * 5),
        ("1000", (5 + 3 * 3) * 500),
        ("1000 --es.observation_normalisation true", (5 + 3 * 3) * 500),  # sums of each member
        ("1040 --es.observation_normalisation true", 5 * 520 + 3 * 3 * 13),  # and exact ones of all
        ("2080 --es.observation_normalisation true", 5 * 1040 + 3 * 3 * 13),
    ],
)
def test_what_travels_between_nodes_are_scalars(line, numbers, tmp_path, together):
    few = words("--task.horizon 4 --evaluation.every 100 --budget.generations 3 --run-dir")
    more = words("--es.observation_normalisation false --es.population_size", *line.split())
    together(2, *CYCLIC_ES, *more, *few, tmp_path / "run", nodes=2)
    exchanged = Run.open(tmp_path / "run").columns["timing/bytes_exchanged"]
    assert np.diff(exchanged).tolist() == [8 * (numbers + 5)] * 2


def test_sums_are_those_of_fractions_in_any_order():
    random = np.random.default_rng(0)
    numbers = random.standard_normal((200, 7)) * 10.0 ** random.integers(-12, 13, (200, 7))
    total = accumulator.digits(numbers).sum(axis=1)
    for order in (slice(None, None, -1), random.permutation(200)):
        shuffled = accumulator.digits(numbers[order])
        assert (shuffled[:, :77].sum(axis=1) + shuffled[:, 77:].sum(axis=1) == total).all()
    true = [float(sum(map(Fraction, column))) for column in numbers.T]
    np.testing.assert_allclose(accumulator.value(total), true, rtol=1e-15)


@pytest.mark.parametrize("number", [0.0, 1.0, -1.5, 1e80, -3e-20, 2.0**-128, 2.0**286 + 2.0**240])
def test_a_number_comes_back_as_it_is(number):
    assert accumulator.value(accumulator.digits(np.array([number]))).tolist() == [number]


def test_cancelled_numbers_leave_the_small_one():
    assert accumulator.value(accumulator.digits(np.array([1e60, 1e-9, -1e60])).sum(axis=1)) == 1e-9
