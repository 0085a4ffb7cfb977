"""Genetic operators on vectors: the n-point crossover and Gaussian mutation of ERL.

Source: the public code of Khadka and Tumer 2018. A vector is a theta, float32 [d]; it is never
changed in place. Where we differ from that code: the initial weights are those of `Layout.initial`
(Xavier, zero biases) and not PyTorch's. The last layer's are a tenth of them, as there for the
learner's actor and its critic.
"""

import math

import numpy as np

from esac_mpi.config import ERL, exact
from esac_mpi.operators.evolution import exchanges
from esac_mpi.operators.policy import Layout

LARGEST_WEIGHT = 1e6  # that a mutation leaves
LAST_LAYER = 0.1  # of its usual initial weights


def initial(layout: Layout, seed: int, network: int, last_layer: float = LAST_LAYER) -> np.ndarray:
    """Draw an actor's weights, float32 [d]; a last layer scaled by 0.1 keeps its actions small."""
    theta = layout.initial(seed, network)
    for view in layout.views(theta)[-2:]:  # the output layer's weight and bias
        view *= last_layer
    return theta


def n_point(
    first: np.ndarray, second: np.ndarray, layout: Layout, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the two children of an n-point crossover, float32 [d] each.

    Each exchange of `evolution.exchanges` copies a row of the first child over the second's, or the
    reverse. Only the first one of a row counts: after it both children have the same.
    """
    children = first.copy(), second.copy()
    for one, other in zip(*(layout.views(child) for child in children), strict=True):
        drawn, forward = exchanges(random, len(one), one.ndim == 2)
        rows, earliest = np.unique(drawn, return_index=True)
        forward = forward[earliest]
        other[rows[forward]] = one[rows[forward]]
        one[rows[~forward]] = other[rows[~forward]]
    return children


def gaussian(
    theta: np.ndarray, layout: Layout, erl: ERL, random: np.random.Generator
) -> np.ndarray:
    """Mutate theta by Gaussian noise, float32 [d]; biases and normalising tensors stay.

    A matrix is mutated with a chance drawn from U(0, 2), by a uniform number of changes below
    mutated_fraction of its weights. A change picks a weight w with replacement and adds
    N(0, |mutation_strength w|), or N(0, |super_strength w|), or resets it to N(0, 1).
    """
    mutated = theta.copy()
    for view in layout.views(mutated):
        if view.ndim == 2 and random.random() < random.uniform(0.0, 2.0):
            _change(view.reshape(-1), erl, random)
    return mutated


def _change(weights: np.ndarray, erl: ERL, random: np.random.Generator) -> None:
    """Change weights [n], one after the other, in place."""
    count = random.integers(max(1, math.ceil(exact(erl.mutated_fraction) * len(weights))))
    places = random.integers(len(weights), size=count)
    luck = random.random(count)
    normal = random.standard_normal(count)
    strong = luck < erl.super_probability
    strength = np.where(strong, erl.super_strength, erl.mutation_strength)
    reset = ~strong & (luck < erl.super_probability + erl.reset_probability)
    left = np.arange(count)
    while left.size:  # the first change of each weight, then the second of those that have one, ...
        now = left[np.unique(places[left], return_index=True)[1]]
        old = weights[places[now]]
        new = np.where(reset[now], normal[now], old + strength[now] * np.abs(old) * normal[now])
        weights[places[now]] = np.clip(new, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        left = np.setdiff1d(left, now, assume_unique=True)
