"""Exact sums of float64 numbers, the same bits in any order and split: whole numbers of units.

Each number is cut into digits of 32 bits, whose sums are integers. The idea is Kulisch's (long
accumulators); this is its smallest form.
"""

import numpy as np

# members whose sums travel each by itself, at most; a constant, because bits depend on it
ROWS = 1024
UNITS = 2.0 ** np.arange(256, -129, -32)  # of the digits, the largest first


def digits(numbers: np.ndarray) -> np.ndarray:
    """Cut numbers, float64 [...], below 2**287, into multiples of UNITS, int64 [UNITS.size, ...].

    What is below 2**-128 is left out.
    """
    cut = np.empty((UNITS.size, *numbers.shape), np.int64)
    rest = numbers.astype(np.float64)
    for digit, unit in zip(cut, UNITS, strict=True):
        whole = np.trunc(rest / unit)
        digit[...] = whole
        rest -= whole * unit  # exact, as units are powers of two
    return cut


def value(cut: np.ndarray) -> np.ndarray:
    """Turn sums of digits, int64 [UNITS.size, ...], back into numbers, float64 [...]."""
    total = np.zeros(cut.shape[1:])
    for digit, unit in zip(cut[::-1], UNITS[::-1], strict=True):
        total += digit * unit
    return total
