"""A random number is a function of its address."""

import itertools

import numpy as np

from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose


def test_an_address_gives_the_same_numbers_in_any_order():
    first = noise.normal(3, Purpose.MUTATION, 7, 2, 1, 100)
    noise.normal(3, Purpose.MUTATION, 7, 2, 0, 1000)
    np.testing.assert_array_equal(noise.normal(3, Purpose.MUTATION, 7, 2, 1, 100), first)


def test_every_part_of_an_address_matters():
    base = [3, Purpose.MUTATION, 7, 2, 1]
    seen = {noise.normal(*base, 4).tobytes()}
    for place, value in enumerate([4, Purpose.EPISODE, 8, 3, 2]):
        seen.add(noise.normal(*base[:place], value, *base[place + 1 :], 4).tobytes())
    assert len(seen) == 6


def test_addresses_do_not_overlap_within_a_block():
    draws = [
        noise.generator(0, Purpose.MUTATION, 1, m, b).integers(2**63, size=256)
        for m, b in itertools.product(range(20), range(20))
    ]
    assert np.unique(draws).size == 400 * 256


def test_normal_numbers_are_standard_normal():
    draws = np.concatenate(
        [noise.normal(1, Purpose.MUTATION, g, m, 0, 1000) for g in range(10) for m in range(10)]
    ).astype(float)
    assert abs(draws.mean()) < 4 / np.sqrt(draws.size)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / draws.size)
    assert abs((draws**4).mean() - 3) < 4 * np.sqrt(96 / draws.size)


def test_bits_of_the_noise_are_these():
    """A change here means that no older run can be continued."""
    numbers = noise.normal(1, Purpose.MUTATION, 2, 3, 4, 3)
    np.testing.assert_array_equal(
        numbers,
        np.array([0.6238632798194885, -0.43289467692375183, -1.9163744449615479], np.float32),
    )
    assert noise.integer(1, Purpose.EPISODE, 2, 3, 4) == 1863777816


def test_blocks_cover_a_vector_once():
    parts = [part for _, part in noise.blocks(2 * noise.BLOCK + 5)]
    assert [(p.start, p.stop) for p in parts] == [(0, 16384), (16384, 32768), (32768, 32773)]
