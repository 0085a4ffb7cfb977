"""The critics by which an ERL run judges actions: their size, and how ERL's own begins.

ERL's own critic (public code) sees observation and action through a layer each, then both through a
normalised one; ELU follows every layer but the last. Its flat vector has the two first layers one
after the other, then the joint rest.
"""

import numpy as np

from esac_mpi.config import Config
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout

OBSERVATION, ACTION, JOINT = 17, 18, 19  # which network initial weights are drawn for


def layouts(config: Config, layout: Layout) -> list[Layout]:
    """Return the layouts of the learner's critic, in its vector's order; layout: the policy's."""
    o, *hidden, a = layout.sizes
    if config.erl.learner != "ddpg":
        return [Layout((o + a, *hidden, 1), getattr(config, config.erl.learner).critic_layer_norm)]
    side, joint = config.erl.critic_hidden
    return [Layout((o, side)), Layout((a, side)), Layout((2 * side, joint, 1), layer_norm=True)]


def critic_size(config: Config, layout: Layout) -> int:
    """Return how many numbers a critic of the learner has; layout: of the policy."""
    return sum(part.d for part in layouts(config, layout))


def initial(config: Config, layout: Layout) -> np.ndarray:
    """Draw ERL's own critic, float32 [critic_size], as policies; last layer as ERL's actors'."""
    *sides, joint = layouts(config, layout)
    drawn = [
        side.initial(config.seed, network)
        for side, network in zip(sides, (OBSERVATION, ACTION), strict=True)
    ]
    return np.concatenate([*drawn, genetics.initial(joint, config.seed, JOINT)])
