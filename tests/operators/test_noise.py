"""A random number is a function of its address; test_kernels.py has how numbers are made."""

import itertools

import numpy as np

from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose


def test_every_part_of_an_address_matters_and_nothing_else():
    base = [3, Purpose.MUTATION, 7, 2, 1]
    first = noise.normal(*base, 100).tobytes()
    seen = {first}
    for place, value in enumerate([4, Purpose.EPISODE, 8, 3, 2]):
        seen.add(noise.normal(*base[:place], value, *base[place + 1 :], 100).tobytes())
    assert len(seen) == 6
    assert noise.normal(*base, 100).tobytes() == first


def test_addresses_do_not_overlap_within_a_block():
    draws = [
        noise.generator(0, Purpose.MUTATION, 1, m, b).integers(2**63, size=256)
        for m, b in itertools.product(range(20), range(20))
    ]
    assert np.unique(draws).size == 400 * 256


def test_bits_of_the_noise_are_these():
    """A change here means that no older run can be continued."""
    numbers = [0.6238632798194885, -0.43289467692375183, -1.9163744449615479]
    found = noise.normal(1, Purpose.MUTATION, 2, 3, 4, 3)
    np.testing.assert_array_equal(found, np.array(numbers, np.float32))
    assert noise.integer(1, Purpose.EPISODE, 2, 3, 4) == 1863777816


def test_blocks_cover_a_vector_once():
    parts = [part for _, part in noise.blocks(2 * noise.BLOCK + 5)]
    assert [(p.start, p.stop) for p in parts] == [(0, 16384), (16384, 32768), (32768, 32773)]
