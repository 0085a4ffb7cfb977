"""How often states are visited, as densities over two dimensions, and how far two are apart.

A density is a histogram over CELLS x CELLS cells, smoothed by a Gaussian kernel along both
dimensions: a kernel density estimate of states that lie in the middle of their cells. It sums to 1.
Bandwidths are Scott's rule for the states that others are compared with: h = std n^(-1/6) in each
dimension (Scott 1992, Multivariate Density Estimation, eq. 6.42).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CELLS = 128  # in each dimension
OUTLYING = 0.001  # share of the states beyond each end of a grid; they count in its outermost cells
BEYOND = 3.0  # room around the others [bandwidths]
UNIFORM = 1e-6  # share of a uniform density in what is compared, so that no cell is empty


class Grid(NamedTuple):
    """Cells that densities are compared on."""

    edges: np.ndarray  # float64 [2, CELLS + 1]
    bandwidth: np.ndarray  # float64 [2]

    @property
    def middles(self) -> np.ndarray:
        """Middles of the cells in both dimensions, float64 [2, CELLS]."""
        return (self.edges[:, 1:] + self.edges[:, :-1]) / 2


def grid(samples: Sequence[np.ndarray]) -> Grid:
    """Return a grid for samples of states, each [n, 2]; the bandwidths are those of the first."""
    first = samples[0]
    bandwidth = np.maximum(first.std(axis=0), 1e-9) * len(first) ** (-1 / 6)
    ends = np.array(
        [np.quantile(sample, (OUTLYING, 1 - OUTLYING), axis=0) for sample in samples]
    )  # [samples, 2 ends, 2]
    low, high = (
        ends[:, 0].min(axis=0) - BEYOND * bandwidth,
        ends[:, 1].max(axis=0) + BEYOND * bandwidth,
    )
    return Grid(np.linspace(low, high, CELLS + 1).T, bandwidth)


def density(states: np.ndarray, cells: Grid) -> np.ndarray:
    """Estimate the density of states [n, 2], float64 [CELLS, CELLS], the first dimension first."""
    x, y = (
        np.clip(column, edges[0], edges[-1])
        for column, edges in zip(states.T, cells.edges, strict=True)
    )
    smoothed = np.histogram2d(x, y, bins=list(cells.edges))[0]
    for axis, (middles, bandwidth) in enumerate(zip(cells.middles, cells.bandwidth, strict=True)):
        kernel = np.exp(-0.5 * np.square(np.subtract.outer(middles, middles) / bandwidth))
        smoothed = np.moveaxis(np.tensordot(kernel, smoothed, (1, axis)), 0, axis)
    return smoothed / smoothed.sum()


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Return KL(p || q), the sum over cells of p ln(p / q) [nats].

    Both are mixed with UNIFORM of a uniform density.
    """
    p, q = ((1 - UNIFORM) * one + UNIFORM / one.size for one in (p, q))
    return float((p * np.log(p / q)).sum())


def difference(p: np.ndarray, q: np.ndarray) -> float:
    """Return the share of visits that differ: half the sum over cells of |p - q|, from 0 to 1."""
    return float(np.abs(p - q).sum() / 2)
