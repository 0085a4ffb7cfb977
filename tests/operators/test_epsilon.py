"""Epsilon, made in three ways of addressed numbers; test_kernels.py has how these are made."""

import itertools

import numpy as np
import pytest

from esac_mpi import config
from esac_mpi.host.errors import WrongUsage
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Layout
from esac_mpi.play.epsilon import LowRank, Table, make

LAYOUT = Layout((3, 150, 140, 2))  # two blocks of parameters
KINDS = ["philox", "table", "lowrank"]


def whole(epsilon, k, slot):
    blocks = noise.blocks(LAYOUT.d)
    return np.concatenate([epsilon.block(k, slot, block, part) for block, part in blocks])


def made(world, kind, layout=LAYOUT, rank=1):
    values = {"esac.noise": kind, "esac.noise_table_size": 100_000, "esac.noise_rank": rank}
    return make(config.amend(config.Config(), values).esac, 4, layout, world)


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_is_a_function_of_its_address(world, kind):
    epsilon, other = made(world, kind), made(world, kind)
    first = whole(epsilon, 7, 2).copy()
    whole(epsilon, 8, 3)
    np.testing.assert_array_equal(whole(epsilon, 7, 2), first)
    np.testing.assert_array_equal(whole(other, 7, 2), first)
    assert (first.dtype, first.shape) == (np.float32, (LAYOUT.d,))
    for address in [(8, 2), (7, 3), (2, 7)]:
        assert (whole(epsilon, *address) != first).mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_is_standard_and_slots_are_uncorrelated(world, kind):
    epsilon = made(world, kind, rank=2)
    draws = np.stack([whole(epsilon, 1, slot) for slot in range(60)]).astype(float)
    assert abs(draws.mean()) < 0.02
    assert abs(draws.var() - 1) < 0.05
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.05


def test_a_slot_of_the_table_is_one_piece_of_it(world):
    table = Table(4, LAYOUT.d, 100_000, world)
    second = noise.normal(4, Purpose.TABLE, 0, 0, 1, noise.BLOCK)
    np.testing.assert_array_equal(table.values[noise.BLOCK :][: noise.BLOCK], second)
    epsilon = whole(table, 1, 0)
    places = np.flatnonzero(table.values == epsilon[0])
    assert any((table.values[p : p + LAYOUT.d] == epsilon).all() for p in places)


def test_a_table_shorter_than_theta_is_refused(world):
    with pytest.raises(WrongUsage, match=f"noise_table_size = 1000: theta alone has {LAYOUT.d}"):
        Table(4, LAYOUT.d, 1000, world)
    with pytest.raises(WrongUsage, match=f"; {LAYOUT.d + 255} at least, for 256 pieces to draw"):
        Table(4, LAYOUT.d, LAYOUT.d + 254, world)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_low_rank_noise_has_that_rank_and_full_biases(rank):
    views = LAYOUT.views(whole(LowRank(4, LAYOUT, rank), 1, 0))
    assert [np.linalg.matrix_rank(view) for view in views[::2]] == [rank, rank, min(rank, 2)]
    a = noise.normal(4, Purpose.MUTATION, 1, 0, 4, 140 * rank).reshape(140, rank)
    b = noise.normal(4, Purpose.MUTATION, 1, 0, 5, 150 * rank).reshape(rank, 150)
    np.testing.assert_allclose(views[2], a @ b / np.sqrt(rank), atol=1e-5)
    np.testing.assert_array_equal(views[3], noise.normal(4, Purpose.MUTATION, 1, 0, 6, 140))


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
