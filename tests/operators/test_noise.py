"""A random number is a function of its address; test_kernels.py has how numbers are made."""

import itertools

import numpy as np

from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose


def test_addresses_do_not_overlap_within_a_block():
    draws = [
        noise.generator(0, Purpose.MUTATION, 1, m, b).integers(2**63, size=256)
        for m, b in itertools.product(range(20), range(20))
    ]
    assert np.unique(draws).size == 400 * 256


def test_bits_of_a_generator_are_these():
    """A change here means that no older run can be continued."""
    assert noise.integer(1, Purpose.EPISODE, 2, 3, 4) == 1863777816


def test_blocks_cover_a_vector_once():
    parts = [part for _, part in noise.blocks(2 * noise.BLOCK + 5)]
    assert [(p.start, p.stop) for p in parts] == [(0, 16384), (16384, 32768), (32768, 32773)]
