"""Normal numbers against Random123's vectors and the normal distribution; tanh against float64."""

import math
from hashlib import sha256

import numpy as np
import pytest

from esac_mpi.operators import kernels, noise

COUNTERS = 256  # of a chunk, four numbers each
HALF = COUNTERS // 2

# kat_vectors of Random123: counter, key, words
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
ADDRESSES = {  # and what their numbers must remain
    (0, 0, 0, 0, 0, 4 * COUNTERS): "b7719c34ac7e9d87",
    (12_345_678_901_234, 2, 7, 3, 11, 1): "d89479390201ce38",
    (1, 2, 3, 4, 5, 16_384): "0706e3e7711823d7",
    (1, 2, 3, 4, 5, 5_001): "e9cdd8e4a7e5c6e8",
    (2**64 - 1, 255, 2**32 - 1, 2**32 - 1, 2**32 - 1, 1_025): "215876a3711a8206",
    (9, 9, 9, 9, 9, 0): "e3b0c44298fc1c14",
}


def phi(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_compiled_philox_of_the_published_vectors(counter, key, words):
    assert kernels._kernels.philox(*counter, *key) == words


@pytest.mark.parametrize(("address", "digest"), ADDRESSES.items())
def test_the_bits_stay_what_they_are(address, digest):
    assert sha256(noise.normal(*address).tobytes()).hexdigest()[:16] == digest


def test_the_address_is_the_key_and_the_counter():
    """The first numbers of a chunk come from counters 0, 128, 1 and their first two words."""
    seed, purpose, generation, member, block = 5 + (6 << 32), 2, 30, 20, 10
    address = seed, purpose, generation, member, block
    x = noise.normal(*address, 4 * COUNTERS).astype(np.float64)
    for i, index in enumerate((0, HALF, 1)):
        w, v, _, _ = map(float, kernels._kernels.philox((2 << 24) + index, 10, 20, 30, 5, 6))
        radius = math.sqrt(-2 * math.log((w + 0.5) / 2**32))
        assert np.hypot(x[i], x[COUNTERS + i]) == pytest.approx(radius, rel=1e-6)
        # sine, cosine: the angle is at most pi / 4
        tangents = sorted(np.abs([x[i], x[COUNTERS + i]]) / radius)
        angle = (v - 2**32 if v >= 2**31 else v) * math.pi / 2**33
        assert tangents == pytest.approx([abs(math.sin(angle)), math.cos(angle)], abs=1e-6)


def test_numbers_are_standard_normal():
    """By their moments, the Kolmogorov-Smirnov distance at the 1 % level, and their tails."""
    x = noise.normal(1, 2, 0, 0, 0, 2**22)
    some = x[: 2**20].astype(np.float64)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10_170)):
        error = 4 * math.sqrt(variance / some.size)
        assert np.mean(some**power) == pytest.approx(moment, abs=error)
    few = np.sort(some[:100_000])
    steps, cumulative = np.arange(few.size + 1) / few.size, np.array([*map(phi, few.tolist())])
    distance = max(np.max(steps[1:] - cumulative), np.max(cumulative - steps[:-1]))
    assert distance * math.sqrt(few.size) < 1.63
    for bound in (3.0, 4.0, 4.5):
        expected = x.size * 2 * phi(-bound)
        assert np.sum(np.abs(x) > bound) == pytest.approx(expected, abs=4 * math.sqrt(expected))


@pytest.mark.parametrize("part", range(5))
def test_neighbouring_addresses_are_uncorrelated(part):
    address, n = [5, 2, 8, 8, 8], 2**17
    x = noise.normal(*address, n)
    address[part] += 1
    y = noise.normal(*address, n)
    for a, b in ((x, y), (x**2, y**2), (x, y[::-1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(n)


@pytest.mark.parametrize("lag", [1, 2, HALF, 2 * HALF, 4 * HALF, 8 * HALF])
def test_numbers_of_an_address_are_uncorrelated(lag):
    x = noise.normal(6, 2, 0, 0, 0, 2**18)
    for a in (x, x**2):
        assert abs(np.corrcoef(a[lag:], a[:-lag])[0, 1]) < 4 / math.sqrt(x.size)


@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("small", [True, False])
def test_an_address_that_does_not_fit_is_refused(part, small):
    address = [0, 0, 0, 0, 0, 1]
    address[part] = -1 if small else (2**64, 2**8, 2**32, 2**32, 2**32, 2**26 + 1)[part]
    with pytest.raises(ValueError, match="an address is"):
        noise.normal(*address)


def test_tanh_within_seven_units_in_the_last_place():
    n = 20_000
    x = np.geomspace(1e-20, 60, n, dtype=np.float32)
    x[: n // 2] *= -1
    x[0], x[-1] = 0.0, np.inf
    bounds = -np.ones(n, np.float32), np.ones(n, np.float32)
    network = kernels.Perceptron((1, n), "relu", "tanh", *bounds)
    network.load(np.concatenate([np.zeros(n, np.float32), x]))
    y = np.zeros(n, np.float32)
    network.act(np.zeros(1), y, False, None, None)
    exact = np.tanh(x.astype(np.float64))
    assert np.max(np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))) < 7
    assert np.abs(y).max() == 1


ONE = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("form", "what"),
    [
        *(((sizes, "relu", "tanh"), "sizes must be|a layer has") for sizes in ((3,), (3, 0), ())),
        (((0, 1), "relu", "tanh"), "sizes must be|a layer has"),
        (((3, 1), "elu", "tanh"), "activation must be tanh or relu, got elu"),
        (((3, 1), "relu", "none"), "output must be tanh or clip, got none"),
        (((3, 2), "relu", "tanh"), r"low must be float32 \[2\]"),
        (((3, 1), "relu", "tanh"), r"theta must be float32 \[4\], got format f"),
    ],
)
def test_a_wrong_perceptron_is_refused(form, what):
    with pytest.raises(ValueError, match=what):
        kernels.Perceptron(*form, -ONE, ONE).load(np.zeros(5, np.float32))


def test_sums_over_observations_are_numpys_to_the_bit():
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.integers(-30, 30, (500, 7))
    seen = (random.standard_normal((500, 7)) * sizes).astype(np.float32)
    seen[100, 0], seen[300, 1], seen[400, 2] = np.nan, np.inf, 1e-42
    ours, theirs = np.zeros((3, 7)), np.zeros((3, 7))
    for observation in seen:
        kernels.count_in(ours, observation)
        theirs += [np.ones(7), observation, np.square(observation, dtype=np.float64)]
    assert ours.tobytes() == theirs.tobytes()
    assert ours[0].tolist() == [500] * 7


@pytest.mark.parametrize(
    ("sums", "observation"),
    [
        (np.zeros((3, 2)), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros(3, np.float32)),
        (np.zeros((3, 3), np.float32), np.zeros(3, np.float32)),
        (np.zeros((3, 3)), np.zeros(3)),
    ],
)
def test_sums_of_another_shape_or_type_are_refused(sums, observation):
    with pytest.raises(ValueError, match="must be float"):
        kernels.count_in(sums, observation)
