"""Populations whose sums the ranks of a node share."""
# Chunks of slots, and exact totals over observations.

import numpy as np
import pytest
from conftest import CYCLIC, CYCLIC_ES
from whole_runs import same_in_parts
from words import words

from esac_mpi.config import Evolution
from esac_mpi.operators import noise
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
    for n, normalises, exactly in (
        (50, True, False),
        (1024, True, False),
        (1026, True, True),
        (2000, False, False),
    ):
        table = Evolution(population_size=n, observation_normalisation=normalises)
        assert population.sums_exactly(table) == exactly


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "line"), [("es", CYCLIC_ES), ("esac", CYCLIC)])
def test_a_large_population_has_the_same_bits_on_any_ranks(
    tmp_path, algorithm, line, alone, together
):
    more = words(f"--task.horizon 4 --{algorithm}.population_size {LARGE}")
    more += words(f"--{algorithm}.observation_normalisation true")
    same_in_parts(tmp_path, alone, together, [*line, *more], (1, 2, 1), (3, 3, 2), (4, 2, 2))


@pytest.mark.slow
def test_sums_of_observations_travel_not_the_population(tmp_path, together):
    line = words("--task.horizon 4 --es.observation_normalisation true --evaluation.every 100")
    line += words("--budget.generations 3 --es.population_size")
    received = {}
    for n in (1000, 1040, 2080):
        together(2, *CYCLIC_ES, *line, n, "--run-dir", tmp_path / str(n), nodes=2)
        exchanged = np.diff(Run.open(tmp_path / str(n)).columns["timing/bytes_exchanged"])
        # less five numbers of the other node's members
        received[n] = exchanged[-1] - 8 * 5 * n // 2
    assert received[1000] == 8 * (9 * 500 + 5)  # three sums of three observations
    assert received[1040] == received[2080] == 8 * (9 * 13 + 5)
